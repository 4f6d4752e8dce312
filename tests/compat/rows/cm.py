"""Programs that connect by RDMA CM."""
import dataclasses
import functools
import shlex

from row import Process, Row
from rows.pair import ADDRESS, AS_ROOT_ONLY, TROUBLE
from rows.perftest import TIMEOUT_S, TOO_BUSY, wrong_tables

TERMINATED = {"end_with": 15, "status": -15}  # a server that never ends by itself


def run(command: str, *, again: bool = False, **more) -> Process:
    retrying = ("{python}", "{snippets}/once_accepted.py") if again else ()
    return Process(("{verbena}", "run", "--", *retrying, *shlex.split(command)), **more)


def connects(name: str, server: str, client: str, shows: str, *, must=(), server_must=(), server_end=None, clients: int = 1,
             apart_s: float = 0, package: str = "rdmacm-utils", **more) -> Row:
    """A server, and clients that come once it listens, each so much later than the one before."""
    commands = [client if apart_s == 0 else f"sh -c 'sleep {apart_s * i}; exec {client}'" for i in range(clients)]
    processes = (run(server, must=server_must, **(server_end or {})),
                 *[run(command, again=True, must=must, must_not=TROUBLE) for command in commands])
    return Row(name, client.split()[0], client.partition(" ")[2], shows, processes, package=package, **more)


def perftest(name: str, program: str, options: str, shows: str, **more) -> Row:
    return connects(name, f"{program} {options}", f"{program} {options} {ADDRESS}", shows, package="perftest",
                    must=(r"^ rdma_cm QPs\t : ON",), again=TOO_BUSY, timeout_s=TIMEOUT_S,
                    check=functools.partial(wrong_tables, program, options), **more)


RPING = [
    connects("rping", f"rping -s -a {ADDRESS} -C 100", f"rping -c -a {ADDRESS} -C 100", "100 pings: SEND, READ, WRITE"),
    connects("rping-v", f"rping -s -a {ADDRESS} -v -C 100", f"rping -c -a {ADDRESS} -v -C 100", "with what was sent",
             must=(r"^ping data: rdma-ping-99: ",), server_must=(r"^server ping data: rdma-ping-99: ",)),
    connects("rping-any", "rping -s -C 10", f"rping -c -a {ADDRESS} -C 10", "a server at 0.0.0.0"),
    connects("rping-ipv6", "rping -s -a fd77::1 -C 10", "rping -c -a fd77::1 -C 10", "over IPv6"),
    # Apart, for its server keeps one request in mind only: of two that come at once it takes the second twice.
    connects("rping-P", f"rping -s -P -a {ADDRESS}", f"rping -c -a {ADDRESS} -C 3000", "three clients at a time",
             server_end=TERMINATED, clients=3, apart_s=0.2),
]

OTHERS = [
    connects("ucmatose", "ucmatose", f"ucmatose -s {ADDRESS}", "connects, transfers, disconnects",
             must=(r"^return status 0$",), server_must=(r"^return status 0$",)),
    connects("ucmatose-c-20", "ucmatose -c 20", f"ucmatose -c 20 -s {ADDRESS}", "20 connections",
             must=(r"^return status 0$",), server_must=(r"^return status 0$",)),
    connects("udaddy", "udaddy", f"udaddy -s {ADDRESS}", "datagrams", must=(r"^return status 0$",),
             server_must=(r"^return status 0$",)),
    connects("rdma_client", "rdma_server", f"rdma_client -s {ADDRESS}", "endpoints", must=(r"^rdma_client: end 0$",),
             server_must=(r"^rdma_server: end 0$",)),
    connects("cmtime", "cmtime", f"cmtime -c 100 -s {ADDRESS}", "100 connections, each step measured",
             must=(r"^disconnect   : +[0-9.]+ ",), server_end=TERMINATED, **AS_ROOT_ONLY),
    Row("qperf", "qperf", f"{ADDRESS} -cm1 -t 1 rc_bw rc_lat", "bandwidth and latency of RC",
        (run("qperf", listens=19765, **TERMINATED),
         run(f"qperf {ADDRESS} -cm1 -t 1 rc_bw rc_lat", must=(r"^    bw  =  \S+ .B/sec$", r"^    latency  =  \S+ .s$"))),
        package="qperf"),
]

PERFTEST = [
    perftest("send_bw", "ib_send_bw", "-R -n 1000", "perftest's `-R`: a stream of SEND"),
    perftest("write_lat", "ib_write_lat", "-R -n 100", "WRITE to and fro"),
    perftest("read_bw-q-4", "ib_read_bw", "-R -q 4 -n 200", "READ on 4 queue pairs", **AS_ROOT_ONLY),
    perftest("send_lat-ud", "ib_send_lat", "-R -c UD -n 100", "datagrams to and fro", **AS_ROOT_ONLY),
    perftest("send_bw-ud", "ib_send_bw", "-R -c UD -s 1024 -n 100", "a stream of datagrams", **AS_ROOT_ONLY),
    perftest("send_lat", "ib_send_lat", "-R -n 100", "SEND to and fro", **AS_ROOT_ONLY),
    perftest("send_bw-e", "ib_send_bw", "-R -e -n 500", "with completion events", **AS_ROOT_ONLY),
    perftest("send_bw-b", "ib_send_bw", "-R -b -n 500", "both ways", **AS_ROOT_ONLY),
    perftest("write_bw", "ib_write_bw", "-R -n 500", "a stream of WRITE", **AS_ROOT_ONLY),
    perftest("write_bw-q-4", "ib_write_bw", "-R -q 4 -n 200", "WRITE on 4 queue pairs", **AS_ROOT_ONLY),
    perftest("read_lat", "ib_read_lat", "-R -n 100", "READ after READ", **AS_ROOT_ONLY),
    perftest("atomic_bw", "ib_atomic_bw", "-R -n 200", "a stream of fetch-and-add", **AS_ROOT_ONLY),
    perftest("atomic_lat", "ib_atomic_lat", "-R -n 100", "fetch-and-add after fetch-and-add", **AS_ROOT_ONLY),
]


def between_hosts(row: Row) -> Row:
    server, *clients = row.processes
    return dataclasses.replace(row, name=f"{row.name}-network", hosts=2, shows=f"{row.shows}, between two hosts",
                               processes=(server, *[dataclasses.replace(client, host=1) for client in clients]))


ROWS = RPING + OTHERS + PERFTEST
ROWS += [between_hosts(row) for row in ROWS if row.name in
         ("rping", "rping-ipv6", "rping-P", "ucmatose", "udaddy", "rdma_client", "qperf", "send_bw", "write_lat")]
