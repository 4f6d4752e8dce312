"""What is measured over the network: links, cases, what stands beside each, and what issue 4 aims at."""
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cases import BANDWIDTH, BANDWIDTH_MIB_S, KIB, LATENCY, LATENCY_US, MIB, RATE_MOPS, Bench, Case, Measured, iterations
from peers import verbena
from processes import environment, numbers, run_pair

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests/compat"))
import hosts  # noqa: E402 (the same namespaces and veth pair as the compatibility table's)

# Beside it for orientation: a loop that only copies and takes CRCs, and what the kernel does for that alone.
OURS, TCP, UDP, FLOOR, KERNEL = "verbena", "tcp", "udp", "floor", "kernel"
BANDWIDTH_SIZES = (64 * KIB, MIB)
SMALL = 8
# "write" waits in memory, as ib_write_lat does, and polls for the end of its own requests only: in between the library's
# helper thread has to take packets in.
LATENCY_OPERATIONS = {"send": "SEND", "polled-write": "WRITE", "write": "WRITE, the target not polling"}
QUEUE_PAIRS = (1, 16, 256, 1000)
STOCK_BUFFER = 212_992  # net.core.rmem_max where nobody changed it
# Messages of all queue pairs together: one measurement lasts some tenths of a second.
RATE_MESSAGES = 192_000
# The same for any number of queue pairs, so that each message costs the program the same: perftest's own defaults
# want 640 places a queue pair and a completion every 100 requests, which 1,000 queue pairs don't reach.
RATE_DEPTH = 64

WIRE = verbena.ENVIRONMENT | {"VERBENA_PATH": "wire"}
METRICS = {"bandwidth": BANDWIDTH_MIB_S, "latency": LATENCY_US, "rate": RATE_MOPS}
LEAST_BANDWIDTH, MOST_LATENCY, LEAST_RATE = 0.8, 1.5, 0.8


@dataclass(frozen=True)
class Link:
    name: str
    what: str
    mtu: int = 0  # 0: loopback
    payload: int = 4096  # of a full RoCE packet


LINKS = (Link("lo", "loopback, `VERBENA_PATH=wire`"),
         Link("veth-1500", "two network namespaces joined by veth, MTU 1500 (an RDMA MTU of 1024)", 1500, 1024),
         Link("veth-9000", "the same, MTU 9000 (4096)", 9000))


@dataclass(frozen=True)
class WireCase:
    measure: str  # of METRICS
    who: str
    operation: str
    size: int
    queue_pairs: int = 1
    buffer: int = 0  # what SO_RCVBUF is capped at; 0: not at all

    def name(self, link: str) -> str:
        more = f"/{self.queue_pairs} QPs" if self.measure == "rate" else "/capped" if self.buffer else ""
        return f"wire/{link}/{self.operation}_{self.measure}/{self.size}/{self.who}{more}"

    def row(self, link: str) -> dict:
        return {"link": link} | asdict(self)


def plan() -> list[WireCase]:
    """One round on one link; what is compared stands next to each other in time."""
    found = []
    for size in BANDWIDTH_SIZES:
        found += [WireCase("bandwidth", who, "stream", size) for who in (TCP, FLOOR, KERNEL)]
        found += [WireCase("bandwidth", OURS, operation, size, buffer=buffer)
                  for buffer in (0, STOCK_BUFFER) for operation in ("write", "read")]
    found += [WireCase("latency", who, "pingpong", SMALL) for who in (UDP, KERNEL)]
    found += [WireCase("latency", OURS, operation, SMALL) for operation in LATENCY_OPERATIONS]
    found += [WireCase("rate", OURS, operation, SMALL, queue_pairs=count)
              for operation in ("send", "write") for count in QUEUE_PAIRS]
    return found


@dataclass
class Ends:
    """Where the two processes of a measurement run: the server here, the client perhaps elsewhere."""

    server: str  # address
    client_prefix: list[str] = field(default_factory=list)
    payload: int = 4096


def make_ends(link: Link) -> Ends:
    """In a network namespace of our own; see wire.py."""
    if link.mtu == 0:
        hosts.Host([]).ip("link set lo up")
        return Ends("127.0.0.1", payload=link.payload)
    first, second = hosts.make_hosts(2, link.mtu)
    first.ip("link set lo up")
    return Ends(hosts.ADDRESSES[0][0].split("/")[0], second.prefix, link.payload)


