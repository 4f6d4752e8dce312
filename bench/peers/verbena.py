"""Verbena itself, through Debian's perftest, unmodified and with its defaults."""
from cases import (BANDWIDTH, BANDWIDTH_MIB_S, LATENCY, LATENCY_US, RATE_MOPS, Bench, Case, Measured, Peer, PeerFailed,
                   everything, iterations)
from processes import environment, last_words, run_alone, run_pair

# Long enough that the agent, started before the first case, stays between cases.
ENVIRONMENT = {"VERBENA_AGENT_IDLE_MS": "60000"}

# Headers of perftest's tables. MB became MiB in later versions; it was 2^20 bytes all along. They are looked for word
# by word, so that a version with other units or columns fails instead of giving wrong figures.
LATENCY_COLUMNS = ("#bytes", "#iterations", "t_min[usec]", "t_max[usec]", "t_typical[usec]")
BANDWIDTH_COLUMNS = ("#bytes", "#iterations", "BW peak[MB/sec]", "BW average[MB/sec]", "MsgRate[Mpps]")


def table_row(text: str, columns: tuple[str, ...], size: int) -> dict[str, float]:
    lines = text.replace("[MiB/sec]", "[MB/sec]").splitlines()
    expected = " ".join(columns)
    for number, line in enumerate(lines):
        if not " ".join(line.split()).startswith(expected):
            continue
        for row in map(str.split, lines[number + 1:]):
            if row and row[0] == str(size) and len(row) >= len(columns):
                return dict(zip(columns, map(float, row)))
    raise PeerFailed(f"no table for {size} bytes in: {last_words(text)}")


def parse(text: str, case: Case) -> Measured:
    """t_typical is the median; for READ of whole round trips, else of halves."""
    if case.kind == LATENCY:
        return {LATENCY_US: table_row(text, LATENCY_COLUMNS, case.size)["t_typical[usec]"]}
    row = table_row(text, BANDWIDTH_COLUMNS, case.size)
    return {BANDWIDTH_MIB_S: row["BW average[MB/sec]"], RATE_MOPS: row["MsgRate[Mpps]"]}


def run(case: Case, bench: Bench) -> Measured:
    if not bench.verbena.exists():
        raise PeerFailed(f"no {bench.verbena.name} command there: run 'make build' first")
    port = bench.port()
    count = iterations(case.size, each_us=2, bytes_per_us=4000) if case.kind == LATENCY else \
        iterations(case.size, each_us=0.4, bytes_per_us=8000)
    # -F: no complaint about CPU frequency. -N: no peak bandwidth, whose search takes quadratic time.
    command = [bench.verbena, "run", "--", f"ib_{case.operation}_{case.kind}", "-p", port, "-s", case.size,
               "-n", count, "-F"] + (["-N"] if case.kind == BANDWIDTH else [])
    text = run_pair(command, command + ["127.0.0.1"], port, bench.cores, bench.timeout_seconds,
                    environment(ENVIRONMENT))
    return parse(text, case)


def prepare(bench: Bench) -> None:
    """Starts the agent, so that no measurement does, and so that it isn't pinned to a measured core."""
    run_alone([bench.verbena, "devices"], None, bench.timeout_seconds, environment(ENVIRONMENT))


def finish(bench: Bench) -> None:
    """In a network of our own the agent is ours to stop; elsewhere it leaves by itself."""
    if bench.own_network:
        run_alone([bench.verbena, "agent", "stop"], None, bench.timeout_seconds)


PEER = Peer(
    name="verbena",
    what="perftest, unmodified, under `verbena run`: `ib_send_*`, `ib_write_*`, `ib_read_*` on malloc memory",
    answers=everything(), run=run, prepare=prepare, finish=finish)
