"""What is measured inside the guest: the kernel's rxe and Verbena, each over a veth pair of its own, made alike.

rxe of these kernels works only in the first network namespace, and has UDP port 4791 there: Verbena has two others."""
from dataclasses import asdict, dataclass

from cases import BANDWIDTH, KIB, LATENCY, LATENCY_US, MIB, Bench, Case, Measured, PeerFailed
from peers import verbena
from processes import environment, numbers, run_alone, run_pair
from wire_cases import KERNEL, METRICS

RXE, OURS, UDP, UDP_BESIDE_RXE = "rxe", "verbena", "udp", "udp-beside-rxe"
SMALL = 8
MTU = 9000  # of both links: 4096 bytes in a full RoCE packet
# perftest leaves out a second at each end: two are measured, whatever the emulation manages in them.
SECONDS = ["-D", 4, "-f", 1]
# Few, since a busy host gives each processor of the guest its turn every few milliseconds only; the median is taken.
# And patient (0.5 s a try): rxe acknowledges in the sender's kernel, Verbena in the peer's process, on the other one.
ROUND_TRIPS = ["-n", 1000, "-u", 17]
RXE_SERVER, OUR_SERVER = "10.98.1.1", "10.97.1.1"  # the first is what rxevm's rxe_pair gives
NAMESPACES = ("verbena-a", "verbena-b")
# The agents stay through everything.
WIRE = {"VERBENA_PATH": "wire", "VERBENA_AGENT_IDLE_MS": "3600000"}

SETUP = f"""
. /ctl/lib.sh
rxe_pair {MTU} >&2 || exit 1
for name in {' '.join(NAMESPACES)}; do ip netns add $name && ip -n $name link set lo up || exit 1; done
ip link add e0 mtu {MTU} netns {NAMESPACES[0]} type veth peer name e1 mtu {MTU} netns {NAMESPACES[1]} || exit 1
ip -n {NAMESPACES[0]} addr add {OUR_SERVER}/24 dev e0 && ip -n {NAMESPACES[0]} link set e0 up || exit 1
ip -n {NAMESPACES[1]} addr add 10.97.1.2/24 dev e1 && ip -n {NAMESPACES[1]} link set e1 up || exit 1
echo "kernel $(uname -r)"
for device in rxe1 rxe2; do echo "$device $(gididx $device)"; done
"""


@dataclass(frozen=True)
class GuestCase:
    measure: str  # of METRICS
    who: str
    operation: str
    size: int

    def row(self) -> dict:
        return asdict(self)


def plan() -> list[GuestCase]:
    """One round; what is compared stands next to each other in time."""
    found = [GuestCase("bandwidth", who, operation, size)
             for operation in ("write", "read") for size in (64 * KIB, MIB) for who in (RXE, OURS)]
    found += [GuestCase("rate", who, "send", SMALL) for who in (RXE, OURS)]
    found += [GuestCase("latency", who, "send", SMALL) for who in (RXE, OURS)]
    return found + [GuestCase("latency", who, "pingpong", SMALL) for who in (UDP, KERNEL, UDP_BESIDE_RXE)]


class Guest:
    """Both links; made once, gone with the guest."""

    def __init__(self, bench: Bench):
        self.bench = bench
        told = dict(line.split(None, 1) for line in run_alone(["bash", "-c", SETUP], None, 120).splitlines()
                    if len(line.split()) == 2)
        self.kernel, self.gids = told["kernel"], (told["rxe1"], told["rxe2"])
        for namespace in NAMESPACES:  # starts the agents, so that no measurement does
            run_alone([*self.within(namespace), bench.verbena, "devices"], None, 60, environment(WIRE))

    @staticmethod
    def within(namespace: str) -> list[str]:
        return ["ip", "netns", "exec", namespace]

    def run_udp(self, case: GuestCase) -> Measured:
        port, program = self.bench.port(), self.bench.helpers / "udp_peer"
        before = [[], []] if case.who == UDP_BESIDE_RXE else [self.within(name) for name in NAMESPACES]
        address = RXE_SERVER if case.who == UDP_BESIDE_RXE else OUR_SERVER
        how = "steered" if case.who == KERNEL else "lat"
        text = run_pair([*before[0], program, "serve", port, address],
                        [*before[1], program, how, port, case.size, ROUND_TRIPS[1], address], port, self.bench.cores,
                        self.bench.timeout_seconds)
        return numbers(text, (LATENCY_US,))

    def run_perftest(self, case: GuestCase) -> Measured:
        port, kind = self.bench.port(), LATENCY if case.measure == "latency" else BANDWIDTH
        program = [f"ib_{case.operation}_{kind}", "-F", "-s", case.size, "-p", port]
        program += ROUND_TRIPS if kind == LATENCY else ["-N", *SECONDS]
        if case.who == RXE:
            ends = [[*program, "-d", device, "-x", gid] for device, gid in zip(("rxe1", "rxe2"), self.gids)]
            ends[1].append(RXE_SERVER)
        else:
            ends = [[*self.within(name), self.bench.verbena, "run", "--", *program, "-x", 0] for name in NAMESPACES]
            ends[1].append(OUR_SERVER)
        text = run_pair(*ends, port, self.bench.cores, self.bench.timeout_seconds,
                        environment(WIRE if case.who == OURS else {}))
        value = verbena.parse(text, Case(case.operation, kind, case.size))[METRICS[case.measure]]
        if value == 0:  # else it would be left out of the ratios without a word
            raise PeerFailed("nothing was completed in the time measured")
        return {METRICS[case.measure]: value}

    def run(self, case: GuestCase) -> Measured:
        return self.run_udp(case) if case.operation == "pingpong" else self.run_perftest(case)
