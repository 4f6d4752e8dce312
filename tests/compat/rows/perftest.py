"""What the themes of perftest's programs share: the table that both ends print, and what must be in it."""
import functools
import re
import shlex

from row import Result, Row
from rows.pair import AS_ROOT_ONLY, PORT, pair

ALL_SIZES = [1 << power for power in range(1, 24)]  # of -a
# Of 4,096 bytes and more a bandwidth is never shown as 0.00, however busy the machine, but the rate may be: on a link
# with losses a MiB can take two seconds.
SHOWS_BANDWIDTH = 4096
# Before each line that perftest prints it measures the processor's clock, and gives up if the machine was busy.
TOO_BUSY = r"Correlation coefficient r\^2: \S+ < 0\.9"
TIMEOUT_S = 180  # for all those measurements


def option(options: str, flag: str, default: int) -> int:
    words = shlex.split(options)
    return int(words[words.index(flag) + 1]) if flag in words else default


def sizes(program: str, options: str, server: bool) -> list[int]:
    if "-a" in shlex.split(options):
        # Who is read or written knows only what the other end tells it last.
        return ALL_SIZES[-1:] if server and program in ("ib_read_bw", "ib_write_bw") else ALL_SIZES
    usual = 8 if "atomic" in program else 2 if program.endswith("lat") else 65536
    return [option(options, "-s", usual)]


def iterations(program: str, options: str) -> int:
    """As a line of the table tells them; 0: as many as the machine manages in the time given."""
    if "-D" in shlex.split(options):
        return 0
    usual = 5000 if program == "ib_write_bw" else 1000
    return option(options, "-n", usual) * option(options, "-q", 1)


def table(output: str) -> list[list[float]]:
    """The lines of numbers below the heading."""
    lines = output.partition("#bytes")[2].splitlines()[1:]
    return [[float(word) for word in line.split()] for line in lines if re.match(r" *\d", line)]


def figures(program: str, line: list[float]) -> list[float]:
    """Those of a line that are never zero: latencies, or bandwidth, or message rate."""
    if program.endswith("lat"):
        return line[2:6]  # least, greatest, typical, average; with -D average and rate
    return line[3:4] if line[0] >= SHOWS_BANDWIDTH else line[4:5]


def wrong_table(program: str, options: str, output: str, server: bool = False) -> str:
    lines = table(output)
    if [line[0] for line in lines] != sizes(program, options, server):
        return f"sizes are {[int(line[0]) for line in lines]}, expected {sizes(program, options, server)}"
    expected = iterations(program, options)
    for line in lines:
        if line[1] != expected and (expected or not line[1]):
            return f"{line[1]:.0f} iterations of {line[0]:.0f} bytes, expected {expected or 'some'}"
        if not figures(program, line) or min(figures(program, line)) <= 0:
            return f"nothing measured in {line}"
    return ""


def wrong_tables(program: str, options: str, results: list[Result]) -> str:
    server, client = (result.output for result in results)
    # Who is read from doesn't know when it was, so it has no latencies.
    silent = program in ("ib_read_lat", "ib_atomic_lat")
    return wrong_table(program, options, client) or ("" if silent else wrong_table(program, options, server, True))


def perftest(name: str, program: str, options: str, shows: str, **more) -> Row:
    return pair(name, program, options, shows, package="perftest", port=option(options, "-p", PORT), again=TOO_BUSY,
                timeout_s=TIMEOUT_S, check=functools.partial(wrong_tables, program, options), **more)


def every_size(name: str, program: str, options: str) -> Row:
    return perftest(name, program, options, "each size from 2 bytes to 8 MiB", **AS_ROOT_ONLY)


def inline(name: str, program: str, options: str, **more) -> Row:
    size = option(options, "-I", 0)
    return perftest(name, program, options, "inline data" if size else "no inline data",
                    must=(rf"Max inline data : {size}\[B\]",), **more)


def bandwidth(program: str) -> list[Row]:
    """What all bandwidth tests have."""
    return [
        perftest("bw", program, "-n 1000", "a stream of operations, 128 at a time"),
        perftest("bw-b", program, "-b -n 1000", "both ways at once"),
        perftest("bw-q-8", program, "-q 8 -n 200", "8 queue pairs"),
        perftest("bw-l-8", program, "-l 8 -n 800", "posted in lists of 8"),
        perftest("bw-t-1", program, "-t 1 -n 500", "a send queue of one"),
        perftest("bw-Q-16", program, "-Q 16 -n 1600", "one completion for 16 operations", **AS_ROOT_ONLY),
        perftest("bw-x-1", program, "-x 1 -n 500", "GID 1, an IPv6 address", **AS_ROOT_ONLY),
    ]


def bandwidth_of_sizes(program: str) -> list[Row]:
    return [perftest("bw-s-1", program, "-s 1 -n 1000", "one byte"),
            perftest("bw-s-1048576", program, "-s 1048576 -n 100", "1 MiB")]


def latency_of_sizes(program: str) -> list[Row]:
    return [perftest("lat-s-1", program, "-s 1 -n 100", "one byte", **AS_ROOT_ONLY),
            perftest("lat-s-1048576", program, "-s 1048576 -n 50", "1 MiB", **AS_ROOT_ONLY),
            every_size("lat-a", program, "-a -n 10")]
