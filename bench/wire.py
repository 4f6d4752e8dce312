#!/usr/bin/python3 -B
"""Measures what goes over the network: WRITE and READ bandwidth beside one TCP stream, small messages beside a raw UDP
ping-pong, and the message rate with many queue pairs. On loopback, and between two network namespaces joined by
veth: that needs root, or a kernel that lets anybody make user namespaces; where neither is so, it says so.

One line a measurement; the figures go to a JSON file, from which report.py makes its part of the page."""
import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import machine
import wire_cases
from cases import UNITS, Bench, PeerFailed, number, size_name
from peers import verbena
from wire_cases import LINKS, METRICS, Ends, Link, WireCase
from wire_summary import WireResults, ratio_rows

ROOT = Path(__file__).resolve().parent.parent


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round, loopback and one veth: less than a minute")
    parser.add_argument("--only", default="", metavar="REGEX",
                        help="of wire/LINK/OPERATION_MEASURE/SIZE/WHO: 'wire/lo/.*_bandwidth'")
    parser.add_argument("--json", type=Path, default=ROOT / "build/bench/wire.json", metavar="OUT")
    parser.add_argument("--repeat", type=int, metavar="N", help="rounds (default 3; with --quick 1)")
    parser.add_argument("--bin", type=Path, default=ROOT / "build/bin/verbena", help="the verbena command")
    parser.add_argument("--cores", default="", metavar="A,B", help="server's and client's (default: the first two)")
    parser.add_argument("--list", action="store_true", help="only say what would be measured")
    parser.add_argument("--inside", default="", help=argparse.SUPPRESS)  # a link's name: in a namespace made for it
    options = parser.parse_args()
    options.repeat = max(1, options.repeat or (1 if options.quick else 3))
    # For each link; run.py has the rest of the 20 minutes, or 3, that are promised.
    options.deadline_seconds = 30 if options.quick else 190
    return options


def wanted(link: Link, only: str) -> list[WireCase]:
    return [case for case in wire_cases.plan() if re.search(only, case.name(link.name))]


def shown(case: WireCase, entry: dict) -> str:
    what = f"{case.operation} {case.measure}" + (f", {case.queue_pairs} QPs" if case.measure == "rate" else "") + \
        (", capped buffer" if case.buffer else "")
    metric = METRICS[case.measure]
    value = f"{number(entry[metric])} {UNITS[metric]}" if metric in entry else f"FAILED: {entry['failed']}"
    return f"{size_name(case.size):>7} {what:<31} {case.who:<8} {value}"


def measure(case: WireCase, ends: Ends, bench: Bench) -> dict:
    try:
        return wire_cases.run(case, ends, bench)
    except PeerFailed as failure:
        return {"failed": str(failure)}


def passes(block: list[WireCase], quick: bool) -> int:
    """How often a round measures what is compared with each other, in turns, to take each one's median: bursts of
    other work on the machine last about as long as a measurement. Rates take more messages, and long enough."""
    return 1 if quick or block[0].measure == "rate" else 3


def median_of(entries: list[dict], metric: str) -> dict:
    failed = [entry for entry in entries if metric not in entry]
    if failed:
        return failed[0]
    return {metric: statistics.median(entry[metric] for entry in entries)} | \
        ({"samples": [entry[metric] for entry in entries]} if len(entries) > 1 else {})


def measure_block(block: list[WireCase], ends: Ends, bench: Bench, quick: bool) -> dict[WireCase, dict]:
    turns = [[measure(case, ends, bench) for case in block] for _ in range(passes(block, quick))]
    return {case: median_of([turn[i] for turn in turns], METRICS[case.measure]) for i, case in enumerate(block)}


