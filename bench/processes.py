"""Children that always end: pinned, bounded by a time limit, killed by pid, their words kept for the report."""
import os
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from cases import PeerFailed, PeerTimedOut

LISTEN = "0A"  # a socket's state in /proc/net/tcp


def environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    """The caller's, without what would tune a peer behind our back."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("UCX_", "MLX5_", "IBV_"))}
    return kept | {"LC_ALL": "C"} | (extra or {})


class Child:
    """Its output goes to a file, not a pipe: what it leaves running (an agent) must not keep us waiting for the end
    of a pipe."""

    def __init__(self, command: list, core: int | None, env: dict[str, str]):
        self.name = " ".join(Path(word).name for word in map(str, command[:4]))
        self.file = tempfile.TemporaryFile(mode="w+", errors="replace")
        pinned = ["taskset", "-c", str(core)] if core is not None else []
        try:
            self.process = subprocess.Popen(
                pinned + [str(word) for word in command],
                stdin=subprocess.DEVNULL, stdout=self.file, stderr=subprocess.STDOUT, env=env)
        except OSError as error:
            self.file.close()
            raise PeerFailed(f"{command[0]}: {error.strerror}") from error

    def output(self) -> str:
        self.file.seek(0)
        return self.file.read()

    def ended(self) -> bool:
        return self.process.poll() is not None

    def end(self) -> None:
        if not self.ended():
            self.process.kill()
        self.process.wait()
        self.file.close()


@contextmanager
def child(command: list, core: int | None, env: dict[str, str]):
    started = Child(command, core, env)
    try:
        yield started
    finally:
        started.end()


def last_words(text: str, limit: int = 240) -> str:
    """The lines that say why: those that speak of an error, else the last ones."""
    lines = [line.strip() for line in text.splitlines() if line.strip(" -\t*=|+")]
    telling = [line for line in lines if any(word in line.lower() for word in ("error", "fail", "unable", "couldn't"))]
    said = "; ".join(dict.fromkeys((telling or lines)[-3:])) or "said nothing"
    return said if len(said) <= limit else said[: limit - 1] + "…"


def run_alone(command: list, core: int | None, timeout_seconds: float, env: dict[str, str] | None = None) -> str:
    with child(command, core, env or environment()) as only:
        try:
            status = only.process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            raise PeerTimedOut(f"{only.name} didn't end in {timeout_seconds:g} s") from None
        if status != 0:
            raise PeerFailed(f"{only.name} ended with {status}: {last_words(only.output())}")
        return only.output()


def listens(port: int, process: int | str = "self") -> bool:
    """Whether anybody does in that process's network namespace, read from the kernel's table: asking by connect()
    would use up a server's one accept."""
    wanted = f":{port:04X}"
    for table in (f"/proc/{process}/net/tcp", f"/proc/{process}/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, rows):
            if fields[1].endswith(wanted) and fields[3] == LISTEN:
                return True
    return False


def wait_until_listening(server: Child, port: int, deadline: float) -> None:
    while not listens(port, server.process.pid):
        if server.ended():
            raise PeerFailed(f"server {server.name} ended with {server.process.returncode}: "
                             f"{last_words(server.output())}")
        if time.monotonic() > deadline:
            raise PeerTimedOut(f"server {server.name} never listened: {last_words(server.output())}")
        time.sleep(0.002)


def run_pair(server_command: list, client_command: list, port: int, cores: tuple[int, int], timeout_seconds: float,
             env: dict[str, str] | None = None) -> str:
    """A server and its client, each on its core; what the client printed."""
    env = env or environment()
    deadline = time.monotonic() + timeout_seconds
    if listens(port):
        raise PeerFailed(f"port {port} is taken")
    with child(server_command, cores[0], env) as server:
        wait_until_listening(server, port, deadline)
        with child(client_command, cores[1], env) as client:
            try:
                status = client.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                said = "; ".join(f"{who.name}: {last_words(who.output(), 100)}" for who in (client, server))
                raise PeerTimedOut(f"no end in {timeout_seconds:g} s ({said})") from None
            if status != 0:
                raise PeerFailed(f"{client.name} ended with {status}: {last_words(client.output())}")
            return client.output()


def key_values(text: str) -> dict[str, str]:
    """What our own helper programs print: "key value" lines."""
    return dict(line.split(None, 1) for line in text.splitlines() if len(line.split(None, 1)) == 2)


def numbers(text: str, keys: tuple[str, ...]) -> dict[str, float]:
    found = key_values(text)
    try:
        return {key: float(found[key]) for key in keys}
    except (KeyError, ValueError) as error:
        raise PeerFailed(f"unexpected output ({error}): {last_words(text)}") from error
