"""The part of docs/PERFORMANCE.md about the network."""
from collections import Counter

from cases import number, size_name
from page import filled, table, with_spread
from wire_cases import (FLOOR, KERNEL, LATENCY_OPERATIONS, LEAST_BANDWIDTH, LEAST_RATE, MOST_LATENCY, RATE_DEPTH,
                        STOCK_BUFFER, TCP, UDP)
from wire_summary import BEYOND, MET, MISSED, OPEN, WireResults

BUFFERS = {0: "as granted", STOCK_BUFFER: f"{STOCK_BUFFER:,} B"}


def opening(document: dict) -> str:
    count = Counter(row["verdict"] for row in document["ratios"])
    settings = document["settings"]
    extent = "" if not (settings["quick"] or settings["only"]) else " **A quick or partial run: for orientation.**"
    where = "; ".join(f"*{name}* is {what}" for name, what in document["links"].items())
    return filled(f"""Measured by `bench/wire.py` on {document['machine']['date']}, from commit
        {document['machine']['verbena']}, {settings['rounds_complete']} rounds in {settings['seconds'] / 60:.0f} min:
        {where}. Ratios are taken within a round, bandwidth and latency being medians of three measurements in turns. Of
        {sum(count.values())} aims **{count[MET]}** are met in every round, {count[OPEN]} in some, **{count[MISSED]}** in none,
        and {count[BEYOND]} are beyond the sockets: the kernel's part by itself misses them.{extent}""")


def find(document: dict, **wanted) -> dict | None:
    return next((row for row in document["ratios"] if all(row.get(key) == value for key, value in wanted.items())),
                None)


def judged(ratio: dict | None) -> list[str]:
    return [with_spread(ratio), ratio["verdict"] if ratio else "-"]


def median(found: dict | None) -> str:
    return number(found["median"]) if found else "-"


def bandwidth(document: dict, results: WireResults) -> str:
    rows = []
    for link in results.links:
        for size in sorted({row["size"] for row in results.rows if row["measure"] == "bandwidth"}):
            for buffer, name in BUFFERS.items():
                for operation in ("write", "read"):
                    case = {"link": link, "measure": "bandwidth", "size": size}
                    ours = case | {"operation": operation, "buffer": buffer}
                    if results.value(**ours) is None:
                        continue
                    rows.append([link, f"{operation.upper()} {size_name(size)}", name, median(results.value(**ours)),
                                 *(median(results.value(**case, who=who)) for who in (FLOOR, KERNEL, TCP)),
                                 *judged(find(document, **ours))])
    if not rows:
        return ""
    note = filled(f"""One TCP stream (cubic) over the same link beside it; at least {LEAST_BANDWIDTH} of it is aimed at.
        The plain loop (`floor_peer.c`) does with UDP what no RoCEv2 in software can do without, and nothing else of an
        engine: a copy and then a CRC of each packet at each end, TCP having neither. Verbena sends both in one pass, so
        it may be faster. The kernel's part is the same loop without the copies and CRCs: what the sockets take for
        themselves, as this loop drives them.
        The receive buffer is what the kernel grants of 4 MiB, and as on a stock machine (`VERBENA_RECEIVE_BUFFER`); TCP's
        is the kernel's own business.""")
    return f"### Bandwidth\n{note}\n\n" + \
        table(["link", "", "receive buffer", "Verbena, MiB/s", "plain loop, MiB/s",
               "kernel's part, MiB/s", "TCP, MiB/s", "ratio", "aim"], rows)


def latency(document: dict, results: WireResults) -> str:
    rows = []
    for link in results.links:
        for operation, name in LATENCY_OPERATIONS.items():
            case = {"link": link, "measure": "latency"}
            ours = case | {"operation": operation}
            if results.value(**ours) is not None:
                rows.append([link, f"8 B {name}", median(results.value(**ours)),
                             *(median(results.value(**case, who=who)) for who in (KERNEL, UDP)),
                             *judged(find(document, **ours))])
    if not rows:
        return ""
    note = filled(f"""Half a round trip, both ends polling, beside two processes that pass 8 bytes to and fro by `sendto`
        and `recvfrom` on unconnected UDP sockets, spinning; at most {MOST_LATENCY} times that is aimed at. The kernel's
        part is that ping-pong by sockets as RoCEv2 needs them, with an acknowledgement beside each message
        (`udp_peer steered`). A target that
        waits in memory and polls its completion queue only for the end of its own requests (as ib_write_lat does) needs
        the helper thread, which shares its core here, until acknowledgements come with answers (adr/0020).""")
    return f"### Latency\n{note}\n\n" + \
        table(["link", "", "Verbena, µs", "kernel's part, µs", "UDP, µs", "ratio", "aim"], rows)


def rate(document: dict, results: WireResults) -> str:
    counts = sorted({row["queue_pairs"] for row in results.rows if row["measure"] == "rate"})
    rows = []
    for link in results.links:
        for operation in ("send", "write"):
            case = {"link": link, "measure": "rate", "operation": operation}
            values = [results.value(**case, queue_pairs=count) for count in counts]
            if any(values):
                rows.append([link, f"{operation.upper()} 8 B", *map(median, values),
                             *judged(find(document, **case, queue_pairs=counts[-1]))])
    if not rows:
        return ""
    note = filled(f"""Millions of 8 B messages a second, by the number of queue pairs in each of the two processes;
        {RATE_DEPTH} requests deep, every one signalled. With the most queue pairs at least {LEAST_RATE} of the rate with one is
        aimed at.""")
    header = ["link", "", *(f"{count:,} QP{'s' if count > 1 else ''}, M/s" for count in counts), "last to first", "aim"]
    return f"### Many queue pairs\n{note}\n\n" + table(header, rows)


def failed(document: dict, results: WireResults) -> str:
    rows = [[name, "everything", reason] for name, reason in document["failed"].items()]
    for reason, failures in results.failures().items():
        names = [f"{row['link']} {row['operation']} {row['measure']} {size_name(row['size'])}"
                 + (f" {row['queue_pairs']} QPs" if row["measure"] == "rate" else "")
                 + (" capped" if row["buffer"] else "") for row in failures]
        rows.append([failures[0]["who"], ", ".join(names), reason.replace("|", "\\|")])
    return "### What failed\n" + table(["", "cases", "reason"], rows) if rows else ""


def disturbance(document: dict) -> str:
    worst = max((probe.get(key, 0) for probe in document["probes"] for key in ("waiting_percent", "stolen_percent")),
                default=0)
    return filled(f"**The machine was busy with other things**, up to {worst:.0f} % of a round.") if worst >= 10 else ""


def text(document: dict) -> str:
    results = WireResults(document)
    parts = ["## On the wire\n" + opening(document), disturbance(document),
             "![ratios over the network](performance/wire.svg)", bandwidth(document, results),
             latency(document, results), rate(document, results), failed(document, results)]
    return "\n\n".join(part for part in parts if part)


def in_short(document: dict) -> list[str]:
    """A line a ratio, for the terminal."""
    lines = []
    for row in document["ratios"]:
        beside = {"bandwidth": "of TCP", "latency": "times UDP"}.get(row["measure"], "of 1 QP")
        what = f"{row['operation']} {row['measure']}"
        detail = size_name(row["size"]) if "size" in row else f"{row['queue_pairs']} QPs" if "queue_pairs" in row else "8 B"
        capped = ", capped buffer" if row.get("buffer") else ""
        lines.append(f"{row['link']:<10} {what:<20} {detail + capped:<24} {with_spread(row)} {beside} "
                     f"(aim {row['aim']}: {row['verdict']})")
    return lines
