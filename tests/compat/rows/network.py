"""The same programs between two hosts: network namespaces joined by a veth pair, so that every byte goes over RoCEv2."""
import dataclasses

from row import ORDINARY, ROOT, Process, Result, Row
from rows import atomic, pingpong, read, send, write
from rows.pair import ADDRESS

# Of each program's rows those that don't depend on being on one host, and none that moves gigabytes.
CHOSEN = {
    pingpong: ("poll", "events", "size-0", "size-1", "size-1MiB", "check", "check-events", "r-1", "r-1-events", "m-256"),
    send: ("bw", "bw-b", "bw-q-8", "bw-l-8", "bw-t-1", "bw-e", "bw-I-64", "bw-s-1048576", "lat", "lat-e", "lat-I-64"),
    write: ("bw", "bw-b", "bw-q-8", "bw-l-8", "bw-t-1", "bw-I-64", "bw-s-1048576", "lat", "lat-I-64"),
    read: ("bw", "bw-b", "bw-q-8", "bw-l-8", "bw-t-1", "bw-e", "bw-s-1048576", "lat", "lat-e"),
    atomic: ("bw", "bw-b", "bw-q-8", "bw-t-1", "lat", "lat-swap"),
}
# Enough to see that an ordinary user's packets go out, too.
BOTH_USERS = ("poll", "events", "bw", "lat")


def is_client(process: Process) -> bool:
    return process.command[-1] == ADDRESS


def across(theme: str, row: Row, name: str, mtu: int, **changes) -> Row:
    """`row` with its clients on the second host."""
    users = (ROOT, ORDINARY) if row.name in BOTH_USERS and mtu == 1500 else (ROOT,)
    processes = tuple(dataclasses.replace(process, host=int(is_client(process))) for process in row.processes)
    return dataclasses.replace(row, name=f"{theme}-{name}", hosts=2, mtu=mtu, users=users, remark="",
                               processes=processes, **changes)


def with_option(row: Row, option: str) -> Row:
    """`option` before the address, on all ends."""
    def added(command: tuple[str, ...], client: bool) -> tuple[str, ...]:
        return (*command[:-1], *option.split(), ADDRESS) if client else (*command, *option.split())
    return dataclasses.replace(row, options=f"{row.options} {option}", processes=tuple(
        dataclasses.replace(process, command=added(process.command, is_client(process))) for process in row.processes))


def with_gid(row: Row, index: int) -> Row:
    return with_option(row, f"{'-g' if 'pingpong' in row.program else '-x'} {index}")


def rows() -> list[Row]:
    found = []
    for module, names in CHOSEN.items():
        theme = module.__name__.split(".")[-1]
        if unknown := set(names) - {row.name for row in module.ROWS}:
            raise LookupError(f"{theme} has no rows {sorted(unknown)}")
        for row in module.ROWS:
            if row.name in names:
                found.append(across(theme, row, row.name, 1500))
        for row in module.ROWS:
            if row.name in ("bw", "lat", "check"):
                found.append(across(theme, row, f"{row.name}-jumbo", 9000, shows=f"{row.shows}, frames of 9,000 bytes"))
                found.append(across(theme, with_gid(row, 1), f"{row.name}-ipv6", 1500, shows=f"{row.shows}, over IPv6"))
    return found


LINK_LOCAL_GID = 2  # after the addresses of hosts.ADDRESSES


def link_local(theme: str, row: Row) -> Row:
    return across(theme, with_gid(row, LINK_LOCAL_GID), f"{row.name}-link-local", 1500,
                  shows=f"{row.shows}, from one link-local address to the other")


LINK_LOCAL = [
    link_local("pingpong", pingpong.pingpong("check", "-c -n 200", "each byte received is checked", count=200,
                                             must=(r"local address: .* GID fe80::", r"remote address: .* GID fe80::"))),
    link_local("write", write.perftest("bw", "ib_write_bw", "-n 1000", "a stream of operations")),
]


def captured(theme: str, row: Row) -> Row:
    """`row` with each end's packets in a file that tshark reads and in lines on stderr."""
    wrapper = ("{python}", "{snippets}/captured.py", "{tmp}")
    processes = tuple(dataclasses.replace(
        process, command=(*wrapper, *process.command),
        must=(*process.must, r"^verbena: out .* > .* (RC|UD) \w+ qp ", r"^verbena: in  .* > .* RC \w+ qp ",
              r"^[1-9]\d* packets captured, 0 malformed$")) for process in row.processes)
    made = dataclasses.replace(row, processes=processes, needs=("tshark",))
    return across(theme, made, f"{row.name}-captured", 1500,
                  shows=f"{row.shows}; `VERBENA_CAPTURE` and `VERBENA_TRACE` on both ends")


CAPTURED = [
    captured("pingpong", pingpong.pingpong("check", "-g 0 -c -s 20000 -n 20", "each byte is checked", 20000, 20)),
]


# Each end loses, doubles, reorders and delays what comes in.
IMPAIRED = "loss=1%,duplicate=1%,reorder=1%,delay=10ms"


def with_faults(row: Row, faults: str) -> Row:
    return dataclasses.replace(row, processes=tuple(
        dataclasses.replace(process, command=("env", f"VERBENA_FAULTS={faults}", *process.command))
        for process in row.processes))


def impaired(theme: str, row: Row) -> Row:
    """`row` over a bad link."""
    made = across(theme, with_faults(row, IMPAIRED), f"{row.name}-impaired", 1500, timeout_s=180,
                  shows=f"{row.shows}; 1 % lost, doubled, reordered, 10 ms delay")
    return dataclasses.replace(made, users=(ROOT,))


def last_ack_lost(results: list[Result]) -> bool:
    """One end finished and left, the other got no answer any more. The pingpongs leave as soon as they have all
    they count, without asking the peer: if the acknowledgement of its last message is lost, nobody is there to
    repeat it, with an adapter neither. Traces of such runs show just that: about 1 run in 60 over this link. Both
    ends failing, or one before the other was done, isn't that."""
    failed = [result for result in results if result.status != 0]
    return (len(failed) == 1 and failed[0].status == 1
            and "Failed status transport retry counter exceeded (12)" in failed[0].output)


BAD_LINK = [
    dataclasses.replace(impaired("pingpong", pingpong.pingpong(
        "check", "-g 0 -c -s 20000 -n 30", "each byte is checked", 20000, 30)), again_if=last_ack_lost),
    impaired("send", send.perftest("bw", "ib_send_bw", "-n 30", "a stream of operations")),
    impaired("write", write.perftest("bw", "ib_write_bw", "-n 30", "a stream of operations")),
    impaired("read", read.perftest("bw", "ib_read_bw", "-n 30", "a stream of operations")),
    impaired("atomic", atomic.perftest("bw", "ib_atomic_bw", "-n 30", "a stream of operations")),
]

ROWS = rows() + LINK_LOCAL + CAPTURED + BAD_LINK
