#!/usr/bin/python3 -B
"""Measures how long a connection takes to be made: RDMA CM's beside TCP's, on loopback, in turn within one process.

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
from connect_page import KEYS, in_short, ratio_row
from peers import verbena
from processes import environment, numbers, run_pair
from wire import own_namespaces

ROOT = Path(__file__).resolve().parent.parent


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer connections: some seconds")
    parser.add_argument("--only", default="", metavar="REGEX", help="as run.py's: anything but '' measures nothing here")
    parser.add_argument("--json", type=Path, default=ROOT / "build/bench/connect.json", metavar="OUT")
    parser.add_argument("--repeat", type=int, metavar="N", help="rounds (default 5; with --quick 2)")
    parser.add_argument("--bin", type=Path, default=ROOT / "build/bin/verbena", help="the verbena command")
    parser.add_argument("--cores", default="", metavar="A,B", help="server's and client's (default: the first two)")
    parser.add_argument("--list", action="store_true", help="only say what would be measured")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # in a namespace made for it
    options = parser.parse_args()
    options.repeat = max(1, options.repeat or (2 if options.quick else 5))
    options.connections = 100 if options.quick else 500
    return options


def measure(bench: Bench, connections: int) -> dict:
    port, program = bench.port(), [bench.verbena, "run", "--", bench.helpers / "connect_peer"]
    try:
        text = run_pair([*program, "serve", port, "127.0.0.1"], [*program, "ask", port, connections, "127.0.0.1"], port,
                        bench.cores, bench.timeout_seconds, environment(verbena.ENVIRONMENT))
        return numbers(text, KEYS)
    except PeerFailed as failure:
        return {"failed": str(failure)}


def inside(options) -> int:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="verbena-connect-") as helpers:
        bench = Bench(verbena=options.bin.absolute(), helpers=Path(helpers), cores=machine.two_cores(options.cores),
                      timeout_seconds=20, own_network=True)
        machine.compile_helpers(bench.helpers)
        verbena.prepare(bench)
        prober = machine.Prober(bench)
        rounds, probes = [], [prober.probe("before")]
        for turn in range(1, options.repeat + 1):
            rounds.append({"round": turn} | measure(bench, options.connections))
            print(f"{time.monotonic() - start:6.0f} s  {turn}/{options.repeat} connect   "
                  + ", ".join(f"{key} {value}" for key, value in rounds[-1].items() if key != "round"), flush=True)
            probes.append(prober.probe(f"after round {turn}"))
    complete = sum("failed" not in entry for entry in rounds)
    document = {
        "format": 1,
        "machine": machine.describe(),
        "settings": {"quick": options.quick, "only": "", "connections": options.connections,
                     "rounds_asked": options.repeat, "rounds_complete": complete, "cores": bench.cores,
                     "seconds": round(time.monotonic() - start)},
        "probes": probes,
        "rounds": rounds,
    }
    document["ratio"] = ratio_row(document)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    print(in_short(document))
    return 0


def main() -> int:
    options = arguments()
    if options.inside:
        return inside(options)
    if options.only:
        return 0
    if options.list:
        print("connections of RDMA CM and TCP")
        return 0
    namespaces = own_namespaces()
    if not namespaces:
        print("connect: neither root nor user namespaces: connections can't be measured here", flush=True)
        return 0
    done = subprocess.run([*namespaces, sys.executable, "-B", str(Path(__file__).resolve()), *sys.argv[1:], "--inside"])
    if done.returncode == 0:
        print(f"connect: figures are in {os.path.relpath(options.json)}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
