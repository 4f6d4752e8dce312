"""The part of docs/PERFORMANCE.md about making connections, and its arithmetic."""
from page import filled, table, with_spread
from summary import spread

MOST = 10  # times TCP
KEYS = ("rdma_connect_us", "rdma_whole_us", "tcp_accept_us", "tcp_connect_us")
NAMES = {"rdma_connect_us": "RDMA CM: `rdma_connect` to ESTABLISHED",
         "rdma_whole_us": "the same from `rdma_create_id` on, with resolving and the queue pair",
         "tcp_accept_us": "TCP: `connect` until the server's `accept` has returned",
         "tcp_connect_us": "TCP: `connect` alone"}


def values(document: dict, key: str) -> dict | None:
    found = [entry[key] for entry in document["rounds"] if entry.get(key, 0) > 0]
    return spread(found) if found else None


def ratio_row(document: dict) -> dict | None:
    """Of rdma_connect_us to tcp_accept_us, round by round."""
    both = [entry["rdma_connect_us"] / entry["tcp_accept_us"] for entry in document["rounds"] if "failed" not in entry]
    if not both:
        return None
    verdict = "met" if max(both) <= MOST else "missed" if min(both) > MOST else "open"
    return spread(both) | {"aim": MOST, "verdict": verdict}


def in_short(document: dict) -> str:
    ratio = document["ratio"]
    if not ratio:
        return "connect: not a single round gave figures: " + document["rounds"][0]["failed"]
    return f"connect to established: {with_spread(ratio)} times TCP's connect and accept (aim at most {MOST}: " \
           f"{ratio['verdict']})"


def text(document: dict) -> str:
    settings, ratio = document["settings"], document["ratio"]
    note = filled(f"""Measured by `bench/connect.py` on {document['machine']['date']}, from commit
        {document['machine']['verbena']}: {settings['rounds_complete']} rounds of {settings['connections']} connections
        of each kind, in turn, between two processes of one host that sleep while they wait. Medians of a round, in µs.
        RDMA CM to TCP with its accept: **{with_spread(ratio)}**; at most {MOST} is aimed at: {ratio['verdict'] if ratio
        else 'not measured'}.""")
    worst = max((probe.get(key, 0) for probe in document["probes"] for key in ("waiting_percent", "stolen_percent")),
                default=0)
    busy = f"\n\n**The machine was busy with other things**, up to {worst:.0f} % of a round." if worst >= 10 else ""
    failed = {entry["failed"] for entry in document["rounds"] if "failed" in entry}
    bad = "".join(f"\n\nA round failed: {reason}" for reason in sorted(failed))
    return "## Making connections\n" + note + busy + bad + "\n\n" + \
        table(["", "µs"], [[NAMES[key], with_spread(values(document, key))] for key in KEYS])
