#!/usr/bin/python3 -B
"""Runs programs between Verbena and the kernel's rdma_rxe, which is in a guest that rxevm boots.

One line a row and direction, as it goes; the last line is the total. Needs rxevm on PATH or named by the environment
variable RXEVM, and root."""
import argparse
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import page
import special
import summary
from commands import commands
from machines import LIMIT, Machines, lacking
from rows import Row, everything

HERE = Path(__file__).resolve().parent
# What clients say whose server isn't there yet: starting a program takes seconds in an emulated machine.
TOO_EARLY = re.compile(r"Couldn't connect|Unable to (Connect|init)|REJECTED|UNREACHABLE|refused|Connection reset")
ATTEMPTS = 12


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True, help="the verbena command")
    parser.add_argument("--only", default="", metavar="REGEX", help="rows whose name matches")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table as Markdown (all rows)")
    parser.add_argument("--keep", action="store_true", help="use a guest that runs, and leave it running")
    parser.add_argument("--list", action="store_true", help="only say which rows there are")
    options = parser.parse_args()
    if options.write and options.only:
        parser.error("--write needs all rows: leave --only out")
    return options


def build_peer(scratch: Path) -> str:
    peer = scratch / "peer"
    compiler = ["gcc", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-o"]
    parts = [str(HERE / name) for name in ("peer.c", "peer_scenarios.c")]
    subprocess.run([*compiler, str(peer), *parts, "-libverbs"], check=True)
    subprocess.run([*compiler, str(scratch / "cm_peer"), str(HERE / "cm_peer.c"), "-libverbs", "-lrdmacm"], check=True)
    return str(peer)


def run_pair(machines: Machines, server: str, at_server: list[str], at_client: list[str]) -> list[tuple[int, str]]:
    """What client and server did: their exit status and output."""
    client = "host" if server == "guest" else "guest"
    serving = machines.start(server, at_server)
    time.sleep(1.0 if server == "guest" else 0.5)
    for _ in range(ATTEMPTS):
        done = machines.start(client, at_client).finish()
        if done[0] == 0 or serving.child.poll() is not None or not TOO_EARLY.search(done[1]):
            break
        time.sleep(0.7)
    return [done, serving.finish()]


def judge(row: Row, results: list[tuple[int, str]]) -> tuple[str, str]:
    for who, (status, output) in zip(("client", "server"), results):
        if status != 0:
            return "FAIL", f"the {who} " + (f"hung for {LIMIT} s" if status in (124, 137) else f"ended with {status}")
    if row.says and not re.search(row.says, results[0][1]):
        return "FAIL", f"the client didn't say {row.says}"
    return "pass", ""


def run_row(machines: Machines, row: Row, server: str, peer: str) -> tuple[str, str, list[tuple[int, str]]]:
    at_server, at_client = commands(row, server, machines.gids, peer)
    if row.special:
        return special.RUNS[row.special](machines, server, at_server, at_client, run_pair)
    results = run_pair(machines, server, at_server, at_client)
    return *judge(row, results), results


def report(row: Row, server: str, seconds: float, verdict: str, why: str, results: list[tuple[int, str]]) -> None:
    print(f"{verdict}  {row.name:<58} {server + ' serves':<13} {seconds:5.1f} s  {why}".rstrip(), flush=True)
    if verdict != "FAIL":
        return
    for who, (status, output) in zip(("client", "server"), results):
        print(f"      {who}, status {status}, its last lines:")
        for line in output.splitlines()[-15:]:
            print(f"      | {line}", flush=True)


def run_all(machines: Machines, chosen: list[Row], peer: str) -> dict[tuple[str, str], tuple[str, str]]:
    verdicts = {}
    for row in chosen:
        for server in row.servers:
            began = time.monotonic()
            verdict, why, results = run_row(machines, row, server, peer)
            report(row, server, time.monotonic() - began, verdict, why, results)
            verdicts[row.name, server] = (verdict, why)
    return verdicts


def main() -> int:
    options = arguments()
    chosen = [row for row in everything() if re.search(options.only, row.name)]
    if options.list:
        for row in chosen:
            print(f"{row.name:<58} {row.shows}")
        return 0
    if missing := lacking():
        print(f"interop: {missing}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the guest ends with us
    with tempfile.TemporaryDirectory(prefix="verbena-interop-") as directory:
        peer = build_peer(Path(directory))
        try:
            machines = Machines(options.bin.resolve(), Path(directory), options.keep).boot()
        except (RuntimeError, OSError) as error:
            print(f"interop: no guest: {error}", file=sys.stderr)
            return 2
        with machines:
            print(f"guest with kernel {machines.kernel}", flush=True)
            verdicts = run_all(machines, chosen, peer)
    if options.write:
        options.write.write_text(page.markdown(chosen, verdicts, machines.kernel))
        if options.write.resolve() == summary.PAGE:
            summary.refresh()
    counts = {kind: sum(verdict == kind for verdict, _ in verdicts.values()) for kind in ("pass", "FAIL")}
    print(f"{counts['pass']} passed, {counts['FAIL']} failed")
    return 1 if counts["FAIL"] or not verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
