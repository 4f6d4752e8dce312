"""ibv_rc_pingpong: messages go to and fro, as many bytes as asked for."""
import re

from row import Row
from rows.pair import AS_ROOT_ONLY, pair

TIMEOUT_S = 120  # two that poll take turns of milliseconds if other work leaves them one core


def told(size: int, count: int) -> tuple[str, ...]:
    """What each end prints of `count` messages each way."""
    return rf"^{2 * size * count} bytes in ", rf"^{count} iters in "


def pingpong(name: str, options: str, shows: str, size: int = 4096, count: int = 1000, **more) -> Row:
    more["must"] = (r"^  remote address: LID 0x0000, QPN 0x\w{6}, PSN 0x\w{6}, GID ", *told(size, count),
                    *more.pop("must", ()))
    return pair(name, "ibv_rc_pingpong", options, shows, package="ibverbs-utils", timeout_s=TIMEOUT_S, **more)


def gid(index: int, address: str, options: str = "") -> Row:
    return pingpong(f"gid-{index}", f"-g {index}{options} -n 200", f"GID {index}, {address}", count=200,
                    must=(rf"remote address: .* GID {re.escape(address.rstrip('…'))}",))


MIB = 1 << 20
GIB = 1 << 30

SIZES = [
    pingpong("poll", "-g 0", "polling, 4,096 bytes"),
    pingpong("events", "-g 0 -e", "sleeping until a completion event"),
    pingpong("size-0", "-g 0 -s 0 -n 100", "messages without content", 0, 100),
    pingpong("size-1", "-g 0 -s 1 -n 100", "one byte", 1, 100),
    pingpong("size-1-events", "-g 0 -e -s 1 -n 100", "the same, sleeping", 1, 100),
    pingpong("size-1MiB", f"-g 0 -s {MIB} -n 20", "1 MiB", MIB, 20),
    pingpong("size-1MiB-events", f"-g 0 -e -s {MIB} -n 20", "the same, sleeping", MIB, 20),
    pingpong("size-1GiB", f"-g 0 -s {GIB} -n 2", "1 GiB", GIB, 2),
    pingpong("size-1GiB-events", f"-g 0 -e -s {GIB} -n 2", "the same, sleeping", GIB, 2, **AS_ROOT_ONLY),
    pingpong("check", "-g 0 -c -n 200", "each byte received is checked", count=200),
    pingpong("check-events", "-g 0 -c -e -s 1000003 -n 20", "the same, an odd size, sleeping", 1000003, 20),
]

DEPTHS = [
    pingpong("r-1", "-g 0 -r 1 -n 200", "a receive queue of one", count=200),
    pingpong("r-1-events", "-g 0 -r 1 -e", "the same, sleeping"),
    pingpong("r-1000", "-g 0 -r 1000 -n 200", "a receive queue that is never empty", count=200),
    pingpong("n-1", "-g 0 -n 1", "one message each way", count=1),
    pingpong("n-20000-events", "-g 0 -e -n 20000", "20,000 messages each way, sleeping", count=20000),
]

PATHS = [
    gid(0, "::ffff:10.77.0.1"),
    gid(1, "fd77::1", " -e"),
    gid(2, "fe80::…"),
    gid(4, "::ffff:127.0.0.1"),
    gid(5, "::1", " -e"),
    pingpong("m-256", "-g 0 -m 256 -n 200", "path MTU 256", count=200),
    pingpong("m-4096", "-g 0 -m 4096 -n 200", "path MTU 4096, with `--device verbena0=lo`", count=200,
             run=("--device", "verbena0=lo")),
    pingpong("l-5", "-g 0 -l 5 -n 200", "service level 5", count=200),
    pingpong("d-i", "-d mlx5_0 -i 2 -g 0 -n 200", "the second port, with `--device mlx5_0=veth0,veth1`", count=200,
             run=("--device", "mlx5_0=veth0,veth1")),
    pingpong("port", "-g 0 -p 20000 -n 200", "meeting at another TCP port", count=200, port=20000),
]

ROWS = SIZES + DEPTHS + PATHS
