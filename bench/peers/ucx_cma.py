"""UCX's kernel-assisted copy (process_vm_writev and readv) on heap memory: its fastest way for large transfers."""
from cases import BANDWIDTH, LATENCY, Bench, Case, Measured, Peer
from peers import ucx

TRANSPORT = ["-x", "cma", "-d", "memory", "-D", "zcopy"]
# -O 1: one get in flight, so that its time is a latency.
TESTS = {("write", LATENCY): ["-t", "put_lat"], ("write", BANDWIDTH): ["-t", "put_bw"],
         ("read", LATENCY): ["-t", "get", "-O", "1"], ("read", BANDWIDTH): ["-t", "get"]}


def run(case: Case, bench: Bench) -> Measured:
    return ucx.measure(case, bench, TRANSPORT + TESTS[case.operation, case.kind], ucx.HEAP)


PEER = Peer(
    name="ucx-cma",
    what="UCX's UCT layer, transport cma (the kernel copies), heap memory: WRITE beside `put_*`, READ beside `get`",
    answers={pair: pair for pair in TESTS}, run=run)
