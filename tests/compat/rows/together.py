"""Two pairs of programs at the same time."""
import functools

from row import Row
from rows.pair import PORT, ends
from rows.perftest import TIMEOUT_S, TOO_BUSY, wrong_table

PORTS = (PORT, PORT + 1)


def wrong(runs: list[tuple[str, str]], results) -> str:
    """Results are in the order of start: both servers, both clients."""
    wrongs = (wrong_table(program, options, result.output) for (program, options), result in zip(runs + runs, results))
    return next(filter(None, wrongs), "")


def together(name: str, shows: str, *commands: str) -> Row:
    runs = [(program, f"{options} -p {port}")
            for (program, _, options), port in zip((command.partition(" ") for command in commands), PORTS)]
    pairs = [ends(program, options, port=port) for (program, options), port in zip(runs, PORTS)]
    servers, clients = zip(*pairs)
    return Row(name, runs[0][0], f"{runs[0][1]} & {' '.join(runs[1])}", shows, servers + clients, package="perftest",
               needs=(runs[1][0],), again=TOO_BUSY, timeout_s=TIMEOUT_S, check=functools.partial(wrong, runs))


ROWS = [
    together("send-send", "two streams of SEND for one second", "ib_send_bw -D 1", "ib_send_bw -D 1"),
    together("write-read", "WRITE and READ for one second", "ib_write_bw -D 1", "ib_read_bw -D 1"),
    together("atomic-send-e", "atomics, and SEND that sleeps", "ib_atomic_bw -D 1", "ib_send_bw -e -n 2000"),
    together("write-q-8", "8 queue pairs each", "ib_write_bw -q 8 -n 1000", "ib_write_bw -b -q 8 -n 1000"),
]
