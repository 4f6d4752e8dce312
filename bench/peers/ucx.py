"""UCX on one host, on ordinary heap memory, as a program that registers malloc memory would use it."""
from cases import (BANDWIDTH, BANDWIDTH_MIB_S, LATENCY, LATENCY_US, RATE_MOPS, Bench, Case, Measured, Peer, PeerFailed,
                   iterations)
from processes import environment, last_words, run_pair

HOST_ONLY = {"UCX_TLS": "posix,cma,self", "UCX_WARN_UNUSED_ENV_VARS": "n"}
# Without these ucx_perftest takes UCX's own shared memory or huge pages for its buffers, which a program's memory isn't.
# And ucx_perftest never writes what it sends: fresh pages would all be the kernel's one zero page, always in the
# cache, and large messages nearly twice as fast as real ones. glibc's perturb byte fills them.
HEAP = HOST_ONLY | {"UCX_ALLOC_PRIO": "heap", "UCX_CMA_ALLOC": "heap", "MALLOC_PERTURB_": "165"}
TESTS = {("send", LATENCY): "tag_lat", ("send", BANDWIDTH): "tag_bw",
         ("write", LATENCY): "ucp_put_lat", ("write", BANDWIDTH): "ucp_put_bw"}


def parse(text: str, kind: str) -> Measured:
    """ucx_perftest -v prints CSV. Its latency is half a round trip in *_lat tests, the whole in get; its megabyte is
    2^20 bytes."""
    lines = text.splitlines()
    for names, values in zip(lines, lines[1:]):
        if not names.startswith("iterations,"):
            continue
        try:
            row = dict(zip(names.split(","), map(float, values.split(",")), strict=True))
            if kind == LATENCY:
                return {LATENCY_US: row["50.0_percentile_lat"]}
            return {BANDWIDTH_MIB_S: row["overall_bw"], RATE_MOPS: row["overall_mr"] / 1e6}
        except (KeyError, ValueError) as error:
            raise PeerFailed(f"unexpected row ({error}): {values}") from error
    raise PeerFailed(f"no figures in: {last_words(text)}")


def measure(case: Case, bench: Bench, test: list[str], settings: dict[str, str]) -> Measured:
    """One ucx_perftest; the other UCX peers use this too."""
    port = bench.port()
    count = iterations(case.size, each_us=2, bytes_per_us=4000) if case.kind == LATENCY else \
        iterations(case.size, each_us=0.4, bytes_per_us=8000)
    client = ["ucx_perftest", "127.0.0.1", "-p", port, "-f", "-v", "-s", case.size, "-n", count,
              "-w", max(10, count // 10), *test]
    text = run_pair(["ucx_perftest", "-p", port], client, port, bench.cores, bench.timeout_seconds,
                    environment(settings))
    return parse(text, case.kind)


def run(case: Case, bench: Bench) -> Measured:
    return measure(case, bench, ["-t", TESTS[case.operation, case.kind]], HEAP)


# No READ here: a get of heap memory is emulated by messages, and ucx_perftest's server looks for those once a
# millisecond, so the figure would be the test's and not UCX's. The READ of heap memory is in ucx_cma.py.
PEER = Peer(
    name="ucx",
    what="UCX's UCP layer, `UCX_TLS=posix,cma,self`, heap memory: SEND beside `tag_*`, WRITE beside `ucp_put_*`",
    answers={pair: pair for pair in TESTS}, run=run)
