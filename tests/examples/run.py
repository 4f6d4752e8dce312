#!/usr/bin/python3 -B
"""The example programs over Verbena: each does what its page says, its deliberate faults included.

Usage: run.py --bin VERBENA --examples DIR NAME...     NAME: ping-sr-0, devices, ...; the cases are in cases/

Runs in two network namespaces of its own that are joined by a link. Says so and ends with status 77 where there can be
none."""
import argparse
import ctypes
import importlib
import os
import subprocess
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "compat")]
import hosts  # noqa: E402
import inside  # noqa: E402
import stage  # noqa: E402

SKIPPED = 77
INSIDE = "VERBENA_EXAMPLES_INSIDE"


def enter_namespaces() -> int:
    """This program again, in network and mount namespaces of its own."""
    prefix = ["unshare", "-n", "-m"] if os.geteuid() == 0 else ["unshare", "-r", "-n", "-m"]
    if subprocess.run([*prefix, "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0:
        print("skipped: no network namespace can be made here")
        return SKIPPED
    return subprocess.run([*prefix, sys.executable, "-B", __file__, *sys.argv[1:]], env=os.environ | {INSIDE: "1"}).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True, help="the verbena command")
    parser.add_argument("--examples", type=Path, required=True, help="where the programs are")
    parser.add_argument("-k", action="append", metavar="PATTERN", help="only tests like that")
    parser.add_argument("names", nargs="+")
    options = parser.parse_args()
    if INSIDE not in os.environ:
        return enter_namespaces()
    stage.VERBENA, stage.EXAMPLES = options.bin.resolve(), options.examples.resolve()
    ctypes.CDLL(None).prctl(inside.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.environ.setdefault("VERBENA_AGENT_IDLE_MS", "300")
    # For AddressSanitizer builds, as in compat/: Verbena's libraries stay loaded to the end, with what they hold.
    os.environ.setdefault("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0")
    stage.HOSTS = hosts.make_hosts(2)
    for host in stage.HOSTS:
        host.ip(f"route add 224.0.0.0/4 dev {hosts.LINKS[stage.HOSTS.index(host)]}")
    loader = unittest.TestLoader()
    if options.k:
        loader.testNamePatterns = [f"*{pattern}*" for pattern in options.k]
    suite = unittest.TestSuite(loader.loadTestsFromModule(importlib.import_module(f"cases.{name.replace('-', '_')}"))
                               for name in options.names)
    try:
        found = unittest.TextTestRunner(verbosity=2).run(suite)
    finally:
        inside.sweep()
    return 0 if found.wasSuccessful() and found.testsRun > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
