"""qemu_migrate.py COMMAND… : a guest moves from one QEMU to another over RDMA, and runs on there."""
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

URI = "rdma:10.77.0.1:4444"
# No disk and no network: what moves is the BIOS, which looks for something to boot.
GUEST = ("-accel", "tcg", "-m", "64", "-nodefaults", "-display", "none", "-vga", "std", "-nic", "none")
DEADLINE_S = 90


class Machine:
    def __init__(self, directory: str, name: str, *more: str):
        path = f"{directory}/{name}"
        command = [*sys.argv[1:], "qemu-system-x86_64", *GUEST, "-monitor", f"unix:{path},server=on,wait=off", *more]
        self.process = subprocess.Popen(command)
        until(lambda: Path(path).exists(), f"{name} has no monitor")
        self.monitor = socket.socket(socket.AF_UNIX)
        self.monitor.connect(path)
        self.answer()

    def answer(self) -> str:
        text = ""
        while not text.endswith("(qemu) "):
            piece = self.monitor.recv(65536)
            assert piece, "QEMU ended"
            text += piece.decode(errors="replace")
        return text

    def ask(self, command: str) -> str:
        self.monitor.sendall(f"{command}\n".encode())
        return self.answer()

    def status(self) -> str:
        return re.search(r"VM status: (.*?)\r?\n", self.ask("info status")).group(1)

    def quit(self) -> int:
        self.monitor.sendall(b"quit\n")
        return self.process.wait(DEADLINE_S)


def until(condition, otherwise: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.1)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        target = Machine(directory, "target", "-incoming", URI)
        source = Machine(directory, "source")
        try:
            print("before:", source.status(), "and", target.status())
            source.ask("migrate -d " + URI)
            until(lambda: re.search(r"status: (completed|failed)", source.ask("info migrate")), "it never ends")
            print(re.search(r"Migration status: \w+", source.ask("info migrate")).group(0))
            until(lambda: target.status() == "running", "the target doesn't run")
            print("after:", source.status(), "and", target.status())
            assert source.quit() == 0 and target.quit() == 0, "a QEMU failed"
        finally:
            for machine in (source, target):
                machine.process.kill()


main()
