#!/usr/bin/python3 -B
"""Measures latency, bandwidth and message rate of SEND, WRITE and READ over Verbena, and of its peers beside it.

Rounds are interleaved: each measures every peer once, case by case, so that noise hits all alike. Everything runs on
loopback, in a network namespace of its own where that is allowed. One line a measurement; the figures go to a JSON
file, from which report.py makes the page."""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import machine
import peers
from cases import (ALL_SIZES, BANDWIDTH_MIB_S, KINDS, LATENCY_US, OPERATIONS, QUICK_SIZES, RATE_MOPS, UNITS, Bench,
                   Case, Peer, PeerFailed, PeerTimedOut, number, size_name)
from summary import Results, ratio_rows

ROOT = Path(__file__).resolve().parent.parent
TIMEOUTS_BORNE = 3  # for each peer, operation and kind; then the rest of it is left out
Cell = tuple[Peer, Case]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer sizes and rounds: less than 3 minutes")
    parser.add_argument("--only", default="", metavar="REGEX", help="of OPERATION_KIND/SIZE/PEER: 'write_lat/8 B/'")
    parser.add_argument("--json", type=Path, default=ROOT / "build/bench/results.json", metavar="OUT")
    parser.add_argument("--repeat", type=int, metavar="N", help="rounds (default 5; with --quick 2)")
    parser.add_argument("--bin", type=Path, default=ROOT / "build/bin/verbena", help="the verbena command")
    parser.add_argument("--cores", default="", metavar="A,B", help="server's and client's (default: the first two)")
    parser.add_argument("--list", action="store_true", help="only say what would be measured")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.repeat = max(1, options.repeat or (2 if options.quick else 5))
    # The limits promised are 20 and 3 minutes; wire.py, and what comes after the last measurement, need some of it.
    options.deadline_seconds = 110 if options.quick else 780
    return options


