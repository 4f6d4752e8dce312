#!/usr/bin/python3 -B
"""Debian's pyverbs suite on Verbena: every case that isn't about one vendor's adapter.

Each passes, or is skipped for a reason that skips.tsv gives; anything else is a failure of this test. Listed cases run
all the same: where the machine has what they want (huge pages, a GPU) they must pass."""
import argparse
import ast
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
INSTALLED = Path("/usr/share/doc/rdma-core/tests")
# Adapters of one make, and a GPU's memory: their code isn't ours to answer.
VENDORS = re.compile(r"^test_(mlx5|efa|cuda)")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True, help="the verbena command")
    parser.add_argument("--path", choices=("local", "wire"), default="local", help="the way packets go")
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose id matches")
    parser.add_argument("--list", action="store_true", help="only say which cases there are")
    return parser.parse_args()


# --- the suite as it is installed ---


def unpack(to: Path) -> None:
    to.mkdir()
    for source in INSTALLED.iterdir():
        if source.suffix == ".gz":
            (to / source.stem).write_bytes(gzip.decompress(source.read_bytes()))
        elif source.suffix == ".py":
            shutil.copy(source, to)
    # The suite's own imports every file, the vendors' too.
    (to / "__init__.py").write_text("")


def cases_of(file: Path) -> list[str]:
    """Ids of the test methods that a file has. Classes that only others inherit from have none of their own."""
    found = []
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found += [f"tests.{file.stem}.{node.name}.{method.name}" for method in node.body
                      if isinstance(method, ast.FunctionDef) and method.name.startswith("test_")]
    return found


def files_with_cases(suite: Path, only: str) -> list[list[str]]:
    files = [file for file in sorted(suite.glob("test_*.py")) if not VENDORS.match(file.name)]
    chosen = [[case for case in cases_of(file) if re.search(only, case)] for file in files]
    return [cases for cases in chosen if cases]


# --- running and judging ---


def namespace_prefix() -> list[str]:
    if os.geteuid() == 0:
        return ["unshare", "-n", "-m"]
    return ["unshare", "-U", "-n", "-m", "--map-current-user", "--keep-caps"]


def environment(path: str) -> dict[str, str]:
    variables = {"PATH": PATH, "HOME": "/nonexistent", "LANG": "C.UTF-8", "VERBENA_AGENT_IDLE_MS": "300"}
    return variables | ({"VERBENA_PATH": "wire"} if path == "wire" else {})


def run(options: argparse.Namespace, scratch: Path, files: list[list[str]]) -> dict[str, dict]:
    job = {"verbena": str(options.bin.resolve()), "suite": str(scratch), "files": files,
           "environment": environment(options.path)}
    worker = subprocess.run([*namespace_prefix(), "/usr/bin/python3", "-B", str(HERE / "inside.py")],
                            input=json.dumps(job), stdout=subprocess.PIPE, text=True, env=environment("local"))
    if worker.returncode != 0:
        raise SystemExit(f"the runner's own inside.py ended with status {worker.returncode}")
    return json.loads(worker.stdout)


def accepted_skips() -> dict[str, str]:
    rows = [line.split("\t") for line in (HERE / "skips.tsv").read_text().splitlines()[1:] if line]
    return {f"tests.{case}": reason for case, reason in rows}


def judge(case: str, end: dict, skips: dict[str, str]) -> tuple[str, str]:
    """The verdict and why."""
    listed = next((reason for name, reason in skips.items() if case == name or case.startswith(name + ".")), None)
    if end["what"] == "skip" and listed is None:
        return "FAIL", f"it was skipped, and skips.tsv doesn't say why: {end['why']}"
    return end["what"], listed if end["what"] == "skip" else end["why"]


def main() -> int:
    options = arguments()
    if not INSTALLED.is_dir():
        print("the suite isn't installed (rdma-core, python3-pyverbs): make deps")
        return 1
    skips = accepted_skips()
    with tempfile.TemporaryDirectory(prefix="verbena-pyverbs-") as directory:
        scratch = Path(directory)
        unpack(scratch / "tests")
        files = files_with_cases(scratch / "tests", options.only)
        if options.list:
            print("\n".join(case for cases in files for case in cases))
            return 0
        began = time.monotonic()
        verdicts = {case: judge(case, end, skips) for case, end in run(options, scratch, files).items()}
    for case, (verdict, why) in verdicts.items():
        lines = why.strip().splitlines() or [""]
        print(f"{verdict}  {case.removeprefix('tests.')}  {lines[-1]}".rstrip())
        if verdict == "FAIL":
            print("\n".join(f"      | {line}" for line in lines))
    counts = {kind: sum(verdict == kind for verdict, _ in verdicts.values()) for kind in ("pass", "FAIL", "skip")}
    missing = [case for cases in files for case in cases if case not in verdicts]
    for case in missing:
        print(f"FAIL  {case.removeprefix('tests.')}  it never began")
    print(f"{counts['pass']} passed, {counts['FAIL']} failed, {counts['skip']} skipped in "
          f"{time.monotonic() - began:.0f} s ({options.path})")
    return 1 if counts["FAIL"] or missing or not verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
