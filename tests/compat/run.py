#!/usr/bin/python3 -B
"""Runs programs that nobody here wrote, unmodified, on Verbena, and compares what they do with what they should.

Each row of the table (rows/) runs in network namespaces of its own: as root, if we are root, and as an ordinary user
without home or runtime directory. One line a row and user, as it goes; the last line is the total."""
import argparse
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import network_page
import rows
import table
from judge import judge, without_chatter
from row import BOTH, ORDINARY, ROOT, Result, Row

HERE = Path(__file__).resolve().parent
NOBODY = 65534
ATTEMPTS = 4  # of rows that the machine spoils
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# For AddressSanitizer builds: foreign programs leak as they please, and preload what they please.
ASAN_OPTIONS = "detect_leaks=0:verify_asan_link_order=0"
ADVICE = {
    ROOT: "run this as root",
    ORDINARY: "allow user namespaces: sysctl kernel.unprivileged_userns_clone=1",
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True, help="the verbena command")
    parser.add_argument("--lib-dir", type=Path, required=True, help="where its libraries are")
    parser.add_argument("--only", default="", metavar="REGEX", help="rows whose theme.name matches")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table as Markdown (as root, all rows)")
    parser.add_argument("--matrix", action="store_true", help="instead of the table's rows those of docs/NETWORK.md")
    parser.add_argument("--list", action="store_true", help="only say which rows there are")
    options = parser.parse_args()
    if options.write and (options.only or os.geteuid() != 0):
        parser.error("--write needs all rows and both users: leave --only out, and be root")
    return options


# --- where a row runs ---


def namespace_prefix() -> list[str]:
    if os.geteuid() == 0:
        return ["unshare", "-n", "-m"]
    return ["unshare", "-U", "-n", "-m", "--map-current-user", "--keep-caps"]


def user_prefix(user: str) -> list[str]:
    """Before a program's command line, inside the namespaces: makes it `user`, with no more rights than that."""
    if user == ROOT:
        return []
    if os.geteuid() == 0:
        return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--inh-caps=-all"]
    return ["setpriv", "--inh-caps=-all", "--ambient-caps=-all"]


def environment(user: str) -> dict[str, str]:
    home = "/root" if user == ROOT else "/nonexistent"
    # Agents leave soon after their last client, so that rows about that take no time.
    return {"PATH": PATH, "HOME": home, "LANG": "C.UTF-8", "VERBENA_AGENT_IDLE_MS": "300",
            "ASAN_OPTIONS": ASAN_OPTIONS}


