"""The two machines of a test: the guest, where the kernel's rxe is, and the namespace of the host at the other end of
its link, where Verbena is. `rxevm` makes both; it isn't part of this repository."""
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

ADDRESSES = {"host": {4: "10.99.0.1", 6: "fd99::1"}, "guest": {4: "10.99.0.2", 6: "fd99::2"}}
LIMIT = 60  # seconds that a program may take in the guest

SETUP = f"""
. /ctl/lib.sh
ip addr replace {ADDRESSES['guest'][6]}/64 dev eth0 nodad
[ -e /sys/class/infiniband/rxe9 ] || rxe_eth0 || exit 1
for try in $(seq 50); do
  grep -qs fd99 /sys/class/infiniband/rxe9/ports/1/gids/* && break
  sleep 0.1
done
uname -r
for gid in /sys/class/infiniband/rxe9/ports/1/gids/?; do echo "gid ${{gid##*/}} $(cat $gid)"; done
"""


def find_rxevm() -> str:
    """Where rxevm is, or an empty string."""
    given = os.environ.get("RXEVM", "")
    return given if given and os.access(given, os.X_OK) else shutil.which("rxevm") or ""


def lacking() -> str:
    """What this machine lacks for the guest, in one sentence; empty: nothing."""
    if not find_rxevm():
        return ("rxevm isn't on PATH, nor does the environment variable RXEVM name it: it is the script that boots a "
                "guest with the kernel's rdma_rxe and joins it to the network namespace rxevm")
    if os.geteuid() != 0:
        return "run this as root: the guest's link is a tap device in a network namespace that must be made"
    if not shutil.which("gcc"):
        return "gcc isn't installed, and the test's own peer is C: make deps"
    return ""


class Running:
    """A program in one of the machines."""

    def __init__(self, command: list[str], environment: dict[str, str] | None = None):
        self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True, errors="replace",
                                      env=os.environ | (environment or {}))

    def finish(self) -> tuple[int, str]:
        try:
            output, _ = self.child.communicate(timeout=LIMIT + 60)
        except subprocess.TimeoutExpired:
            self.child.kill()
            output, _ = self.child.communicate()
        return self.child.returncode, output


class Machines:
    def __init__(self, verbena: Path, scratch: Path, keep: bool):
        self.rxevm, self.verbena, self.scratch, self.keep = find_rxevm(), verbena, scratch, keep
        self.kernel = ""
        self.gids = {"host": {4: "0", 6: "1"}, "guest": {}}

    def boot(self) -> "Machines":
        if not self.keep or "guest 1 " not in self.run([self.rxevm, "list"]):
            self.run([self.rxevm, "start", "-n"])
        try:
            self.make_devices()
        except BaseException:
            self.shut_down()
            raise
        return self

    def make_devices(self) -> None:
        told = self.in_guest_script(SETUP)
        self.kernel = told.splitlines()[0]
        for index, gid in re.findall(r"gid (\d+) (\S+)", told):
            family = 4 if gid.startswith("0000:") and ":ffff:" in gid else 6 if gid.startswith("fd99") else 0
            self.gids["guest"].setdefault(family, index)
        if 4 not in self.gids["guest"] or 6 not in self.gids["guest"]:
            raise RuntimeError(f"rxe in the guest lacks an IPv4 or IPv6 GID:\n{told}")
        subprocess.run([self.rxevm, "host", "ip", "addr", "replace", ADDRESSES["host"][6] + "/64", "dev", "br0",
                        "nodad"], check=True)

    def __enter__(self) -> "Machines":
        return self

    def __exit__(self, *_) -> None:
        self.shut_down()

    def shut_down(self) -> None:
        if self.keep:
            return
        subprocess.run([self.rxevm, "clean"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def run(self, command: list[str]) -> str:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def in_guest_script(self, script: str) -> str:
        path = self.scratch / "guest.sh"
        path.write_text(script)
        return self.run([self.rxevm, "exec", "-f", str(path)])

    def start(self, machine: str, command: list[str], limit: int = LIMIT) -> Running:
        """On the host the program runs on Verbena, in the guest on rxe; past `limit` seconds it is ended."""
        bounded = ["timeout", "-k", "2", str(limit)]
        if machine == "guest":
            return Running([self.rxevm, "exec", "-t", str(limit + 30), *bounded, *command])
        return Running([self.rxevm, "host", *bounded, str(self.verbena), "run", "--", *command])

    def guest_pid(self) -> int:
        return int(re.search(r"guest 1 pid (\d+)", self.run([self.rxevm, "list"])).group(1))

    def pause_guest(self) -> None:
        os.kill(self.guest_pid(), signal.SIGSTOP)
        time.sleep(0.05)

    def resume_guest(self) -> None:
        os.kill(self.guest_pid(), signal.SIGCONT)
