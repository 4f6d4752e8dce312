#!/usr/bin/python3 -B
"""Measures what many objects in one process cost: memory of an idle queue pair, and whether one gets slower beside
10,000 queue pairs, 10,000 memory regions and 1,000 completion queues.

One line a round; the figures go to a JSON file, from which report.py makes its part of the page."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import machine
from cases import Bench, PeerFailed
from objects_page import KEYS, in_short, ratio_row, small_enough
from peers import verbena
from processes import environment, numbers, run_alone
from wire import own_namespaces

ROOT = Path(__file__).resolve().parent.parent
COUNTS = {"queue pairs": 10_000, "memory regions": 10_000, "completion queues": 1_000}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--only", default="", metavar="REGEX", help="as run.py's: anything but '' measures nothing here")
    parser.add_argument("--json", type=Path, default=ROOT / "build/bench/objects.json", metavar="OUT")
    parser.add_argument("--repeat", type=int, metavar="N", help="rounds (default 3; with --quick 1)")
    parser.add_argument("--bin", type=Path, default=ROOT / "build/bin/verbena", help="the verbena command")
    parser.add_argument("--cores", default="", metavar="A,B", help="the first is used (default: the first two)")
    parser.add_argument("--list", action="store_true", help="only say what would be measured")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # in a namespace made for it
    options = parser.parse_args()
    options.repeat = max(1, options.repeat or (1 if options.quick else 3))
    options.turns = 3 if options.quick else 7  # within a round, alone and beside the others in turn
    return options


def measure(bench: Bench, turns: int) -> dict:
    program = [bench.verbena, "run", "--", bench.helpers / "objects_peer", turns, *COUNTS.values()]
    try:
        text = run_alone(program, bench.cores[0], bench.timeout_seconds, environment(verbena.ENVIRONMENT))
        return numbers(text, KEYS)
    except PeerFailed as failure:
        return {"failed": str(failure)}


def inside(options) -> int:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="verbena-objects-") as helpers:
        bench = Bench(verbena=options.bin.absolute(), helpers=Path(helpers), cores=machine.two_cores(options.cores),
                      timeout_seconds=200, own_network=True)
        machine.compile_helpers(bench.helpers)
        verbena.prepare(bench)
        rounds = []
        for turn in range(1, options.repeat + 1):
            rounds.append({"round": turn} | measure(bench, options.turns))
            print(f"{time.monotonic() - start:6.0f} s  {turn}/{options.repeat} objects   "
                  + ", ".join(f"{key} {value}" for key, value in rounds[-1].items() if key != "round"), flush=True)
    document = {
        "format": 1,
        "machine": machine.describe(),
        "settings": {"quick": options.quick, "only": "", "rounds_asked": options.repeat,
                     "objects": ", ".join(f"{count:,} {name}" for name, count in COUNTS.items()),
                     "rounds_complete": sum("failed" not in entry for entry in rounds),
                     "seconds": round(time.monotonic() - start)},
        "rounds": rounds,
    }
    document["ratio"] = ratio_row(document)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    print(in_short(document))
    # Time depends on what else the machine does; that it works, and the memory, don't.
    return 0 if document["ratio"] and small_enough(document) else 1


def main() -> int:
    options = arguments()
    if options.inside:
        return inside(options)
    if options.only:
        return 0
    if options.list:
        print("many objects in one process")
        return 0
    namespaces = own_namespaces()
    if not namespaces:
        print("objects: neither root nor user namespaces: objects can't be measured here", flush=True)
        return 0
    done = subprocess.run([*namespaces, sys.executable, "-B", str(Path(__file__).resolve()), *sys.argv[1:], "--inside"])
    if done.returncode == 0:
        print(f"objects: figures are in {os.path.relpath(options.json)}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
