"""What is measured: cases, the peers that answer them, and how long one measurement lasts."""
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

OPERATIONS = ("send", "write", "read")
LATENCY, BANDWIDTH = "lat", "bw"
KINDS = (LATENCY, BANDWIDTH)
KIB, MIB = 1 << 10, 1 << 20
ALL_SIZES = (8, 64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 8 * MIB)
QUICK_SIZES = (8, 4 * KIB, 64 * KIB, MIB, 8 * MIB)

# A metric's name carries its unit. MiB is 2^20 bytes: perftest and UCX print "MB" and mean that.
LATENCY_US, BANDWIDTH_MIB_S, RATE_MOPS = "latency_us", "bandwidth_mib_s", "rate_mops"
METRICS = {LATENCY: (LATENCY_US,), BANDWIDTH: (BANDWIDTH_MIB_S, RATE_MOPS)}
UNITS = {LATENCY_US: "µs", BANDWIDTH_MIB_S: "MiB/s", RATE_MOPS: "M/s"}


class PeerFailed(Exception):
    """One case of one peer gave no number; the text says why."""


class PeerTimedOut(PeerFailed):
    """The same, and it cost the whole time limit: the run has only so much patience for these."""


@dataclass(frozen=True)
class Case:
    operation: str
    kind: str
    size: int


@dataclass
class Bench:
    """What a peer needs to know to run a case."""

    verbena: Path
    helpers: Path  # directory of the compiled helper programs
    cores: tuple[int, int]  # server, client
    timeout_seconds: float
    own_network: bool = False
    next_port: int = 20000  # below the kernel's ephemeral range

    def port(self) -> int:
        """A new one each time: nobody meets the remains of the case before."""
        self.next_port = self.next_port + 1 if self.next_port < 29999 else 20000
        return self.next_port


Answers = dict[tuple[str, str], tuple[str, str]]
Measured = dict[str, float]


@dataclass(frozen=True)
class Peer:
    name: str
    what: str  # one sentence for the report
    # (operation, kind) of RDMA -> which of the peer's own measurements stands beside it. Not all have all; and one
    # of TCP's or memcpy's may serve several, so that it is measured once a round.
    answers: Answers
    run: Callable[[Case, Bench], Measured]
    prepare: Callable[[Bench], None] = field(default=lambda bench: None)
    finish: Callable[[Bench], None] = field(default=lambda bench: None)


def everything() -> Answers:
    return {(operation, kind): (operation, kind) for operation in OPERATIONS for kind in KINDS}


def size_name(size: int) -> str:
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def iterations(size: int, each_us: float, bytes_per_us: float, seconds: float = 0.2) -> int:
    """As many as last about `seconds`, given what one costs at least and what its bytes cost. At least 30, since
    medians and queues need some; at most 500,000, which perftest's own bookkeeping still does quickly."""
    return max(30, min(500_000, int(seconds * 1e6 / (each_us + size / bytes_per_us))))


def number(value: float) -> str:
    """Three digits that mean something, and no exponents: 0.0137, 4.82, 53.1, 12,300."""
    if value >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    digits = 3 - len(str(int(value))) if value >= 1 else 3
    return f"{value:.{digits}f}" if value >= 0.1 else f"{value:.3g}" if value >= 1e-4 else f"{value:.6f}"