def namespaces_work() -> bool:
    tried = subprocess.run([*namespace_prefix(), "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return tried.returncode == 0


def reachable_build(command: Path, libraries: Path, scratch: Path) -> tuple[Path, Path]:
    """The build itself, or a copy if the ordinary user can't read where it lies (as under /root)."""
    probe = subprocess.run([*user_prefix(ORDINARY), "test", "-x", str(command), "-a", "-r", str(libraries)])
    if probe.returncode == 0:
        return command, libraries
    shutil.copytree(libraries, scratch / "build/lib/verbena", symlinks=True)
    (scratch / "build/bin").mkdir()
    return Path(shutil.copy(command, scratch / "build/bin")), scratch / "build/lib/verbena"


# --- running and judging ---


def missing(row: Row) -> str:
    """What of a row's needs isn't installed, and what to do about it."""
    for need in (row.program, *row.needs):
        kind, _, name = need.rpartition(":")
        there = importlib.util.find_spec(name) if kind == "python" else shutil.which(name, path=PATH)
        if not there and need != "verbena":
            return f"{name} isn't installed ({row.package or 'see scripts/deps.sh'}): make deps"
    return ""


def scratch_for(row: Row, user: str, scratch: Path) -> Path:
    place = Path(tempfile.mkdtemp(dir=scratch))
    for name, text in row.files.items():
        (place / name).write_text(text)
    if user == ORDINARY and os.geteuid() == 0:
        for path in (place, *place.iterdir()):
            os.chown(path, NOBODY, NOBODY)
    return place


def run(name: str, row: Row, user: str, paths: dict[str, str], scratch: Path) -> tuple[str, str, list[Result]]:
    """Returns the verdict, why, and what the processes did."""
    lacking = missing(row)
    if lacking:
        return "skip", lacking, []
    for attempt in range(1, ATTEMPTS + 1):
        verdict, why, results = run_once(name, row, user, paths, scratch)
        if verdict != "FAIL" or not excused(row, results):
            break
    if attempt > 1:
        because = ("an acknowledgement of the last message was lost" if row.again_if else
                   "the program said that the machine was too busy")
        why = f"{why} (attempt {attempt}: before, {because})".strip()
    return verdict, why, results


def excused(row: Row, results: list[Result]) -> bool:
    if row.again_if and results:
        return row.again_if(results)
    return any(row.again and re.search(row.again, result.output) for result in results)


def run_once(name: str, row: Row, user: str, paths: dict[str, str], scratch: Path) -> tuple[str, str, list[Result]]:
    paths = paths | {"tmp": str(scratch_for(row, user, scratch))}
    job = {"row": name, "paths": paths, "user_prefix": user_prefix(user), "environment": environment(user)}
    worker = subprocess.run([*namespace_prefix(), "/usr/bin/python3", "-B", str(HERE / "inside.py")],
                            input=json.dumps(job), stdout=subprocess.PIPE, text=True,
                            env=environment(user) | {"COMPAT_SCRATCH": str(scratch_for(row, ROOT, scratch))})
    if worker.returncode != 0:
        return "FAIL", f"the runner's own inside.py ended with status {worker.returncode}", []
    answer = json.loads(worker.stdout)
    if "impossible" in answer:
        return "skip", answer["impossible"], []
    results = [Result(found["status"], without_chatter(found["output"])) for found in answer["results"]]
    wrong = judge(row, results, paths)
    return ("FAIL", wrong, results) if wrong else ("pass", "", results)


def report(name: str, user: str, seconds: float, verdict: str, why: str, results: list[Result]) -> None:
    print(f"{verdict}  {name:<34} {user:<9} {seconds:5.1f} s  {why}".rstrip(), flush=True)
    if verdict == "FAIL":
        for number, result in enumerate(results, 1):
            print(f"      process {number}, status {result.status}, its last lines:")
            for line in result.output.splitlines()[-25:]:
                print(f"      | {line}", flush=True)


def list_rows(chosen: dict[str, Row]) -> None:
    for name, row in chosen.items():
        print(f"{name:<34} {row.program} {row.options}  ({row.shows}; {', '.join(row.users)})")


def run_all(chosen: dict[str, Row], options: argparse.Namespace, scratch: Path) -> dict[tuple[str, str], tuple]:
    command, libraries = reachable_build(options.bin.resolve(), options.lib_dir.resolve(), scratch)
    snippets = shutil.copytree(HERE / "snippets", scratch / "snippets", ignore=shutil.ignore_patterns("__pycache__"))
    paths = {"verbena": str(command), "lib": str(libraries), "snippets": str(snippets), "python": "/usr/bin/python3"}
    users = BOTH if os.geteuid() == 0 else (ORDINARY,)
    possible = namespaces_work()
    verdicts = {}
    for name, row in chosen.items():
        for user in (u for u in users if u in row.users):
            began = time.monotonic()
            if possible:
                verdict, why, results = run(name, row, user, paths, scratch)
            else:
                advice = ADVICE[ORDINARY if os.geteuid() else ROOT]
                verdict, why, results = "skip", f"no network namespace can be made here; {advice}", []
            report(name, user, time.monotonic() - began, verdict, why, results)
            verdicts[name, user] = (verdict, why)
    return verdicts


def main() -> int:
    # Whoever runs us in the background may have it ignored, and programs would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    options = arguments()
    known = rows.of_matrix() if options.matrix else rows.everything()
    chosen = {name: row for name, row in known.items() if re.search(options.only, name)}
    if options.list:
        list_rows(chosen)
        return 0
    with tempfile.TemporaryDirectory(prefix="verbena-compat-") as directory:
        os.chmod(directory, 0o755)
        verdicts = run_all(chosen, options, Path(directory))
    if options.write:
        options.write.write_text(network_page.markdown(verdicts) if options.matrix else
                                 table.markdown(chosen, verdicts))
    counts = {kind: sum(verdict == kind for verdict, _ in verdicts.values()) for kind in ("pass", "FAIL", "skip")}
    print(f"{counts['pass']} passed, {counts['FAIL']} failed, {counts['skip']} skipped")
    return 1 if counts["FAIL"] or not verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
