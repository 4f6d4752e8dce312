"""Shared receive queues: ibv_srq_pingpong, and perftest's SEND with --use-srq, on one host and between two."""
import dataclasses

from row import Row
from rows import cm
from rows.network import across, impaired, last_ack_lost, with_gid
from rows.pair import AS_ROOT_ONLY, pair
from rows.perftest import perftest
from rows.pingpong import TIMEOUT_S, told


def srq(name: str, options: str, shows: str, size: int = 4096, count: int = 1000, **more) -> Row:
    must = (r"^  remote address: LID 0x0000, QPN 0x\w{6}, PSN 0x\w{6}, GID ", *told(size, count))
    return pair(name, "ibv_srq_pingpong", options, shows, package="ibverbs-utils", timeout_s=TIMEOUT_S, must=must, **more)


PINGPONGS = [
    srq("poll", "-g 0", "16 queue pairs, polling, 4,096 bytes"),
    srq("events", "-g 0 -e", "the same, sleeping until a completion event"),
    srq("q-1", "-g 0 -q 1 -n 200", "one queue pair", count=200, **AS_ROOT_ONLY),
    srq("q-32", "-g 0 -q 32 -e", "32 queue pairs, sleeping"),
    srq("r-40", "-g 0 -q 16 -r 40 -n 500", "40 receives for all of them", count=500, **AS_ROOT_ONLY),
    srq("size-1", "-g 0 -s 1 -n 200", "one byte", 1, 200, **AS_ROOT_ONLY),
    srq("size-1MiB", "-g 0 -s 1048576 -n 40", "1 MiB", 1 << 20, 40),
    srq("check", "-g 0 -c -s 20000 -n 100", "each byte received is checked", 20000, 100),
]

PERFTEST = [
    perftest("bw", "ib_send_bw", "--use-srq -n 1000", "a stream of SEND"),
    perftest("bw-q-16", "ib_send_bw", "--use-srq -q 16 -n 200", "16 queue pairs on one shared queue"),
    perftest("bw-b", "ib_send_bw", "--use-srq -b -q 4 -n 200", "both ways at once", **AS_ROOT_ONLY),
    perftest("bw-e", "ib_send_bw", "--use-srq -e -n 500", "sleeping until a completion event", **AS_ROOT_ONLY),
    perftest("bw-s-1048576", "ib_send_bw", "--use-srq -s 1048576 -n 50", "1 MiB", **AS_ROOT_ONLY),
    perftest("lat", "ib_send_lat", "--use-srq -n 200", "to and fro, polling"),
    cm.perftest("bw-R", "ib_send_bw", "--use-srq -R -q 2 -n 500", "connected by RDMA CM"),
    perftest("bw-uc", "ib_send_bw", "--use-srq -c UC -s 1024 -n 100", "UC: a stream of SEND"),
    perftest("lat-ud", "ib_send_lat", "--use-srq -c UD -s 64 -n 100", "UD: to and fro"),
]

NETWORK = ("poll", "events", "q-32", "size-1MiB", "check", "bw", "bw-q-16", "bw-b", "lat", "bw-R", "bw-uc", "lat-ud")


def between_hosts() -> list[Row]:
    rows = [across("hosts", row, row.name, 1500) for row in PINGPONGS + PERFTEST if row.name in NETWORK]
    check = next(row for row in PINGPONGS if row.name == "check")
    rows.append(across("hosts", with_gid(check, 1), "check-ipv6", 1500, shows=f"{check.shows}, over IPv6"))
    short = srq("check", "-g 0 -c -q 4 -s 20000 -n 30", "each byte is checked", 20000, 30)
    rows.append(dataclasses.replace(impaired("hosts", short), again_if=last_ack_lost))
    return rows


ROWS = PINGPONGS + PERFTEST + between_hosts()
