"""The part of docs/PERFORMANCE.md about the kernel's Soft-RoCE in a guest, and its arithmetic."""
from cases import UNITS, size_name
from guest_cases import OURS, RXE, UDP, UDP_BESIDE_RXE
from page import BUSY_PERCENT, filled, table, with_spread
from wire_cases import KERNEL, METRICS
from wire_summary import WireResults, verdict

LEAST_OF_RXE = 3  # bandwidth and rate
MOST_OF_UDP = 1.5  # latency
CLOCK_TOLERANCE = 0.02


def ratio_rows(document: dict) -> list[dict]:
    """Verbena's figure by rxe's, and for latency by UDP's, round by round."""
    results, rows = WireResults(document | {"links": {}}), []
    for row in document["results"]:
        if row["who"] != OURS:
            continue
        case = {key: row[key] for key in ("measure", "operation", "size")}
        latency = row["measure"] == "latency"
        found = results.ratio(case | {"who": OURS}, case | {"who": RXE})
        if found:
            judged = {} if latency else {"aim": LEAST_OF_RXE, "verdict": verdict(found, LEAST_OF_RXE, False)}
            rows.append(case | {"against": RXE} | found | judged)
        found = results.ratio(case | {"who": OURS}, {"measure": "latency", "who": UDP}) if latency else None
        if found:
            rows.append(case | {"against": UDP, "aim": MOST_OF_UDP} | found
                        | {"verdict": verdict(found, MOST_OF_UDP, True)})
    return rows


def case_name(row: dict) -> str:
    return f"{row['operation'].upper()} {size_name(row['size'])} {row['measure']}"


def aim_of(row: dict) -> str:
    if "aim" not in row:
        return "none"
    return f"at {'most' if row['against'] == UDP else 'least'} {row['aim']}: {row['verdict']}"


def in_short(document: dict) -> list[str]:
    """A line a ratio, for the terminal."""
    return [f"guest: {case_name(row):<25} {with_spread(row)} times {row['against']}'s (aim {aim_of(row)})"
            for row in document["ratios"]] or ["guest: not a single ratio could be taken"]


def figures(document: dict) -> str:
    """A row for each comparison: what was measured of both sides, the ratio, the aim."""
    results, rows = WireResults(document | {"links": {}}), []
    for row in document["ratios"]:
        case = {key: row[key] for key in ("measure", "operation", "size")}
        theirs = {"measure": "latency", "who": UDP} if row["against"] == UDP else case | {"who": RXE}
        rows.append([f"{case_name(row)}, {UNITS[METRICS[row['measure']]]}", with_spread(results.value(**case, who=OURS)),
                     f"{row['against']}: {with_spread(results.value(**theirs))}", with_spread(row), aim_of(row)])
    return table(["", "Verbena", "beside it", "ratio", "aim"], rows)


def failed(document: dict) -> str:
    """Every failed round, also of cases that gave figures in others."""
    rows = [[row["who"], case_name(row), f"{len(reasons)} of {len(row['rounds'])}", reasons[0].replace("|", "\\|")]
            for row in document["results"]
            if (reasons := [entry["failed"] for entry in row["rounds"] if "failed" in entry])]
    return table(["failed", "case", "rounds", "first reason"], rows) if rows else ""


def disturbance(document: dict) -> str:
    settings, words = document["settings"], []
    worst = max(settings["waiting_percent"], settings["stolen_percent"])
    if worst >= BUSY_PERCENT:
        words.append(f"**The machine was busy with other things** (the emulator's two processors among them), "
                     f"{worst:.0f} % of the time: take wide spreads for what they are.")
    if abs(settings["clock_ratio"] - 1) > CLOCK_TOLERANCE:
        words.append(f"**The guest's clock went at {settings['clock_ratio']:.2f} of the host's**: ratios hold, figures "
                     "don't.")
    return filled(" ".join(words)) if words else ""


def text(document: dict) -> str:
    settings = document["settings"]
    results = WireResults(document | {"links": {}})
    links = [with_spread(results.value(measure="latency", who=who)) for who in (UDP, KERNEL, UDP_BESIDE_RXE)]
    note = filled(f"""Measured by `bench/guest.py` on {document['machine']['date']}, from commit
        {document['machine']['verbena']}: perftest on the kernel's rdma_rxe and on Verbena (`VERBENA_PATH=wire`), both in
        one guest of two processors with kernel {settings['guest_kernel']}, {settings['rounds_complete']} interleaved
        rounds in one boot. The guest is emulated (QEMU, no KVM): its figures say nothing about a real machine, only
        their ratios, taken within rounds. Each end is pinned to a processor; rxe works only in the first network
        namespace, so each has a veth pair of its own, both with MTU {settings['mtu']}. A raw UDP ping-pong of 8 B takes
        {links[0]} µs on Verbena's, {links[1]} µs by sockets as RoCEv2 needs them (`udp_peer steered`), and {links[2]} µs
        on rxe's.""")
    parts = ["## Beside the kernel's Soft-RoCE\n" + note, disturbance(document), figures(document), failed(document)]
    return "\n\n".join(part for part in parts if part)
