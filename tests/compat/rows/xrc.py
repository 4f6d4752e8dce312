"""XRC: ibv_xsrq_pingpong, perftest's -c XRC and RDMA CM's rdma_xclient, on one host and between two."""
import dataclasses

from row import ROOT, Row
from rows.cm import between_hosts, connects
from rows.network import across
from rows.pair import ADDRESS, pair
from rows.perftest import perftest
from rows.pingpong import TIMEOUT_S


# The programs name their domains by files of fixed names in /tmp, which are another user's for whoever comes second.
ROOT_ONLY = {"users": (ROOT,), "remark": "as root only: the program's file in /tmp has a fixed name"}


def xsrq(name: str, options: str, shows: str, **more) -> Row:
    return pair(name, "ibv_xsrq_pingpong", options, shows, package="ibverbs-utils", timeout_s=TIMEOUT_S,
                must=(r"^  remote: LID 0000, QPN RECV \w{6} SEND \w{6}, PSN \w{6}, SRQN \w{6}, GID ", r"^success$"), **ROOT_ONLY, **more)


def clients(name: str, count: int, options: str, shows: str) -> Row:
    """One server, whose target for each client reaches the queues of all: they share a domain."""
    row = xsrq(name, options, shows)
    server, client = row.processes
    server = dataclasses.replace(server, command=(*server.command, "-c", str(count)))
    return dataclasses.replace(row, options=f"{options} -c {count}", processes=(server, *[client] * count))


PINGPONGS = [
    clients("clients-2", 2, "-g 0 -n 100", "two clients"),
    clients("clients-4", 4, "-g 0 -n 100", "four clients"),
    clients("clients-4-events", 4, "-g 0 -e -n 100", "four clients, sleeping until a completion event"),
    xsrq("poll", "-g 0 -n 200", "polling, 4,096 bytes"),
    xsrq("events", "-g 0 -e -n 200", "the same, sleeping until a completion event"),
    xsrq("size-1", "-g 0 -s 1", "one byte"),
    xsrq("size-1MiB", "-g 0 -s 1048576 -n 20", "1 MiB"),
]

PERFTEST = [
    perftest("send-bw", "ib_send_bw", "-c XRC -n 500", "a stream of SEND", **ROOT_ONLY),
    perftest("send-bw-q-16", "ib_send_bw", "-c XRC -q 16 -n 100", "16 queue pairs", **ROOT_ONLY),
    perftest("send-lat", "ib_send_lat", "-c XRC -n 200", "SEND to and fro", **ROOT_ONLY),
    perftest("write-bw", "ib_write_bw", "-c XRC -n 500", "a stream of RDMA WRITE", **ROOT_ONLY),
    perftest("write-lat", "ib_write_lat", "-c XRC -n 200", "RDMA WRITE to and fro", **ROOT_ONLY),
    perftest("read-bw", "ib_read_bw", "-c XRC -n 200", "a stream of RDMA READ", **ROOT_ONLY),
    perftest("atomic-bw", "ib_atomic_bw", "-c XRC -n 100", "fetch-and-add", **ROOT_ONLY),
]

def over_wire(row: Row) -> Row:
    return dataclasses.replace(row, name=f"{row.name}-wire", shows=f"{row.shows}, with VERBENA_PATH=wire", processes=tuple(
        dataclasses.replace(process, command=("env", "VERBENA_PATH=wire", *process.command)) for process in row.processes))


XCLIENT = connects("rdma_xclient", "rdma_xserver -c x", f"rdma_xclient -c x -s {ADDRESS}", "XRC endpoints of RDMA CM",
                   must=(r"^rdma_xclient: end 0$",), server_must=(r"^rdma_xserver: end 0$",))
CM = [
    XCLIENT,
    over_wire(XCLIENT),
    between_hosts(XCLIENT),
    connects("rdma_xclient-rc", "rdma_xserver -c r", f"rdma_xclient -c r -s {ADDRESS}", "the same programs by RC",
             must=(r"^rdma_xclient: end 0$",), server_must=(r"^rdma_xserver: end 0$",)),
]

NETWORK = ("poll", "events", "send-bw", "send-lat", "write-bw", "read-bw")

ROWS = CM + PINGPONGS + PERFTEST + [dataclasses.replace(between_hosts(row), users=(ROOT,))
                                    for row in PINGPONGS if row.name == "clients-4"] + [dataclasses.replace(across("hosts", row, row.name, 1500), **ROOT_ONLY)
                               for row in PINGPONGS + PERFTEST if row.name in NETWORK]
