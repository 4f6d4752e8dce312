"""What the one-host themes have, between two hosts in every circumstance, for docs/NETWORK.md: only in
`make compat-network`, as it takes half an hour. Programs that need RDMA CM are in cm.py."""
import dataclasses
import functools
import re
import shlex
from dataclasses import dataclass

from row import ROOT, Row
from rows import atomic, pingpong, read, send, srq, together, unreliable, verbatim, write, xrc
from rows.network import IMPAIRED, across, last_ack_lost, with_faults, with_gid, with_option
from rows.perftest import option

SOURCES = {
    "pingpong": pingpong.ROWS, "send": send.ROWS, "write": write.ROWS, "read": read.ROWS, "atomic": atomic.ROWS,
    "together": together.ROWS, "verbatim": verbatim.ROWS, "unreliable": unreliable.ONE_HOST,
    "srq": srq.PINGPONGS + srq.PERFTEST, "xrc": xrc.PINGPONGS + xrc.PERFTEST,
}

COLUMN = "the column IPv6 is that"
# Rows that are about one host, or another row once they are between two.
LEFT_OUT = {
    "pingpong-gid-0": "the column IPv4 is that",
    "pingpong-gid-1": COLUMN,
    "pingpong-gid-2": "a link-local address: network.pingpong-check-link-local is that between hosts",
    "pingpong-gid-4": "a loopback address",
    "pingpong-gid-5": "a loopback address",
    "pingpong-m-4096": "its device is lo",
    "pingpong-d-i": "needs a second port on the same host",
    "send-bw-x-1": COLUMN,
    "write-bw-x-1": COLUMN,
    "read-bw-x-1": COLUMN,
    "atomic-bw-x-1": COLUMN,
    "verbatim-ib_read_bw-ibp59s0": "the line with mlx5_0 again, as an ordinary user",
    "srq-bw-R": "needs RDMA CM; srq.hosts-bw-R is that between hosts",
}

BAD_LINK = "bad link"


@dataclass(frozen=True)
class Circumstance:
    heading: str
    mtu: int = 1500
    gid: int = 0


CIRCUMSTANCES = {
    "ipv4": Circumstance("IPv4, MTU 1500"),
    "ipv6": Circumstance("IPv6, MTU 1500", gid=1),
    "ipv4-jumbo": Circumstance("IPv4, MTU 9000", 9000),
    "ipv6-jumbo": Circumstance("IPv6, MTU 9000", 9000, gid=1),
    "bad": Circumstance(BAD_LINK),
}

# --- over a bad link, where a queue pair gets less than 1 MB/s: fewer messages ---

FEW = 32  # so that lists of 8 and every sixteenth completion come out even
FEW_LARGE = 5
LARGE = 1_000_000
MINUTES = "would take minutes: a queue pair gets less than 1 MB/s there"


def few(row: Row) -> int:
    return FEW_LARGE if option(row.options, "-s", 1) >= LARGE else FEW


def cut(value, most: int):
    """With no -n above `most`: in a text, or in all texts of a tuple or list."""
    if isinstance(value, str):
        return re.sub(r"(?<=-n )\d+", lambda found: str(min(int(found[0]), most)), value)
    return type(value)(cut(part, most) for part in value)


def shortened(row: Row) -> Row:
    """`row` with fewer iterations, and expecting those."""
    most = few(row)
    if " -n " not in f" {row.options}" and "-D" not in row.options:
        row = with_option(row, "-n 1000")  # what the pingpongs do by themselves
    before = pingpong.told(option(row.options, "-s", 4096), option(row.options, "-n", 0))
    after = pingpong.told(option(row.options, "-s", 4096), option(cut(row.options, most), "-n", 0))
    changed = dict(zip(before, after))
    processes = tuple(dataclasses.replace(
        process, command=tuple(shlex.split(cut(shlex.join(process.command), most))),
        must=tuple(changed.get(pattern, pattern) for pattern in process.must)) for process in row.processes)
    check = row.check and functools.partial(row.check.func, *cut(row.check.args, most))
    return dataclasses.replace(row, options=cut(row.options, most), processes=processes, check=check)


def faults(row: Row) -> str:
    """A program of UC or UD that waits for each message can't lose any; who is written to waits for nothing."""
    reliable = not re.search(r"-c U[CD]|ibv_u[cd]_", f"{row.options} {row.program}")
    return IMPAIRED if reliable or row.program == "ib_write_bw" else unreliable.UNTIDY


def over_bad_link(row: Row) -> Row:
    made = with_faults(shortened(row), faults(row))
    again_if = last_ack_lost if "pingpong" in row.program else None
    return dataclasses.replace(made, timeout_s=180, again_if=again_if)


# --- all of them ---


def why_not(row: Row, circumstance: Circumstance) -> str:
    """Why a row doesn't run in a circumstance; empty: it does."""
    if circumstance.heading == BAD_LINK and ("-a" in shlex.split(row.options) or "1GiB" in row.name):
        return MINUTES
    return ""


@dataclass(frozen=True)
class Line:
    """A line of the page: a program and its options in each circumstance."""

    theme: str
    row: Row
    cells: dict[str, Row | str]  # by the circumstance's name; a text says why there is none


def cell(theme: str, row: Row, name: str, circumstance: Circumstance) -> Row | str:
    if reason := why_not(row, circumstance):
        return reason
    made = with_gid(row, circumstance.gid) if circumstance.gid else row
    made = over_bad_link(made) if circumstance.heading == BAD_LINK else made
    return dataclasses.replace(across(theme, made, f"{row.name}-{name}", circumstance.mtu), users=(ROOT,))


def lines() -> list[Line]:
    found = {f"{theme}-{row.name}": (theme, row) for theme, rows in SOURCES.items() for row in rows}
    if unknown := LEFT_OUT.keys() - found.keys():
        raise LookupError(f"there are no rows {sorted(unknown)}")
    return [Line(theme, row, {key: cell(theme, row, key, value) for key, value in CIRCUMSTANCES.items()})
            for name, (theme, row) in found.items() if name not in LEFT_OUT]


LINES = lines()
ROWS = [made for line in LINES for made in line.cells.values() if isinstance(made, Row)]
