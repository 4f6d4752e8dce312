"""Multicast groups: one sends, several receive, on one host and over IP multicast between two."""
from row import Process, Row
from rows.network import across
from rows.pair import ADDRESS, AS_ROOT_ONLY, TROUBLE
from rows.perftest import perftest

SECOND = "10.77.0.2"
GROUP = "239.77.1.2"
PERFTEST_GROUP = ":".join(["0"] * 10 + ["255"] * 2 + GROUP.split("."))
# What perftest chooses itself is ff01::…, which never leaves a host.
PERFTEST_GROUP_IPV6 = "255:14:0:0:0:0:0:0:0:0:0:0:0:77:1:2"
# The sender starts when all have joined, and sends as many messages as each has receives.
JOINED = r"^receiving data transfers"


def mckey(options: str, address: str, host: int, ready: str = "") -> Process:
    return Process(("{verbena}", "run", "--", "mckey", *options.split(), "-b", address), host=host, ready=ready,
                   must=(r"^data transfers complete$", r"^return status 0$"), must_not=TROUBLE)


def group(name: str, options: str, shows: str, receivers: tuple[int, ...], sender: int, addresses=(ADDRESS, SECOND),
          **more) -> Row:
    """Receivers on these hosts, then the sender on its own."""
    processes = (*(mckey(options, addresses[host], host, JOINED) for host in receivers),
                 mckey(f"{options} -s", addresses[sender], sender))
    return Row(name, "mckey", f"{options} -s", shows, processes, package="rdmacm-utils",
               hosts=2 if any(receivers) or sender else 1, timeout_s=60, **more)


SIX = ("fd77::1", "fd77::2")
MCKEY = [
    group("mckey", f"-m {GROUP}", "a sender, two receivers", (0, 0), 0),
    group("mckey-S-1000", f"-m {GROUP} -S 1000", "1,000 bytes a message", (0, 0), 0, **AS_ROOT_ONLY),
    group("mckey-ipv6", "-m ff0e::77:2", "an IPv6 group", (0, 0), 0, SIX, **AS_ROOT_ONLY),
    group("mckey-network", f"-m {GROUP}", "both receivers on another host", (1, 1), 0),
    group("mckey-everywhere", f"-m {GROUP}", "one receiver beside the sender, one on another host", (0, 1), 0),
    group("mckey-network-ipv6", "-m ff0e::77:2", "an IPv6 group, between two hosts", (1, 0), 0, SIX, **AS_ROOT_ONLY),
]

SEND_BW = [
    perftest("send_bw", "ib_send_bw", f"-c UD -g -M {PERFTEST_GROUP} -s 1024 -n 100", "perftest's `-g`: an IPv4 group"),
    perftest("send_bw-ipv6", "ib_send_bw", "-c UD -g -x 1 -s 1024 -n 100", "the group that perftest chooses, IPv6",
             **AS_ROOT_ONLY),
]
BETWEEN_HOSTS = [
    SEND_BW[0],
    perftest("send_bw-ipv6", "ib_send_bw", f"-c UD -g -x 1 -M {PERFTEST_GROUP_IPV6} -s 1024 -n 100", "an IPv6 group"),
]
SEND_BW += [across("network", row, row.name, 1500, shows=f"{row.shows}, between two hosts") for row in BETWEEN_HOSTS]

ROWS = MCKEY + SEND_BW
