"""memcpy on one core between two warm buffers: what moving the bytes costs at the least."""
from cases import BANDWIDTH_MIB_S, LATENCY_US, RATE_MOPS, Bench, Case, Measured, Peer, everything
from processes import numbers, run_alone

SECONDS = 0.1


def run(case: Case, bench: Bench) -> Measured:
    text = run_alone([bench.helpers / "memory", "copy", case.size, SECONDS], bench.cores[1], bench.timeout_seconds)
    return numbers(text, (LATENCY_US, BANDWIDTH_MIB_S, RATE_MOPS))


PEER = Peer(
    name="memcpy",
    what="the C library's memcpy on one core, warm buffers: a limit rather than a rival, since nothing crosses cores",
    answers={pair: ("copy", "copy") for pair in everything()}, run=run)
