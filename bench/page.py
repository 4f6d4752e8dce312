"""The text of docs/PERFORMANCE.md."""
import textwrap
from collections import Counter

from cases import BANDWIDTH_MIB_S, LATENCY_US, OPERATIONS, RATE_MOPS, UNITS, number, size_name
from summary import LEVEL, LOSES, WINS, Results

LIMIT = "memcpy"  # not a rival: it moves nothing between processes, so it isn't counted as won or lost
BUSY_PERCENT = 10
TITLES = {LATENCY_US: "Latency", BANDWIDTH_MIB_S: "Throughput"}


def comparisons() -> list[tuple[str, str, str]]:
    return [(operation, TITLES[metric].lower(), metric) for operation in OPERATIONS for metric in TITLES]


def ranges(sizes: list[int], all_sizes: list[int]) -> str:
    """"8 B to 4 KiB, 1 MiB": neighbours among all measured sizes are joined."""
    parts: list[list[int]] = []
    for size in sizes:
        if parts and all_sizes.index(size) == all_sizes.index(parts[-1][-1]) + 1:
            parts[-1].append(size)
        else:
            parts.append([size])
    return ", ".join(size_name(part[0]) if len(part) == 1 else f"{size_name(part[0])} to {size_name(part[-1])}"
                     for part in parts)


def verdicts(results: Results, peer: str, operation: str, metric: str) -> str:
    by_verdict: dict[str, list[int]] = {}
    for size in results.sizes:
        ratio = results.ratio(peer, operation, metric, size)
        if ratio:
            by_verdict.setdefault(ratio["verdict"], []).append(size)
    return "; ".join(f"{word} {ranges(by_verdict[word], results.sizes)}"
                     for word in (WINS, LEVEL, LOSES) if word in by_verdict)


def tally(document: dict) -> Counter:
    return Counter(row["verdict"] for row in document["ratios"] if row["against"] != LIMIT)


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def filled(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 118, break_on_hyphens=False, break_long_words=False)


def with_spread(found: dict | None) -> str:
    if not found:
        return "-"
    return f"{number(found['median'])} ({number(found['min'])} to {number(found['max'])})"


def has_answer(results: Results, peer: str, operation: str, metric: str) -> bool:
    return any(results.value(peer, operation, metric, size) for size in results.sizes)


def opening(document: dict) -> str:
    machine, settings = document["machine"], document["settings"]
    count, ours = tally(document), document["ours"]
    place = "in a network namespace of its own" if settings["own_network_namespace"] else "on the host's loopback"
    where = f"{machine['cpu']}{' (a virtual machine)' if machine['virtual'] else ''}, kernel {machine['kernel']}"
    extent = "" if not (settings["quick"] or settings["only"]) else " **A quick or partial run: for orientation.**"
    if count:
        result = (f"Of {sum(count.values())} comparisons with rivals (operation, metric, size, peer) Verbena wins "
                  f"**{count[WINS]}**, {count[LEVEL]} are level within noise, and it loses **{count[LOSES]}**. A win "
                  "or a loss is counted only where every round agrees.")
    else:
        result = f"**No case of {ours} itself gave a figure**, so there are no ratios; see *What failed*."
    return filled(f"""`make bench` wrote this page on {machine['date']}, from commit {machine['verbena']}: {where};
        perftest {machine['perftest']}, UCX {machine['ucx']}. Two processes on two cores, {place},
        {settings['rounds_complete']} interleaved rounds in {settings['seconds'] / 60:.0f} min.{extent}""") + \
        "\n\n" + filled(result)


def disturbance(document: dict) -> str:
    """Said at the top, since it spoils averages (all bandwidths) before it spoils medians."""
    worst = max((probe.get(key, 0) for probe in document["probes"] for key in ("waiting_percent", "stolen_percent")),
                default=0)
    if worst < BUSY_PERCENT:
        return ""
    return filled(f"**The machine was busy with other things**, up to {worst:.0f} % of a round: take wide spreads "
                  "below for what they are.")


def winners(results: Results) -> str:
    rows = []
    for operation, name, metric in comparisons():
        for peer in results.others:
            found = verdicts(results, peer, operation, metric) if peer != LIMIT else ""
            if found:
                rows.append([f"{operation.upper()} {name}", peer, found])
    return "## What wins, what loses\n" + table(["", "against", "Verbena"], rows) if rows else ""


def ratio_section(results: Results, metric: str) -> str:
    """Verbena's own figure, then how many times faster it is than each peer."""
    parts = []
    shown = (LATENCY_US,) if metric == LATENCY_US else (BANDWIDTH_MIB_S, RATE_MOPS)
    for operation in OPERATIONS:
        if not has_answer(results, results.ours, operation, metric):
            continue
        others = [peer for peer in results.others if has_answer(results, peer, operation, metric)]
        header = [operation.upper(), *(f"Verbena, {UNITS[name]}" for name in shown),
                  *(f"against {peer}" for peer in others)]
        rows = []
        for size in results.sizes:
            ours = [results.value(results.ours, operation, name, size) for name in shown]
            ratios = [with_spread(results.ratio(peer, operation, metric, size)) for peer in others]
            rows.append([size_name(size)] + [number(value["median"]) if value else "-" for value in ours] + ratios)
        parts.append(table(header, rows))
    if not parts:
        return ""
    return f"## {TITLES[metric]}, as ratios\nTimes faster than the peer; above 1 Verbena is faster. " \
           "Median of the rounds' ratios (lowest to highest).\n\n" + "\n\n".join(parts)