def enter_own_network() -> None:
    """Starts this program again in a namespace with only loopback, and with no rights gained. Returns if that isn't
    allowed here."""
    namespace = ["unshare", "-n"]
    if os.geteuid() != 0:
        namespace = ["unshare", "-U", "-n", "--map-current-user", "--keep-caps"]
    try:
        subprocess.run([*namespace, "sh", "-c", "ip link set lo up"], check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        print("bench: no network namespace can be made; using this host's loopback", flush=True)
        return
    again = [sys.executable, "-B", str(Path(__file__).resolve()), *sys.argv[1:], "--inside"]
    os.execvp(namespace[0], [*namespace, "sh", "-c", 'ip link set lo up && exec "$@"', "sh",
                             "setpriv", "--inh-caps=-all", "--ambient-caps=-all", *again])


def cells(sizes: tuple[int, ...], only: str) -> list[Cell]:
    """One round, in order: all peers of a size and kind next to each other in time. What stands beside several
    operations (TCP's stream, memcpy) comes once."""
    wanted = re.compile(only)
    found: dict[tuple[str, Case], Cell] = {}
    for size in sizes:
        for kind in KINDS:
            for operation in OPERATIONS:
                for peer in peers.ALL:
                    by = peer.answers.get((operation, kind))
                    if by and wanted.search(f"{operation}_{kind}/{size_name(size)}/{peer.name}"):
                        case = Case(*by, size)
                        found.setdefault((peer.name, case), (peer, case))
    return list(found.values())


class Run:
    def __init__(self, bench: Bench, plan: list[Cell], repeat: int, deadline_seconds: float):
        self.bench, self.plan, self.repeat = bench, plan, repeat
        self.start = time.monotonic()
        self.deadline = self.start + deadline_seconds
        self.rounds: dict[tuple[str, Case], list[dict]] = {(peer.name, case): [] for peer, case in plan}
        self.timeouts: dict[tuple[str, str, str], int] = {}
        self.rounds_complete = 0

    def measure(self, peer: Peer, case: Case) -> dict:
        """Whatever goes wrong with one case is its result; the run goes on."""
        patience = (peer.name, case.operation, case.kind)
        if self.timeouts.get(patience, 0) >= TIMEOUTS_BORNE:
            return {"failed": f"left out after {TIMEOUTS_BORNE} cases that didn't end"}
        try:
            return peer.run(case, self.bench)
        except PeerTimedOut as failure:
            self.timeouts[patience] = self.timeouts.get(patience, 0) + 1
            return {"failed": str(failure)}
        except PeerFailed as failure:
            return {"failed": str(failure)}

    def one_round(self, number: int) -> bool:
        for index, (peer, case) in enumerate(self.plan, 1):
            if time.monotonic() > self.deadline:
                print(f"bench: time is up; the rest of round {number} and later ones are left out", flush=True)
                return False
            entry = self.measure(peer, case)
            self.rounds[peer.name, case].append({"round": number} | entry)
            took = time.monotonic() - self.start
            what = case.operation if case.operation == case.kind else f"{case.operation} {case.kind}"
            print(f"{took:6.0f} s  {number}/{self.repeat} {index:3}/{len(self.plan)}  {size_name(case.size):>7} "
                  f"{what:<9} {peer.name:<8} {shown(entry)}", flush=True)
        self.rounds_complete = number
        return True

    def all_rounds(self) -> list[dict]:
        prober = machine.Prober(self.bench)
        probes = [prober.probe("before")]
        for number in range(1, self.repeat + 1):
            goes_on = self.one_round(number)
            probes.append(prober.probe(f"after round {number}"))
            if not goes_on:
                break
        return probes


def shown(entry: dict) -> str:
    if "failed" in entry:
        return "failed: " + entry["failed"]
    return ", ".join(f"{number(entry[name])} {UNITS[name]}"
                     for name in (LATENCY_US, BANDWIDTH_MIB_S, RATE_MOPS) if name in entry)


def document(run: Run, options: argparse.Namespace, probes: list[dict]) -> dict:
    found = {
        "format": 1,
        "units": UNITS,
        "machine": machine.describe(),
        "settings": {"quick": options.quick, "only": options.only, "rounds_asked": run.repeat,
                     "rounds_complete": run.rounds_complete, "cores": run.bench.cores,
                     "own_network_namespace": run.bench.own_network, "seconds": round(time.monotonic() - run.start)},
        "probes": probes,
        "ours": peers.OURS.name,
        "peers": {peer.name: {"what": peer.what, "answers": [{"for": asked, "by": by}
                                                            for asked, by in peer.answers.items()]}
                  for peer in peers.ALL},
        "results": [{"peer": name, "operation": case.operation, "kind": case.kind, "size": case.size, "rounds": rounds}
                    for (name, case), rounds in run.rounds.items()],
    }
    found = json.loads(json.dumps(found))  # as a reader of the file will see it
    return found | {"ratios": ratio_rows(Results(found))}


def main() -> int:
    options = arguments()
    plan = cells(QUICK_SIZES if options.quick else ALL_SIZES, options.only)
    if options.list:
        for peer, case in plan:
            print(f"{size_name(case.size):>7} {case.operation}_{case.kind} {peer.name}")
    if options.list or not plan:
        print(f"bench: {len(plan)} measurements a round")
        return 0 if plan else 2
    if not options.inside:
        enter_own_network()
    with tempfile.TemporaryDirectory(prefix="verbena-bench-") as helpers:
        bench = Bench(verbena=options.bin.absolute(), helpers=Path(helpers), cores=machine.two_cores(options.cores),
                      timeout_seconds=5 if options.quick else 10, own_network=options.inside)
        machine.compile_helpers(bench.helpers)
        used = {peer.name: peer for peer, _ in plan}.values()
        in_order(used, bench, "prepare")
        run = Run(bench, plan, options.repeat, options.deadline_seconds)
        try:
            probes = run.all_rounds()
        finally:
            in_order(used, bench, "finish")
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document(run, options, probes), indent=1, ensure_ascii=False) + "\n")
    print(f"bench: {run.rounds_complete} of {run.repeat} rounds; figures are in {os.path.relpath(options.json)}")
    return 0


def in_order(used, bench: Bench, step: str) -> None:
    for peer in used:
        try:
            getattr(peer, step)(bench)
        except PeerFailed as failure:
            print(f"bench: {peer.name}, {step}: {failure}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
