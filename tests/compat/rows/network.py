"""The same programs between two hosts: network namespaces joined by a veth pair, so that every byte goes over RoCEv2."""
import dataclasses

from row import ORDINARY, ROOT, Result, Row
from rows import atomic, pingpong, read, send, write

# Of each program's rows those that don't depend on being on one host, and none that moves gigabytes.
CHOSEN = {
    pingpong: ("poll", "events", "size-0", "size-1", "size-1MiB", "check", "check-events", "r-1", "r-1-events", "m-256"),
    send: ("bw", "bw-b", "bw-q-8", "bw-l-8", "bw-t-1", "bw-e", "bw-I-64", "bw-s-1048576", "lat", "lat-e", "lat-I-64"),
    write: ("bw", "bw-b", "bw-q-8", "bw-l-8", "bw-t-1", "bw-I-64", "bw-s-1048576", "lat", "lat-I-64"),
    read: ("bw", "bw-b", "bw-q-8", "bw-l-8", "bw-t-1", "bw-e", "bw-s-1048576", "lat", "lat-e"),
    atomic: ("bw", "bw-b", "bw-q-8", "bw-t-1", "lat", "lat-A"),
}
# Enough to see that an ordinary user's packets go out, too.
BOTH_USERS = ("poll", "events", "bw", "lat")


def across(theme: str, row: Row, name: str, mtu: int, **changes) -> Row:
    server, client = row.processes
    users = (ROOT, ORDINARY) if row.name in BOTH_USERS and mtu == 1500 else (ROOT,)
    return dataclasses.replace(row, name=f"{theme}-{name}", hosts=2, mtu=mtu, users=users, remark="",
                               processes=(server, dataclasses.replace(client, host=1)), **changes)


def with_option(row: Row, option: str) -> Row:
    """`option` before the address, on both ends."""
    server, client = row.processes
    return dataclasses.replace(
        row, options=f"{row.options} {option}",
        processes=(dataclasses.replace(server, command=(*server.command, *option.split())),
                   dataclasses.replace(client, command=(*client.command[:-1], *option.split(), client.command[-1]))))


def rows() -> list[Row]:
    found = []
    for module, names in CHOSEN.items():
        theme = module.__name__.split(".")[-1]
        for row in module.ROWS:
            if row.name in names:
                found.append(across(theme, row, row.name, 1500))
        for row in module.ROWS:
            if row.name in ("bw", "lat", "check"):
                found.append(across(theme, row, f"{row.name}-jumbo", 9000, shows=f"{row.shows}, frames of 9,000 bytes"))
                six = with_option(row, "-g 1" if module is pingpong else "-x 1")
                found.append(across(theme, six, f"{row.name}-ipv6", 1500, shows=f"{row.shows}, over IPv6"))
    return found


# Each end loses, doubles, reorders and delays what comes in.
IMPAIRED = "VERBENA_FAULTS=loss=1%,duplicate=1%,reorder=1%,delay=10ms"


def impaired(theme: str, row: Row) -> Row:
    """`row` over a bad link."""
    made = across(theme, row, f"{row.name}-impaired", 1500, timeout_s=180,
                  shows=f"{row.shows}; 1 % lost, doubled, reordered, 10 ms delay")
    return dataclasses.replace(made, users=(ROOT,), processes=tuple(
        dataclasses.replace(process, command=("env", IMPAIRED, *process.command)) for process in made.processes))


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

ROWS = rows() + BAD_LINK