def figures(results: Results) -> str:
    parts = []
    for metric in (LATENCY_US, BANDWIDTH_MIB_S, RATE_MOPS):
        for operation in OPERATIONS:
            able = [peer for peer in [results.ours, *results.others] if has_answer(results, peer, operation, metric)]
            rows = [[size_name(size)] + [with_spread(results.value(peer, operation, metric, size)) for peer in able]
                    for size in results.sizes]
            if able:
                parts.append(table([f"{operation.upper()}, {UNITS[metric]}", *able], rows))
    return "## All figures\n<details><summary>Median (lowest to highest) of the rounds, everybody</summary>\n\n" + \
        "\n\n".join(parts) + "\n\n</details>"


def failed(results: Results) -> str:
    rows = []
    for (peer, reason), cases in sorted(results.failures().items()):
        by_test: dict[str, list[int]] = {}
        for operation, kind, size in cases:
            by_test.setdefault(f"{operation}_{kind}", []).append(size)
        what = "; ".join(f"{test} {ranges(sizes, results.sizes)}" for test, sizes in by_test.items())
        rows.append([peer, what, reason.replace("|", "\\|")])
    return "## What failed\n" + (table(["peer", "cases", "reason"], rows) if rows else "Nothing.")


def machine_section(document: dict) -> str:
    keys = [("hop_ns", "cache-line hop, ns"), ("hop_min_ns", "lowest"), ("hop_p90_ns", "90th percentile"),
            ("memcpy_4kib_mib_s", "memcpy 4 KiB, MiB/s"), ("memcpy_1mib_mib_s", "1 MiB"),
            ("memcpy_16mib_mib_s", "16 MiB"), ("waiting_percent", "waiting, %"),
            ("stolen_percent", "stolen, %")]
    rows = [[probe["when"]] + [number(probe[key]) if key in probe else "-" for key, _ in keys]
            for probe in document["probes"]]
    note = filled("""The two cores of a virtual machine move about on the host: the one-way hop of a cache line between
        them changes severalfold, and all small-message figures with it. So compare ratios, not runs. *Waiting* is the
        part of a round's time in which something runnable had no core, because somebody else worked on this machine;
        *stolen* is core time that the host gave to others.""")
    return "## The machine meanwhile\n" + note + "\n\n" + table(["probe", *(name for _, name in keys)], rows)


def method(document: dict) -> str:
    points = [f"**{name}**: {peer['what']}." for name, peer in document["peers"].items()]
    points += [
        """Each round measures every peer once, case by case, next to each other in time. Ratios are taken within a
        round, then the median over rounds.""",
        """Server and client are pinned to a core each and spin. Nothing of a peer is tuned but what is named here.""",
        """Latency is the median of one run's iterations: half a round trip for SEND and WRITE (perftest's t_typical,
        UCX's 50th percentile), the whole for READ. perftest rounds to 0.01 µs.""",
        """Bandwidth is the average of one run, in MiB/s: 2^20 bytes, which perftest and UCX print as MB. Message rate
        is that of the same run, in millions a second, so its ratios are those of bandwidth.""",
        """Queue depths are each tool's default (perftest 128 sends in flight).""",
        """UCX's put on heap memory (ucx) is emulated by messages; its kernel copy (ucx-cma) and its own shared memory
        (ucx-shm) are beside it, so that the comparison isn't only with its slow way. A get of heap memory isn't in
        the ucx column: ucx_perftest's server answers it once a millisecond, which is the test's doing. Heap
        buffers are asked for (UCX_ALLOC_PRIO, UCX_CMA_ALLOC) and filled (MALLOC_PERTURB_): ucx_perftest sends them
        unwritten, and the kernel would copy one zero page over and over.""",
        """memcpy stays in one core's caches and crosses to nobody: a yardstick, not counted among wins and losses.""",
    ]
    return "## How it was measured\n" + \
        "\n".join(textwrap.indent(filled(point), "  ").replace("  ", "- ", 1) for point in points)


def text(document: dict, results: Results, wire: str) -> str:
    pictures = "\n".join(f"![{name} by message size](performance/{name}.svg)"
                         for name in ("latency", "bandwidth", "rate"))
    data = filled("""The data: [performance/results.json](performance/results.json). Again: `make bench` (at most 20
        minutes), or `make bench BENCH_ARGS=--quick`, which leaves this page alone.""")
    parts = ["# Performance\n" + opening(document), disturbance(document), winners(results),
             "## Plots\n" + pictures + "\n\n" + data, wire, ratio_section(results, LATENCY_US),
             ratio_section(results, BANDWIDTH_MIB_S), machine_section(document), method(document), failed(results),
             figures(results)]
    return "\n\n".join(part for part in parts if part) + "\n"
