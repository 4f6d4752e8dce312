"""TCP over loopback with cubic: what a program without RDMA would use. The work is in native/tcp_peer.c."""
from cases import BANDWIDTH, LATENCY, METRICS, Bench, Case, Measured, Peer, iterations
from processes import numbers, run_pair

MODES = {("send", LATENCY): "lat", ("read", LATENCY): "get", ("send", BANDWIDTH): "stream"}


def run(case: Case, bench: Bench) -> Measured:
    port, program = bench.port(), bench.helpers / "tcp_peer"
    count = iterations(case.size, each_us=8, bytes_per_us=2500) if case.kind == LATENCY else \
        iterations(case.size, each_us=0.7, bytes_per_us=5000)
    text = run_pair([program, "serve", port],
                    [program, MODES[case.operation, case.kind], port, case.size, count],
                    port, bench.cores, bench.timeout_seconds)
    return numbers(text, METRICS[case.kind])


PEER = Peer(
    name="tcp",
    what="TCP over loopback, cubic, both ends spinning: a ping-pong beside SEND and WRITE latency, request and answer "
         "beside READ latency, a stream of `send()` calls without framing beside bandwidth and message rate",
    answers={("send", LATENCY): ("send", LATENCY), ("write", LATENCY): ("send", LATENCY),
             ("read", LATENCY): ("read", LATENCY), ("send", BANDWIDTH): ("send", BANDWIDTH),
             ("write", BANDWIDTH): ("send", BANDWIDTH), ("read", BANDWIDTH): ("send", BANDWIDTH)},
    run=run)