def rounds(link: Link, plan: list[WireCase], options, bench: Bench) -> dict:
    """All rounds on one link; we are in the namespace that is to be its first end."""
    ends = wire_cases.make_ends(link)
    start = time.monotonic()
    found: dict[WireCase, list[dict]] = {case: [] for case in plan}
    prober = machine.Prober(bench)
    probes, complete = [prober.probe("before")], 0
    verbena.prepare(bench)
    for turn in range(1, options.repeat + 1):
        for _, block in itertools.groupby(plan, lambda case: (case.measure, case.size)):
            if time.monotonic() - start > options.deadline_seconds:
                print(f"wire: time is up on {link.name}; the rest is left out", flush=True)
                break
            for case, entry in measure_block(list(block), ends, bench, options.quick).items():
                found[case].append({"round": turn} | entry)
                print(f"{time.monotonic() - start:6.0f} s  {turn}/{options.repeat} {link.name:<10} "
                      f"{shown(case, entry)}", flush=True)
        else:
            complete = turn
            probes.append(prober.probe(f"after round {turn}"))
            continue
        break
    return {"probes": [{"link": link.name} | probe for probe in probes], "rounds_complete": complete,
            "results": [case.row(link.name) | {"rounds": entries} for case, entries in found.items() if entries]}


def inside(options) -> int:
    link = next(link for link in LINKS if link.name == options.inside)
    with tempfile.TemporaryDirectory(prefix="verbena-wire-") as helpers:
        bench = Bench(verbena=options.bin.absolute(), helpers=Path(helpers), cores=machine.two_cores(options.cores),
                      timeout_seconds=20, own_network=True)
        machine.compile_helpers(bench.helpers)
        found = rounds(link, wanted(link, options.only), options, bench)
    options.json.write_text(json.dumps(found))
    return 0


def own_namespaces() -> list[str]:
    """Network, mounts (for /sys) and pids: what is left behind, agents too, ends with them. Empty: not allowed here."""
    user = [] if os.geteuid() == 0 else ["-r"]
    command = ["unshare", *user, "-n", "-m", "-p", "-f", "--kill-child", "--mount-proc"]
    try:
        subprocess.run([*command, "ip", "link", "set", "lo", "up"], check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return []
    return command


def on_link(link: Link, options, namespaces: list[str]) -> dict:
    """In a child, since a namespace is entered once and for all."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        again = [sys.executable, "-B", str(Path(__file__).resolve()), *sys.argv[1:], "--json", file.name, "--inside",
                 link.name]
        done = subprocess.run([*namespaces, *again])
        text = Path(file.name).read_text()
    if done.returncode != 0 or not text:
        return {"failed": f"the run on {link.name} ended with {done.returncode}"}
    return json.loads(text)


def main() -> int:
    options = arguments()
    if options.inside:
        return inside(options)
    links = [link for link in LINKS if wanted(link, options.only)]
    if options.quick:
        links = [link for link in links if link.mtu != 9000]
    if options.list:
        for link in links:
            print(*(case.name(link.name) for case in wanted(link, options.only)), sep="\n")
    if options.list or not links:
        return 0
    namespaces = own_namespaces()
    if not namespaces:
        print("wire: neither root nor user namespaces: the wire can't be measured here", flush=True)
        return 0
    start, found = time.monotonic(), {link.name: on_link(link, options, namespaces) for link in links}
    document = {
        "format": 1,
        "machine": machine.describe(),
        "settings": {"quick": options.quick, "only": options.only, "rounds_asked": options.repeat,
                     "rounds_complete": min(part.get("rounds_complete", 0) for part in found.values()),
                     "cores": machine.two_cores(options.cores), "seconds": round(time.monotonic() - start)},
        "links": {link.name: link.what for link in links},
        "failed": {name: part["failed"] for name, part in found.items() if "failed" in part},
        "probes": [probe for part in found.values() for probe in part.get("probes", [])],
        "results": [row for part in found.values() for row in part.get("results", [])],
    }
    document["ratios"] = ratio_rows(WireResults(document))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    print(f"wire: figures are in {os.path.relpath(options.json)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
