"""fio's engine `rdma`: the server offers memory, or receives; the client's `verb` says what is done."""
import dataclasses

from row import Process, Row
from rows.pair import ADDRESS, AS_ROOT_ONLY

SERVER = """[server]
ioengine=rdma
port=7777
rw=read
bs=64k
size={size}k
iodepth=16
"""
CLIENT = """[client]
ioengine=rdma
hostname={address}
port=7777
verb={verb}
rw=write
bs=64k
size={size}k
iodepth=8
"""
WRONG = (r"err=[ 0-9]*[1-9]", r"(?i)\bfail", r"instead of RDMA_CM_EVENT", r"cq completion status")


def fio(verb: str, shows: str, kib: int, **more) -> Row:
    done = rf"^     issued rwts: total=0,{kib // 64},0,0 short=0,0,0,0 dropped=0,0,0,0$"
    files = {"server.fio": SERVER.format(size=kib), "client.fio": CLIENT.format(size=kib, verb=verb, address=ADDRESS)}
    return Row(verb, "fio", f"client.fio (verb={verb})", shows, (end("server", ready="fio: waiting for connection"),
                                                                 end("client", must=(done,))),
               package="fio", files=files, timeout_s=60, **more)


def end(name: str, must: tuple[str, ...] = (), **more) -> Process:
    return Process(("{verbena}", "run", "--", "fio", "--eta=never", f"{{tmp}}/{name}.fio"), must_not=WRONG,
                   must=(rf"^{name}: \(groupid=0, jobs=1\): err= 0: ", *must), **more)


def between_hosts(row: Row) -> Row:
    server, client = row.processes
    return dataclasses.replace(row, name=f"{row.name}-network", hosts=2, shows=f"{row.shows}, between two hosts",
                               **AS_ROOT_ONLY, processes=(server, dataclasses.replace(client, host=1)))


ROWS = [
    fio("write", "WRITE into the server's memory, 8 at a time", 8192),
    fio("read", "READ out of it", 8192),
    # fio asks for no second try where no receive is posted, so no more messages than the server posts at first.
    fio("send", "SEND", 512),
]
ROWS += [between_hosts(row) for row in ROWS]
