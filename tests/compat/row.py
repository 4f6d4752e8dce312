"""What a row of the compatibility table is. Rows live in rows/, one small file a theme."""
from dataclasses import dataclass, field
from typing import Callable

ROOT = "root"
ORDINARY = "ordinary"
BOTH = (ROOT, ORDINARY)

# What the table says of a row whose checks pass.
WORKS = "works"
LOADS = "loads"  # the program finds us and stays whole, but what it is for comes later


@dataclass(frozen=True)
class Process:
    """One process of a row. In strings, {verbena} is the command, {lib} our library directory, {snippets} the
    directory of that name here, {python} Debian's python3, {tmp} a scratch directory that the user owns."""

    command: tuple[str, ...]
    status: int = 0  # expected exit status; -N: died by signal N
    must: tuple[str, ...] = ()  # regular expressions (multi-line) that its output, stdout and stderr, must match
    must_not: tuple[str, ...] = ()
    input: str = ""
    host: int = 0  # 0 or 1: in whose network namespace it runs
    ready: str = ""  # the next process starts once this appears on its output (then a terminal)
    listens: int = 0  # the next process starts once it listens on this TCP port
    end_with: int = 0  # a server's end: the signal it gets once all others are done


@dataclass(frozen=True)
class Row:
    name: str  # unique within the theme; `--only` matches theme.name
    program: str
    options: str  # as a user would type them
    shows: str
    processes: tuple[Process, ...]  # one, or a server and its client, started in this order
    package: str = ""  # Debian's name; empty: our own command
    needs: tuple[str, ...] = ()  # programs, or "python:MODULE", besides `program`
    users: tuple[str, ...] = BOTH
    timeout_s: float = 30
    hosts: int = 1  # 2: two network namespaces, 10.77.0.1 and 10.77.0.2, joined by a veth pair
    mtu: int = 1500  # of the veth pair
    real_device: bool = False  # the machine shows an RDMA device that isn't ours (made up in a mount namespace)
    files: dict[str, str] = field(default_factory=dict)  # put into {tmp}
    check: Callable[[list["Result"]], str] | None = None  # more than expressions can say; returns what is wrong
    again: str = ""  # output by which a program says that the machine, not the library, was at fault: tried again
    again_if: Callable[[list["Result"]], bool] | None = None  # the same, where one end's output alone can't tell
    state: str = WORKS
    remark: str = ""


@dataclass(frozen=True)
class Result:
    """What a process did."""

    status: int | None  # None: had to be killed at the timeout
    output: str


def one(name: str, program: str, options: str, shows: str, command: str | tuple[str, ...], **more) -> Row:
    """A row with a single process; a command that is one string is a shell script."""
    if isinstance(command, str):
        command = ("sh", "-c", command)
    of_process = {key: more.pop(key) for key in list(more) if key in Process.__dataclass_fields__}
    return Row(name, program, options, shows, (Process(command, **of_process),), **more)


def under_run(name: str, program: str, options: str, shows: str, *arguments: str, run=(), **more) -> Row:
    """`verbena run [run options] -- program arguments`."""
    return one(name, program, options, shows, ("{verbena}", "run", *run, "--", program, *arguments), **more)
