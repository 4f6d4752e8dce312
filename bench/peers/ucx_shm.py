"""UCX on its own shared memory: its best case, which needs a program whose buffers UCX allocated."""
from cases import BANDWIDTH, LATENCY, Bench, Case, Measured, Peer
from peers import ucx

TESTS = {("write", LATENCY): ["-t", "ucp_put_lat"], ("write", BANDWIDTH): ["-t", "ucp_put_bw"],
         ("read", LATENCY): ["-t", "ucp_get", "-O", "1"], ("read", BANDWIDTH): ["-t", "ucp_get"]}


def run(case: Case, bench: Bench) -> Measured:
    return ucx.measure(case, bench, TESTS[case.operation, case.kind], ucx.HOST_ONLY)


PEER = Peer(
    name="ucx-shm",
    what="UCX on shared memory that UCX itself allocated (no program's malloc): WRITE beside `ucp_put_*`, READ beside "
         "`ucp_get`",
    answers={pair: pair for pair in TESTS}, run=run)
