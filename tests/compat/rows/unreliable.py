"""UC and UD without RDMA CM: what arrives is whole, and nobody repeats what doesn't. So no row sends more at once than
the receiver has room for, however late it looks: a lost message would be nobody's fault, and the row would hang."""
import dataclasses

from row import ROOT, Row
from rows.network import IMPAIRED, across, with_faults, with_gid
from rows.pair import AS_ROOT_ONLY, pair
from rows.perftest import perftest
from rows.pingpong import TIMEOUT_S, told


def pingpong(name: str, kind: str, options: str, shows: str, size: int, count: int, **more) -> Row:
    must = (r"^  remote address: LID 0x0000, QPN 0x\w{6}, PSN 0x\w{6},? GID ", *told(size, count))
    return pair(name, f"ibv_{kind}_pingpong", options, shows, package="ibverbs-utils", timeout_s=TIMEOUT_S, must=must,
                **more)


def uc(name: str, options: str, shows: str, size: int = 4096, count: int = 1000, **more) -> Row:
    return pingpong(f"uc-{name}", "uc", options, shows, size, count, **more)


def ud(name: str, options: str, shows: str, size: int = 1024, count: int = 1000, **more) -> Row:
    return pingpong(f"ud-{name}", "ud", options, shows, size, count, **more)


PINGPONGS = [
    uc("poll", "-g 0 -n 200", "UC: polling, 4,096 bytes", count=200),
    uc("events", "-g 0 -e", "UC: sleeping until a completion event"),
    uc("size-0", "-g 0 -s 0 -n 100", "UC: messages without content", 0, 100, **AS_ROOT_ONLY),
    uc("size-100000", "-g 0 -c -s 100000 -n 50", "UC: many packets each, every byte checked", 100000, 50),
    uc("r-1", "-g 0 -r 1 -e -n 200", "UC: a receive queue of one", count=200, **AS_ROOT_ONLY),
    ud("poll", "-g 0 -s 1024 -n 200", "UD: polling, 1,024 bytes, all that a packet holds", count=200),
    ud("events", "-g 0 -e -s 1024", "UD: sleeping until a completion event"),
    ud("size-1", "-g 0 -s 1 -n 100", "UD: one byte", 1, 100, **AS_ROOT_ONLY),
    ud("check", "-g 0 -c -s 1000 -n 100", "UD: each byte is checked", 1000, 100),
]

BANDWIDTH = [
    perftest("send_bw-uc", "ib_send_bw", "-c UC -s 1024 -n 100", "UC: a stream of SEND"),
    perftest("send_bw-uc-q-4-e", "ib_send_bw", "-c UC -q 4 -e -s 1024 -n 30", "UC: 4 queue pairs, sleeping",
             **AS_ROOT_ONLY),
    perftest("write_bw-uc", "ib_write_bw", "-c UC -n 500", "UC: a stream of WRITE"),
    perftest("write_bw-uc-q-4", "ib_write_bw", "-c UC -q 4 -n 100", "UC: the same on 4 queue pairs", **AS_ROOT_ONLY),
    perftest("send_bw-ud", "ib_send_bw", "-c UD -s 1024 -n 100", "UD: a stream of SEND"),
    perftest("send_bw-ud-q-4-e", "ib_send_bw", "-c UD -q 4 -e -s 512 -n 30", "UD: 4 queue pairs, sleeping",
             **AS_ROOT_ONLY),
]

LATENCY = [
    perftest("send_lat-uc", "ib_send_lat", "-c UC -n 100", "UC: SEND to and fro"),
    perftest("send_lat-uc-s-65536", "ib_send_lat", "-c UC -e -s 65536 -n 50", "UC: 64 KiB, sleeping", **AS_ROOT_ONLY),
    perftest("write_lat-uc", "ib_write_lat", "-c UC -n 100", "UC: WRITE to and fro"),
    perftest("send_lat-ud", "ib_send_lat", "-c UD -n 100", "UD: SEND to and fro"),
    perftest("send_lat-ud-e", "ib_send_lat", "-c UD -e -s 1024 -n 100", "UD: sleeping, 1,024 bytes", **AS_ROOT_ONLY),
]

ONE_HOST = PINGPONGS + BANDWIDTH + LATENCY


def between_hosts(row: Row, addition: str = "", mtu: int = 1500, words: str = "") -> Row:
    return across("network", row, row.name + addition, mtu, shows=row.shows + words)


def on_ipv6(row: Row) -> Row:
    return between_hosts(with_gid(row, 1), "-ipv6", words=", over IPv6")


SOME = ("uc-size-100000", "ud-check", "send_bw-uc", "write_bw-uc", "send_bw-ud", "send_lat-uc", "write_lat-uc",
        "send_lat-ud")
LOCAL_ONLY = ("uc-size-0", "ud-size-1", "write_bw-uc-q-4", "send_lat-ud-e")  # to save time
TWO_HOSTS = [between_hosts(row) for row in ONE_HOST if row.name not in LOCAL_ONLY]
TWO_HOSTS += [on_ipv6(row) for row in ONE_HOST if row.name in SOME]
TWO_HOSTS += [between_hosts(row, "-jumbo", 9000, ", frames of 9,000 bytes") for row in ONE_HOST if row.name in SOME]
LARGE = ud("size-4096", "-g 0 -c -s 4096 -n 100", "UD: 4,096 bytes in a frame of 9,000", 4096, 100)
TWO_HOSTS.append(between_hosts(LARGE, mtu=9000))

# These programs wait for each message, so on their link none is lost, nor held back until others came.
UNTIDY = "duplicate=1%,delay=10ms"


def impaired(row: Row, faults: str, words: str) -> Row:
    made = between_hosts(with_faults(row, faults), "-impaired", words=f"; {words}")
    return dataclasses.replace(made, users=(ROOT,))


BAD_LINK = [impaired(row, UNTIDY, "1 % doubled, 10 ms delay") for row in (
    uc("check", "-g 0 -c -s 20000 -n 50", "UC: many packets each, every byte checked", 20000, 50),
    ud("check", "-g 0 -c -s 1000 -n 50", "UD: each byte is checked", 1000, 50),
    perftest("send_lat-uc", "ib_send_lat", "-c UC -n 50", "UC: SEND to and fro"),
    perftest("send_lat-ud", "ib_send_lat", "-c UD -n 50", "UD: SEND to and fro"),
)]
# Who is written to waits for nothing.
BAD_LINK.append(impaired(perftest("write_bw-uc", "ib_write_bw", "-c UC -n 100", "UC: a stream of WRITE"), IMPAIRED,
                         "1 % lost, doubled, reordered, 10 ms delay"))

ROWS = ONE_HOST + TWO_HOSTS + BAD_LINK
