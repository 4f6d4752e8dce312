"""Where the examples run in a test: two hosts of their own, and the processes started there."""
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

# Set by run.py.
VERBENA = Path()
EXAMPLES = Path()
HOSTS = []

ADDRESS = "10.77.0.1"  # of host 0
ADDRESS_6 = "fd77::1"
PATIENCE_S = 30  # for what should take no time; the machine may be busy
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Running:
    """A program under `verbena run`, and what it printed so far, stdout and stderr together."""

    def __init__(self, program: str, *arguments, host: int = 0, environment: dict | None = None, run=()):
        self.name = program
        self.text = ""
        command = [*HOSTS[host].prefix, str(VERBENA), "run", *run, "--", str(EXAMPLES / program), *map(str, arguments)]
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      stdin=subprocess.DEVNULL, env=os.environ | (environment or {}))
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self) -> None:
        while piece := os.read(self.child.stdout.fileno(), 65536):
            self.text += piece.decode(errors="replace")

    def wait_for(self, pattern: str) -> re.Match:
        """Until it has printed a line like that."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            ended = self.child.poll() is not None
            if ended:
                self.reader.join(1)
            if found := re.search(pattern, self.text, re.MULTILINE):
                return found
            if ended:
                break
            time.sleep(0.01)
        raise AssertionError(f"{self.name} never said {pattern!r}; {self.account()}")

    def wait(self, seconds: float = PATIENCE_S) -> int:
        """Its exit status."""
        try:
            status = self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} hasn't ended after {seconds} s; {self.account()}") from None
        self.reader.join(1)
        return status

    def lives(self) -> bool:
        return self.child.poll() is None

    def send(self, sign: signal.Signals) -> None:
        self.child.send_signal(sign)

    def end(self) -> None:
        """Whatever it does now."""
        if self.lives():
            self.child.kill()
        self.child.wait()
        self.reader.join(1)
        self.child.stdout.close()

    def cpu_s(self) -> float:
        """Processor time that it took until now, all threads."""
        after_name = Path(f"/proc/{self.child.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(after_name[11]) + int(after_name[12])) / TICKS_PER_S

    def main_thread_runs(self) -> bool:
        """Whether its main thread has work just now, on a processor or waiting for one: the machine may be busy."""
        return Path(f"/proc/{self.child.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "R"

    def share_of_running(self, seconds: float) -> float:
        """Of a number of looks at its main thread."""
        looks = []
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            looks.append(self.main_thread_runs())
            time.sleep(0.01)
        return sum(looks) / len(looks)

    def threads(self) -> list[str]:
        tasks = Path(f"/proc/{self.child.pid}/task")
        return sorted((task / "comm").read_text().strip() for task in tasks.iterdir())

    def account(self) -> str:
        return f"status {self.child.poll()}, printed:\n{self.text[-3000:]}"

    def number(self, pattern: str) -> float:
        """The number that `pattern`'s group finds in what it printed."""
        found = re.search(pattern, self.text)
        if not found:
            raise AssertionError(f"{self.name} didn't print {pattern!r}; {self.account()}")
        return float(found[1])
