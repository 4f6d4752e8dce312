#!/usr/bin/python3 -B
"""Measures the kernel's rdma_rxe and Verbena beside each other in one guest, which rxevm boots: the same programs,
interleaved. Needs what `make interop` needs: root, and rxevm on PATH or named by the environment variable RXEVM.

One line a measurement; the figures go to a JSON file, from which report.py makes its part of the page."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import guest_cases
import machine
from cases import UNITS, Bench, PeerFailed, number, size_name
from guest_cases import Guest, GuestCase
from guest_page import in_short, ratio_rows
from processes import last_words, numbers, run_alone
from wire_cases import METRICS

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests/interop"))
import machines  # noqa: E402 (finds rxevm)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=ROOT / "build/bench/guest.json", metavar="OUT")
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="rounds (default 5)")
    parser.add_argument("--bin", type=Path, default=ROOT / "build/bin/verbena", help="the verbena command")
    parser.add_argument("--guest", type=int, default=1, metavar="ID", help="rxevm's number of the guest (default 1)")
    parser.add_argument("--minutes", type=float, default=25, metavar="M",
                        help="past them the rest is left out (default 25; a quiet machine needs about 8)")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)  # in the guest; where the helpers are
    options = parser.parse_args()
    options.repeat = max(1, options.repeat)
    return options


def inside(options) -> int:
    """Tells the host what it finds, a line of JSON each: what is told isn't lost if the guest dies."""
    def tell(what: dict) -> None:
        print(json.dumps(what | {"clock": time.monotonic()}), flush=True)

    bench = Bench(verbena=options.bin, helpers=options.inside, cores=machine.two_cores(""), timeout_seconds=60)
    guest = Guest(bench)
    tell({"kernel": guest.kernel})
    for turn in range(1, options.repeat + 1):
        for case in guest_cases.plan():
            try:
                entry = guest.run(case)
            except PeerFailed as failure:
                entry = {"failed": str(failure)}
            tell({"case": case.row(), "entry": {"round": turn} | entry})
        tell({"complete": turn})
    time.sleep(2)  # rxevm copies what we say to the host, and stops soon after our end
    return 0


def shown(case: GuestCase, entry: dict) -> str:
    metric = METRICS[case.measure]
    value = f"{number(entry[metric])} {UNITS[metric]}" if metric in entry else f"FAILED: {entry['failed']}"
    return f"{size_name(case.size):>7} {case.operation + ' ' + case.measure:<17} {case.who:<15} {value}"


class Told:
    """What the guest said, and when."""

    def __init__(self):
        self.found: dict[GuestCase, list[dict]] = {case: [] for case in guest_cases.plan()}
        self.kernel, self.complete, self.other = "unknown", 0, ""
        self.clocks: list[tuple[float, float]] = []  # the guest's and ours

    def line(self, text: str, start: float) -> None:
        try:
            said = json.loads(text)
        except ValueError:
            self.other += text
            return
        self.clocks.append((said["clock"], time.monotonic()))
        self.kernel, self.complete = said.get("kernel", self.kernel), said.get("complete", self.complete)
        if "case" in said:
            case = GuestCase(**said["case"])
            self.found[case].append(said["entry"])
            print(f"{time.monotonic() - start:6.0f} s  round {said['entry']['round']} {shown(case, said['entry'])}",
                  flush=True)

    def clock_ratio(self) -> float:
        (first, our_first), (last, our_last) = self.clocks[0], self.clocks[-1]
        return (last - first) / max(our_last - our_first, 1e-3)


def in_guest(options, helpers: Path) -> Told:
    rxevm, start, told = machines.find_rxevm(), time.monotonic(), Told()
    khz = numbers(run_alone([helpers / "tsc_rate"], None, 10), ("tsc_khz",))["tsc_khz"]
    # Told, not measured by the guest: see tsc_rate.c.
    settings = os.environ | {"RXEVM_APPEND": f"{os.environ.get('RXEVM_APPEND', '')} tsc_early_khz={khz:.0f}"}
    subprocess.run([rxevm, "start", "-i", str(options.guest)], env=settings, check=True)
    try:
        again = [sys.executable, "-B", str(Path(__file__).resolve()), "--inside", str(helpers), "--bin",
                 str(options.bin.resolve()), "--repeat", str(options.repeat)]
        limited = [rxevm, "exec", "-i", str(options.guest), "-t", str(round(60 * options.minutes))]
        with subprocess.Popen([*limited, *again], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace") as child:
            for text in child.stdout:
                told.line(text, start)
    finally:
        subprocess.run([rxevm, "stop", "-i", str(options.guest)])
    return told


def main() -> int:
    options = arguments()
    if options.inside:
        return inside(options)
    lacks = machines.lacking() or ("" if options.bin.exists() else f"there is no {options.bin}: run 'make build' first")
    if lacks:
        print(f"guest: {lacks}", file=sys.stderr)
        return 2
    start, waited = time.monotonic(), machine.waited_seconds()
    with tempfile.TemporaryDirectory(prefix="verbena-guest-") as helpers:
        machine.compile_helpers(Path(helpers), machine.GUEST_HELPERS)
        told = in_guest(options, Path(helpers))
    if not any(told.found.values()):
        print(f"guest: nothing was measured: {last_words(told.other, 1000)}", file=sys.stderr)
        return 1
    seconds = time.monotonic() - start
    waiting, stolen = (100 * (after - before) / seconds for before, after in zip(waited, machine.waited_seconds()))
    document = {
        "format": 1,
        "machine": machine.describe(),
        "settings": {"quick": False, "only": "", "rounds_asked": options.repeat, "rounds_complete": told.complete,
                     "seconds": round(seconds), "guest_kernel": told.kernel, "mtu": guest_cases.MTU,
                     "clock_ratio": told.clock_ratio(), "waiting_percent": waiting, "stolen_percent": stolen},
        "results": [case.row() | {"rounds": entries} for case, entries in told.found.items() if entries],
    }
    document["ratios"] = ratio_rows(document)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    print(*in_short(document), sep="\n")
    print(f"guest: figures are in {os.path.relpath(options.json)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
