"""Runs one row inside its namespaces and tells on stdout, as JSON, what its processes did. run.py starts it:
    unshare -n -m … inside.py  <job.json"""
import ctypes
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import hosts
import rows
from judge import fill
from row import Process, Row

PR_SET_CHILD_SUBREAPER = 36


class Running:
    """A process that was started, and what it printed so far."""

    def __init__(self, process: Process, command: list[str], environment: dict[str, str], directory: str):
        self.process = process
        self.text = ""
        source, sink = self.open_output()
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=sink, stderr=sink, cwd=directory,
                                      env=environment, start_new_session=True)
        os.close(sink)
        self.reader = threading.Thread(target=self.read, args=(source,), daemon=True)
        self.reader.start()
        threading.Thread(target=self.feed, daemon=True).start()

    def open_output(self) -> tuple[int, int]:
        if not self.process.ready:
            return os.pipe()
        # On a terminal programs print line by line, so one can see when they are ready.
        source, sink = pty.openpty()
        attributes = termios.tcgetattr(sink)
        attributes[1] &= ~termios.OPOST
        termios.tcsetattr(sink, termios.TCSANOW, attributes)
        return source, sink

    def read(self, source: int) -> None:
        try:
            while piece := os.read(source, 65536):
                self.text += piece.decode(errors="replace")
        except OSError:  # how a terminal says that the other end closed
            pass

    def feed(self) -> None:
        try:
            self.child.stdin.write(self.process.input.encode())
            self.child.stdin.close()
        except OSError:
            pass

    def is_ready(self) -> bool:
        if self.child.poll() is not None:
            return True  # it won't become more ready than that; its status tells
        if self.process.ready and not re.search(self.process.ready, self.text, re.MULTILINE):
            return False
        return not self.process.listens or listens(self.child.pid, self.process.listens)

    def wait_ready(self, deadline: float) -> None:
        while not self.is_ready() and time.monotonic() < deadline:
            time.sleep(0.01)

    def end(self, deadline: float) -> dict:
        try:
            status = self.child.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            status = None
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()
        self.reader.join(1)
        return {"status": status, "output": self.text}


def listens(pid: int, port: int) -> bool:
    """Whether somebody in the process's network namespace listens on the TCP port."""
    try:
        tables = [Path(f"/proc/{pid}/net/{table}").read_text() for table in ("tcp", "tcp6")]
    except OSError:  # it ended just now
        return False
    for line in (line for text in tables for line in text.splitlines()[1:]):
        local, state = line.split()[1], line.split()[3]
        if state == "0A" and int(local.rsplit(":")[-1], 16) == port:
            return True
    return False


def run_row(row: Row, places: list[hosts.Host], job: dict) -> list[dict]:
    deadline = time.monotonic() + row.timeout_s
    running = []
    for process in row.processes:
        command = [fill(word, job["paths"]) for word in process.command]
        place = places[process.host].prefix + job["user_prefix"]
        running.append(Running(process, place + command, job["environment"], job["paths"]["tmp"]))
        running[-1].wait_ready(deadline)
    servers = [r for r in running if r.process.end_with]
    results = {id(r): r.end(deadline) for r in running if r not in servers}
    for server in servers:
        if server.child.poll() is None:
            server.child.send_signal(server.process.end_with)
        results[id(server)] = server.end(deadline)
    return [results[id(r)] for r in running]


def sweep() -> None:
    """Ends what the row left behind: orphans become our children, the host agent among them."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + 2
        while (children := living_children()) and time.monotonic() < deadline:
            for child in children:
                try:
                    os.kill(child, sign)
                except ProcessLookupError:
                    pass
            time.sleep(0.02)
            reap()


def living_children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def main() -> None:
    job = json.load(sys.stdin)
    row = rows.find(job["row"])
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    places = hosts.make_hosts(row.hosts, row.mtu)
    answer = {}
    try:
        if row.real_device:
            hosts.add_real_device()
    except OSError as error:
        answer["impossible"] = str(error)
    else:
        answer["results"] = run_row(row, places, job)
    finally:
        sweep()
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
