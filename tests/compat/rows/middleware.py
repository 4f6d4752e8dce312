"""What real programs have between themselves and verbs: UCX, libfabric, uDAPL, librpma."""
import dataclasses

from row import BOTH, ROOT, Process, Row
from rows.pair import ADDRESS, AS_ROOT_ONLY

UCX_TROUBLE = (r"UCX +(ERROR|WARN|FATAL)", r"Caught signal")
UCX_PORT = 13337
WIRE = "VERBENA_PATH=wire"
ROUNDS = 200

# Its name for a test, what it shows, bytes.
UCX_TESTS = (
    ("tag_lat", "tagged messages to and fro", 8),
    ("tag_bw", "a stream of tagged messages, 100,000 bytes each (rendezvous)", 100000),
    ("stream_bw", "a byte stream", 4096),
    ("ucp_put_bw", "puts", 4096),
    ("ucp_get", "gets", 4096),
    ("ucp_add", "atomic adds", 8),
    ("ucp_fadd", "atomic fetch and add", 8),
    ("ucp_swap", "atomic swaps", 8),
    ("ucp_cswap", "atomic compare and swap", 8),
    ("ucp_am_bw", "active messages", 4096),
)
# rc_v is rc_verbs with the UD that it exchanges addresses over; rc_verbs alone can't connect, on any adapter.
TRANSPORTS = {"rc": "rc_v", "ud": "ud_v"}


def ucx(transport: str, test: str, shows: str, size: int, *more_environment: str, **more) -> Row:
    environment = ("env", f"UCX_TLS={TRANSPORTS[transport]},self", "UCX_NET_DEVICES=verbena0:1", *more_environment)
    arguments = ("-t", test, "-s", str(size), "-n", str(ROUNDS), "-w", "10")
    command = (*environment, "{verbena}", "run", "--", "ucx_perftest", *arguments)
    path = "wire" if WIRE in more_environment else "local"
    return Row(f"ucx-{transport}-{path}-{test}", "ucx_perftest", " ".join(arguments),
               f"UCX over {transport}_verbs: {shows}" + (f", {WIRE}" if path == "wire" else ""),
               (Process(command, listens=UCX_PORT, must_not=UCX_TROUBLE),
                Process((*command, ADDRESS), must=(rf"^Final: +{ROUNDS} ",), must_not=UCX_TROUBLE)),
               package="ucx-utils", timeout_s=60, **more)


def ucx_rows() -> list[Row]:
    found = []
    for transport in TRANSPORTS:
        for test, shows, size in UCX_TESTS:
            first = test == "tag_lat"
            found.append(ucx(transport, test, shows, size, users=BOTH if first else (ROOT,)))
            found.append(ucx(transport, test, shows, size, WIRE, users=(ROOT,)))
    return found


def between_hosts(row: Row) -> Row:
    server, client = row.processes
    return dataclasses.replace(row, name=row.name.replace("local", "network"), hosts=2, users=(ROOT,),
                               shows=f"{row.shows}, between two hosts",
                               processes=(server, dataclasses.replace(client, host=1)))


FABRIC_PORT = 47592  # where fi_pingpong exchanges addresses


def fabric(name: str, options: str, shows: str, *before: str, **more) -> Row:
    command = ("env", *before, "{verbena}", "run", "--", "fi_pingpong", *options.split(), "-I", "50")
    done = (r"^64 +50 +=50 ",)
    return Row(f"fabric-{name}", "fi_pingpong", f"{options} -I 50", shows,
               (Process(command, listens=FABRIC_PORT, must=done), Process((*command, ADDRESS), must=done)),
               package="libfabric-bin", timeout_s=60, **more)


# One line an adapter: the provider over RDMA CM (by network device), the one that brings its own sockets (by name).
DAT_CONF = """verbena-cma u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "veth0 0" ""
verbena-scm u2.0 nonthreadsafe default libdaploscm.so.2 dapl.2.0 "verbena0 1" ""
"""
UDAPL = """
export DAT_OVERRIDE={tmp}/dat.conf
{verbena} run -- stdbuf -oL dapltest -T S -D PROVIDER >{tmp}/server.log 2>&1 &
for i in $(seq 100); do grep -q 'Service Point Ready' {tmp}/server.log && break; sleep 0.1; done
try() { timeout 20 {verbena} run -- dapltest "$@" || { cat {tmp}/server.log; kill $!; exit 1; }; }
try -T T -s 10.77.0.1 -D PROVIDER -i 100 -t 1 -w 1 client SR 256 server SR 256
try -T T -s 10.77.0.1 -D PROVIDER -i 100 -t 2 -w 2 client RW 4096 1 server RR 4096 1 client SR 1024 server SR 1024
try -T P -s 10.77.0.1 -D PROVIDER -i 200 RW 4096 1
kill $!
wait
"""


def udapl(provider: str, shows: str) -> Row:
    command = ("sh", "-c", UDAPL.replace("PROVIDER", f"verbena-{provider}"))
    done = (r"^Total RDMA Read  : +1\.63 MB", r"^Total RDMA Write : +1\.63 MB", r"^raw: RW, 200, 4096,")
    return Row(f"udapl-{provider}", "dapltest", f"-T T, -T P; -D verbena-{provider}", shows,
               (Process(command, must=done, must_not=(r"(?i)\berror\b", r"(?i)fail")),),
               package="dapl2-utils", timeout_s=90, files={"dat.conf": DAT_CONF}, **AS_ROOT_ONLY)


def rpma(name: str, shows: str, *before: str) -> Row:
    command = ("env", *before, "{verbena}", "run", "--", "{tmp}/rpma_use")
    build = "cc -o {tmp}/rpma_use {snippets}/rpma_use.c -lrpma && exec "
    return Row(f"rpma-{name}", "cc", "rpma_use.c -lrpma", shows,
               (Process(("sh", "-c", build + " ".join((*command, "listen", ADDRESS, "7204"))), ready="listening",
                        must=(r"^received ok",)),
                Process((*command, "connect", ADDRESS, "7204"), must=(r"^write, flush, atomic write, read ok$",))),
               package="librpma-dev", timeout_s=60, users=(ROOT,),
               remark="Debian's librpma flushes by a READ: its verbs have no FLUSH")


UCX = ucx_rows()
ROWS = [
    *UCX,
    *(between_hosts(row) for row in UCX if row.name.endswith(("local-tag_bw", "local-ucp_get", "local-ucp_fadd"))),
    fabric("msg", "-p verbs -e msg", "libfabric's connected endpoints, to 1 MiB"),
    fabric("dgram", "-p verbs -e dgram", "libfabric's datagrams"),
    fabric("rdm", "-p verbs;ofi_rxm -e rdm", "libfabric's reliable datagrams over connected endpoints", users=(ROOT,)),
    fabric("msg-wire", "-p verbs -e msg", f"connected endpoints, {WIRE}", WIRE, users=(ROOT,)),
    fabric("dgram-wire", "-p verbs -e dgram", f"datagrams, {WIRE}", WIRE, users=(ROOT,)),
    udapl("cma", "uDAPL over RDMA CM: SEND, WRITE, READ, its performance test"),
    udapl("scm", "uDAPL with its own connections: the same"),
    rpma("local", "librpma: write, flush, atomic write, read, all looked at"),
    rpma("wire", f"the same, {WIRE}", WIRE),
]
