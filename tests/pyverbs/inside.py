"""Runs the suite inside a network namespace with a veth pair that has addresses, and tells on stdout, as JSON, how each
case ended. run.py starts it:
    unshare -n -m … inside.py  <job.json"""
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "compat"))

import hosts
from inside import PR_SET_CHILD_SUBREAPER, sweep  # the compatibility table's

PROCESS_TIMEOUT_S = 300


def run_cases(job: dict, names: list[str]) -> tuple[list[dict], str]:
    """One process for these cases: what it told, and its output."""
    source, sink = os.pipe()
    command = [job["verbena"], "run", "--", "/usr/bin/python3", "-B", str(HERE / "cases.py"), job["suite"], str(sink)]
    child = subprocess.Popen(command + names, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, errors="replace", pass_fds=[sink],
                             env=job["environment"], cwd=job["suite"], start_new_session=True)
    os.close(sink)
    told = []
    reader = threading.Thread(target=lambda: told.extend(map(json.loads, os.fdopen(source))), daemon=True)
    reader.start()
    try:
        output, _ = child.communicate(timeout=PROCESS_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        output, _ = child.communicate()
    reader.join(5)
    return told, output


def run_file(job: dict, names: list[str]) -> dict[str, dict]:
    """All cases of a file; where one takes the process with it, the rest goes on in another."""
    ended: dict[str, dict] = {}
    while left := [name for name in names if name not in ended]:
        told, output = run_cases(job, left)
        for line in told:
            if line["what"] != "began":
                ended.setdefault(line["case"], line)
        began = [line["case"] for line in told if line["what"] == "began"]
        broken = [name for name in began if name not in ended] or ([] if began else left[:1])
        if not broken and not set(began) & set(left):
            broken = left[:1]
        for name in broken:
            ended[name] = {"case": name, "what": "FAIL", "why": "its process ended with it:\n" + output[-3000:]}
    return ended


def main() -> None:
    job = json.load(sys.stdin)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    hosts.make_hosts(1)
    ended: dict[str, dict] = {}
    try:
        for names in job["files"]:
            ended |= run_file(job, names)
    finally:
        sweep()
    json.dump(ended, sys.stdout)


if __name__ == "__main__":
    main()
