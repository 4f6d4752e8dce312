"""Starts programs under `verbena run` and looks at them from outside: run_behaviour.py WHAT VERBENA."""
import os
import resource
import signal
import subprocess
import sys
import time

VERBENA = sys.argv[2]
OURS = {"LD_LIBRARY_PATH", "LD_PRELOAD", "VERBENA_VIEW", "VERBENA_DEVICES"}


def start(*command: str, **more) -> subprocess.Popen:
    return subprocess.Popen([VERBENA, "run", "--", *command], text=True, process_group=0, **more)


def output(*command: str, **more) -> str:
    whole = [VERBENA, "run", "--", *command]
    return subprocess.run(whole, text=True, stdout=subprocess.PIPE, check=True, **more).stdout


def wait_until(what: str, condition) -> None:
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    sys.exit(f"never happened: {what}")


def comm(pid: int) -> str:
    with open(f"/proc/{pid}/comm") as file:
        return file.read().strip()


def start_sleep() -> subprocess.Popen:
    child = start("sleep", "60")
    wait_until("the process becomes the program", lambda: comm(child.pid) == "sleep")
    return child


def sigterm() -> None:
    child = start_sleep()
    child.send_signal(signal.SIGTERM)
    assert child.wait() == -signal.SIGTERM, child.returncode


def sigint() -> None:
    program = ("import signal, sys\n"
               "signal.signal(signal.SIGINT, lambda *_: sys.exit(42))\n"
               "print('ready', flush=True)\n"
               "signal.pause()\n")
    child = start("/usr/bin/python3", "-c", program, stdout=subprocess.PIPE)
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGINT)
    assert child.wait() == 42, child.returncode


def sigtstp() -> None:
    child = start_sleep()
    child.send_signal(signal.SIGTSTP)
    _, status = os.waitpid(child.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status) and os.WSTOPSIG(status) == signal.SIGTSTP, status
    child.send_signal(signal.SIGCONT)
    _, status = os.waitpid(child.pid, os.WCONTINUED)
    assert os.WIFCONTINUED(status), status
    child.kill()
    child.wait()


def signal_lines(text: str, names: tuple[str, ...]) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(names)]


def ignored() -> None:
    # A sanitizer's runtime brings handlers of its own; otherwise there are none.
    sanitized = "san.so" in variables(output("env", "-0"))["LD_PRELOAD"]
    names = ("SigBlk", "SigIgn") if sanitized else ("SigBlk", "SigIgn", "SigCgt")

    def prepare():
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    command = ["cat", "/proc/self/status"]
    before = subprocess.run(command, text=True, stdout=subprocess.PIPE, preexec_fn=prepare).stdout
    after = output(*command, preexec_fn=prepare)
    assert signal_lines(before, names) == signal_lines(after, names), (before, after)


def descriptors() -> None:
    command = ["/usr/bin/python3", "-c", "import os; print(sorted(os.listdir('/proc/self/fd')))"]
    before = subprocess.run(command, text=True, stdout=subprocess.PIPE).stdout
    after = output(*command)
    assert before == after, (before, after)


def limits() -> None:
    def prepare():
        os.umask(0o027)
        os.chdir("/usr")
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most - 1, most))
        os.nice(3)
    command = ["sh", "-c", "umask; pwd; ulimit -Sn; ulimit -Hn; ulimit -c; nice; cat /proc/self/oom_score_adj"]
    before = subprocess.run(command, text=True, stdout=subprocess.PIPE, preexec_fn=prepare).stdout
    after = output(*command, preexec_fn=prepare)
    assert before == after, (before, after)


def variables(text: str) -> dict[str, str]:
    return dict(entry.split("=", 1) for entry in text.split("\0") if entry)


def environment() -> None:
    given = {**os.environ, "WITH_SPACES": " a  b ", "EMPTY": "", "LINES": "one\ntwo"}
    before = variables(subprocess.run(["env", "-0"], text=True, stdout=subprocess.PIPE, env=given).stdout)
    after = variables(output("env", "-0", env=given))
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed <= OURS, changed


def own_lists() -> None:
    mine = "/usr/lib/x86_64-linux-gnu/libdl.so.2"
    after = variables(output("env", "-0", env={**os.environ, "LD_LIBRARY_PATH": "/opt/a:/opt/b", "LD_PRELOAD": mine}))
    assert after["LD_LIBRARY_PATH"].endswith(":/opt/a:/opt/b"), after["LD_LIBRARY_PATH"]
    assert after["LD_PRELOAD"].endswith(":" + mine), after["LD_PRELOAD"]


globals()[sys.argv[1].replace("-", "_")]()
print("ok")
