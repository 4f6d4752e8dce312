"""The machine a run happened on: what it is, and how fast it was at the time."""
import os
import platform
import re
import subprocess
import time
from pathlib import Path

from cases import BANDWIDTH_MIB_S, KIB, MIB, Bench, PeerFailed
from processes import numbers, run_alone

HERE = Path(__file__).resolve().parent
PROBE_SECONDS = 0.1
COPY_SIZES = {"memcpy_4kib_mib_s": 4 * KIB, "memcpy_1mib_mib_s": MIB, "memcpy_16mib_mib_s": 16 * MIB}
HELPERS = {"tcp_peer": [], "udp_peer": [], "memory": ["-pthread"], "rdma_peer": ["-libverbs"], "floor_peer": ["-ldeflate"],
           "connect_peer": ["-lrdmacm", "-libverbs", "-pthread"], "objects_peer": ["-libverbs"]}
GUEST_HELPERS = {"udp_peer": [], "tsc_rate": []}


def compile_helpers(into: Path, helpers: dict[str, list[str]] = HELPERS) -> None:
    compiler = os.environ.get("CC", "cc")
    for name, flags in helpers.items():
        run_alone([compiler, "-O2", "-std=gnu11", "-o", into / name, HERE / "native" / f"{name}.c", *flags], None, 60)


def two_cores(wanted: str) -> tuple[int, int]:
    allowed = sorted(os.sched_getaffinity(0))
    cores = [int(core) for core in wanted.split(",")] if wanted else allowed[:2]
    if len(cores) != 2 or len(set(cores)) != 2 or not set(cores) <= set(allowed):
        raise SystemExit(f"bench: two different cores are needed, one for each side; we may use {allowed}")
    return cores[0], cores[1]


def waited_seconds() -> tuple[float, float]:
    """Since boot: how long something runnable had to wait for a core, and how long the host kept cores from us."""
    try:
        pressure = float(re.search(r"some .*total=(\d+)", Path("/proc/pressure/cpu").read_text()).group(1)) / 1e6
    except (OSError, AttributeError):
        pressure = 0.0  # a kernel without pressure accounting
    steal = int(Path("/proc/stat").read_text().split()[8]) / os.sysconf("SC_CLK_TCK")
    return pressure, steal


class Prober:
    """How the machine is now, and how much it was disturbed since the last probe: we use two cores and want them."""

    def __init__(self, bench: Bench):
        self.bench = bench
        self.since, self.waited = time.monotonic(), waited_seconds()

    def probe(self, when: str) -> dict:
        now, waited = time.monotonic(), waited_seconds()
        elapsed = max(now - self.since, 1e-3)
        found: dict = {"when": when}
        if when != "before":
            found["waiting_percent"], found["stolen_percent"] = (
                100 * (after - before) / elapsed for before, after in zip(self.waited, waited))
        found |= speeds(self.bench)
        self.since, self.waited = time.monotonic(), waited_seconds()
        return found


def speeds(bench: Bench) -> dict:
    """A cache line's way between the two cores, and memcpy. Never fatal: a probe only explains figures."""
    found: dict = {}
    try:
        hop = run_alone([bench.helpers / "memory", "hop", *bench.cores, PROBE_SECONDS], None, bench.timeout_seconds)
        found |= numbers(hop, ("hop_ns", "hop_min_ns", "hop_p90_ns"))
        for name, size in COPY_SIZES.items():
            copied = run_alone([bench.helpers / "memory", "copy", size, PROBE_SECONDS], bench.cores[1],
                               bench.timeout_seconds)
            found[name] = numbers(copied, (BANDWIDTH_MIB_S,))[BANDWIDTH_MIB_S]
    except PeerFailed as failure:
        found["failed"] = str(failure)
    return found


def first_line(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True, cwd=HERE)
        return (done.stdout.strip().splitlines() or [""])[0]
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def describe() -> dict:
    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    flags = re.search(r"^flags\s*:.*\bhypervisor\b", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    changed = first_line("git", "status", "--porcelain", "--untracked-files=no", "--", "../src", "../include")
    return {
        "cpu": cpu.group(1) if cpu else platform.machine(),
        "virtual": bool(flags),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "verbena": first_line("git", "rev-parse", "--short", "HEAD") + (" with changes" if changed else ""),
        "perftest": first_line("dpkg-query", "-W", "-f", "${Version}", "perftest"),
        "ucx": first_line("dpkg-query", "-W", "-f", "${Version}", "ucx-utils"),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }
