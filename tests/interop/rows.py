"""What is tried between the kernel's rxe and Verbena. Each row runs twice: with the server here and with it there."""
from dataclasses import dataclass

KIB, MIB = 1024, 1024 * 1024
# Label, bytes, MTU, IP family: one packet and many at each MTU; a row takes seconds, so not all with all.
SIZES = (
    ("1 B", 1, 1024, 4),
    ("4 KiB", 4 * KIB, 4096, 4),
    ("64 KiB", 64 * KIB, 1024, 4),
    ("64 KiB", 64 * KIB, 4096, 6),
    ("1 MiB", MIB, 1024, 6),
    ("1 MiB", MIB, 4096, 4),
    ("8 MiB", 8 * MIB, 1024, 4),
    ("8 MiB", 8 * MIB, 4096, 4),
)


@dataclass(frozen=True)
class Row:
    theme: str
    program: str  # peer: the test's own (peer.c); its data are compared byte by byte
    options: str
    shows: str
    family: int = 4
    # How the program takes device, GID and address: peer, pingpong, perftest, rping, cm_peer, mckey, example, cm.
    style: str = "peer"
    special: str = ""  # a way of running of its own: loss, gone, gone_cm, unreachable, killed
    servers: tuple[str, ...] = ("guest", "host")
    says: str = ""  # the client's output matches this

    @property
    def name(self) -> str:
        family = " IPv6" if self.family == 6 else ""
        return f"{self.theme}: {self.program} {self.options}".strip() + family


def pingpongs() -> list[Row]:
    rows = []
    for service in ("rc", "uc", "ud"):
        for family in (4, 6):
            options = "-c -n 20 -s 2048" if service != "ud" else "-c -n 20 -s 1024"
            rows.append(Row("pingpong", f"ibv_{service}_pingpong", options, "data compared by the program",
                            family, "pingpong"))
    rows.append(Row("pingpong", "ibv_rc_pingpong", "-c -n 20 -s 65536 -m 4096", "many packets of 4096", 4, "pingpong"))
    rows.append(Row("pingpong", "ibv_rc_pingpong", "-c -n 20 -s 4096 -e", "sleeps between completions", 4, "pingpong"))
    return rows


def transfers() -> list[Row]:
    rows = []
    for scenario in ("send", "write", "read"):
        for label, size, mtu, family in SIZES:
            count = 2 if size >= MIB else 8
            rows.append(Row("RC data", "peer", f"{scenario} -s {size} -m {mtu} -n {count}",
                            f"{count} messages of {label}, MTU {mtu}", family))
    for scenario in ("send_imm", "write_imm"):
        rows.append(Row("RC data", "peer", f"{scenario} -s 2501 -n 4", "with immediates, in order"))
    for scenario in ("fetch_add", "compare_swap"):
        for family in (4, 6):
            rows.append(Row("RC data", "peer", f"{scenario} -s 8 -n 20", "each finds the value before", family))
    for scenario in ("send", "write"):
        for family in (4, 6):
            rows.append(Row("UC data", "peer", f"{scenario} -q uc -s 2501 -n 4", "messages of three packets", family))
    return rows


def perftests() -> list[Row]:
    rows = []
    for test in ("send", "write", "read", "atomic"):
        for kind in ("bw", "lat"):
            size = "" if test == "atomic" else "-s 65536 " if kind == "bw" else "-s 8 "
            rows.append(Row("perftest", f"ib_{test}_{kind}", f"{size}-n 20", "RC", 4, "perftest"))
    rows += [
        Row("perftest", "ib_send_bw", "-c UC -s 4096 -n 20", "UC", 4, "perftest"),
        Row("perftest", "ib_write_bw", "-c UC -s 4096 -n 20", "UC", 4, "perftest"),
        Row("perftest", "ib_send_bw", "-c UD -s 1024 -n 20", "UD", 4, "perftest"),
        Row("perftest", "ib_send_lat", "-c UD -s 64 -n 20", "UD", 4, "perftest"),
        Row("perftest", "ib_write_bw", "-s 65536 -n 20 -q 4", "four queue pairs", 4, "perftest"),
        Row("perftest", "ib_send_bw", "-s 65536 -n 20 -b", "both ways at once", 4, "perftest"),
        Row("perftest", "ib_write_bw", "-s 65536 -n 20 -R", "connected by RDMA CM", 4, "perftest"),
    ]
    return rows


def connections() -> list[Row]:
    rows = []
    for family in (4, 6):
        rows += [
            Row("RDMA CM", "rping", "-v -V -C 5 -S 1000", "data compared by the program", family, "rping"),
            Row("RDMA CM", "ucmatose", "-c 2 -C 5 -S 1000", "two connections; the client ends them", family, "cm"),
            Row("RDMA CM", "udaddy", "-c 2 -C 5 -S 500", "UD peers found by SIDR", family, "cm"),
            Row("RDMA CM", "rdma_client", "", "rdma_server at the other end", family, "example"),
        ]
    rows.append(Row("RDMA CM", "rdma_xclient", "", "rdma_xserver at the other end", 4, "example"))
    rows.append(Row("RDMA CM", "mckey", "-C 5 -S 64", "a multicast group; the client sends", 4, "mckey"))
    return rows


def troubles() -> list[Row]:
    rows = [
        Row("trouble", "peer", "rnr -s 2501 -n 4", "receives come 300 ms late: RNR, then all arrive"),
        Row("trouble", "peer", "rnr_for_ever -R 2 -s 100 -n 1", "no receive ever: RNR_RETRY_EXC_ERR"),
        Row("trouble", "peer", "bad_key -s 2501 -n 2", "a wrong rkey: REM_ACCESS_ERR, the next flushed"),
        Row("trouble", "peer", "bad_address -s 2501 -n 2", "beyond the region: REM_ACCESS_ERR"),
        Row("trouble", "peer", "no_right -s 2501 -n 2", "WRITE into a region for reading: REM_ACCESS_ERR"),
    ]
    for scenario in ("send", "write", "read"):
        rows.append(Row("trouble", "peer", f"{scenario} -s {64 * KIB} -n 2 -t 12",
                        "the guest's link loses 3 % of what it sends", special="loss"))
    rows.append(Row("trouble", "peer", "until_gone -t 14 -r 3 -s 4096 -n 1",
                    "the guest stops: RETRY_EXC_ERR in the time that timeout and retries say",
                    special="gone", servers=("guest",)))
    rows.append(Row("trouble", "cm_peer", "", "the guest stops in the middle: RETRY_EXC_ERR, then DISCONNECTED",
                    style="cm_peer", special="gone_cm", servers=("guest",)))
    rows.append(Row("trouble", "rping", "-v -C 0 -S 100", "the server is killed: DISCONNECTED", style="rping",
                    special="killed"))
    rows.append(Row("trouble", "rping", "-C 3", "the guest is stopped: UNREACHABLE", style="rping",
                    special="unreachable", servers=("guest",)))
    return rows


def everything() -> list[Row]:
    return [*pingpongs(), *transfers(), *perftests(), *connections(), *troubles()]