def pair(ends: Ends, bench: Bench, port: int, server: list, client: list, env: dict[str, str] | None = None) -> str:
    return run_pair(server, [*ends.client_prefix, *client], port, bench.cores, bench.timeout_seconds,
                    environment(env))


def run_tcp(case: WireCase, ends: Ends, bench: Bench) -> Measured:
    port, program = bench.port(), bench.helpers / "tcp_peer"
    count = iterations(case.size, each_us=0.7, bytes_per_us=4000, seconds=0.4)
    text = pair(ends, bench, port, [program, "serve", port, ends.server],
                [program, "stream", port, case.size, count, ends.server])
    return numbers(text, (BANDWIDTH_MIB_S,))


def run_floor(case: WireCase, ends: Ends, bench: Bench) -> Measured:
    port, program = bench.port(), bench.helpers / "floor_peer"
    count = iterations(case.size, each_us=2, bytes_per_us=3000, seconds=0.4)
    text = pair(ends, bench, port, [program, "serve", port, ends.server],
                [program, "bare" if case.who == KERNEL else "stream", port, case.size, count, ends.payload, ends.server])
    return numbers(text, (BANDWIDTH_MIB_S,))


def run_udp(case: WireCase, ends: Ends, bench: Bench) -> Measured:
    port, program = bench.port(), bench.helpers / "udp_peer"
    count = iterations(case.size, each_us=5, bytes_per_us=4000, seconds=0.4)
    text = pair(ends, bench, port, [program, "serve", port, ends.server],
                [program, "steered" if case.who == KERNEL else "lat", port, case.size, count, ends.server])
    return numbers(text, (LATENCY_US,))


def run_polled_write(case: WireCase, ends: Ends, bench: Bench) -> Measured:
    port, program = bench.port(), [bench.verbena, "run", "--", bench.helpers / "rdma_peer"]
    count = iterations(case.size, each_us=10, bytes_per_us=4000, seconds=0.4)
    text = pair(ends, bench, port, [*program, "serve", port, ends.server],
                [*program, "write", port, case.size, count, ends.server], WIRE)
    return numbers(text, (LATENCY_US,))


def run_ours(case: WireCase, ends: Ends, bench: Bench) -> Measured:
    if case.operation == "polled-write":
        return run_polled_write(case, ends, bench)
    port = bench.port()
    kind = LATENCY if case.measure == "latency" else BANDWIDTH
    options: list = ["-F", "-x", 0, "-s", case.size, "-p", port]
    if case.measure == "latency":
        each_us = 400 if case.operation == "write" else 10
        options += ["-n", iterations(case.size, each_us=each_us, bytes_per_us=4000, seconds=0.4)]
    elif case.measure == "bandwidth":
        options += ["-N", "-n", iterations(case.size, each_us=2, bytes_per_us=1000, seconds=0.3)]
    else:
        options += ["-N", "-n", RATE_MESSAGES // case.queue_pairs, "-q", case.queue_pairs, "-t", RATE_DEPTH, "-Q", 1]
        options += ["-r", 2 * RATE_DEPTH] if case.operation == "send" else []
    command = [bench.verbena, "run", "--", f"ib_{case.operation}_{kind}", *options]
    settings = WIRE | ({"VERBENA_RECEIVE_BUFFER": str(case.buffer)} if case.buffer else {})
    text = pair(ends, bench, port, command, [*command, ends.server], settings)
    found = verbena.parse(text, Case(case.operation, kind, case.size))
    return {METRICS[case.measure]: found[METRICS[case.measure]]}


def run_kernel(case: WireCase, ends: Ends, bench: Bench) -> Measured:
    return (run_udp if case.measure == "latency" else run_floor)(case, ends, bench)


RUNNERS = {OURS: run_ours, TCP: run_tcp, UDP: run_udp, FLOOR: run_floor, KERNEL: run_kernel}


def run(case: WireCase, ends: Ends, bench: Bench) -> Measured:
    return RUNNERS[case.who](case, ends, bench)
