"""Hosts for a row: network namespaces with lo and a veth pair. Everything here runs inside a namespace of the row's
own, as root or with the capabilities that a user namespace gives."""
import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

ADDRESSES = (("10.77.0.1/24", "fd77::1/64"), ("10.77.0.2/24", "fd77::2/64"))
LINKS = ("veth0", "veth1")
MS_BIND = 4096
MS_REC = 16384

libc = ctypes.CDLL(None, use_errno=True)


class Host:
    """Where a process can run. `prefix` goes before its command line."""

    def __init__(self, prefix: list[str]):
        self.prefix = prefix

    def ip(self, arguments: str) -> None:
        subprocess.run([*self.prefix, "ip", *arguments.split()], check=True)


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> bool:
    # mount(8) refuses whoever isn't uid 0, whatever their capabilities.
    return libc.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode()) == 0


def own_sysfs() -> None:
    """/sys/class/net as in this network namespace; where that is refused the old one stays, as in some containers."""
    mount("sysfs", "/sys", "sysfs")


def no_address_detection() -> None:
    """IPv6 addresses are there at once, so that every run sees the same GID table."""
    for which in ("all", "default"):
        for knob in ("accept_dad", "dad_transmits"):
            try:
                Path(f"/proc/sys/net/ipv6/conf/{which}/{knob}").write_text("0")
            except OSError:
                pass


def prepare_first(mtu: int) -> Host:
    own_sysfs()
    no_address_detection()
    host = Host([])
    host.ip("link set lo up")
    host.ip(f"link add veth0 mtu {mtu} type veth peer name veth1 mtu {mtu}")
    return host


def prepare_second() -> Host:
    """A second namespace, kept by a child of ours that does nothing else."""
    keeper = subprocess.Popen(
        ["unshare", "-n", "-m", sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    keeper.stdout.readline()  # it is ready
    host = Host(["nsenter", "-t", str(keeper.pid), "-n", "-m"])
    subprocess.run(["ip", "link", "set", "veth1", "netns", str(keeper.pid)], check=True)
    host.ip("link set lo up")
    return host


def address(host: Host, number: int) -> None:
    four, six = ADDRESSES[number]
    host.ip(f"addr add {four} dev {LINKS[number]}")
    host.ip(f"addr add {six} dev {LINKS[number]} nodad")


def make_hosts(count: int, mtu: int = 1500) -> list[Host]:
    hosts = [prepare_first(mtu)]
    if count == 2:
        hosts.append(prepare_second())
    for number, host in enumerate(hosts):
        address(host, number)
    for number, link in enumerate(LINKS):
        hosts[min(number, count - 1)].ip(f"link set {link} up")
    wait_for_carrier(hosts[0])
    return hosts


def wait_for_carrier(host: Host) -> None:
    for _ in range(200):
        shown = subprocess.run([*host.prefix, "ip", "-br", "link", "show", "veth0"], capture_output=True, text=True)
        if " UP " in shown.stdout:
            return
        time.sleep(0.01)


# --- a machine with a real RDMA device, for as long as this mount namespace lives ---

DEVICE_FILES = {
    "node_type": "1: CA",
    "fw_ver": "16.35.2000",
    "hw_rev": "0x0",
    "hca_type": "MT4119",
    "board_id": "MT_0000000010",
    "node_guid": "0c42:a103:0000:0001",
    "sys_image_guid": "0c42:a103:0000:0001",
    "node_desc": "real",
    "ports/1/state": "4: ACTIVE",
    "ports/1/phys_state": "5: LinkUp",
    "ports/1/rate": "100 Gb/sec (4X EDR)",
    "ports/1/lid": "0x0",
    "ports/1/lid_mask_count": "0",
    "ports/1/sm_lid": "0x0",
    "ports/1/sm_sl": "0",
    "ports/1/cap_mask": "0x04010000",
    "ports/1/link_layer": "Ethernet",
    "ports/1/gids/0": "fe80:0000:0000:0000:0e42:a1ff:fe00:0001",
}


def add_real_device() -> None:
    if not (cover("/sys/class", ("net",)) and cover("/dev", ("null", "zero", "urandom", "random", "shm", "pts"))):
        raise OSError("this machine doesn't let us cover /sys/class and /dev")
    device = Path("/sys/class/infiniband/mlx5_9")
    for name, text in DEVICE_FILES.items():
        (device / name).parent.mkdir(parents=True, exist_ok=True)
        (device / name).write_text(text + "\n")
    verbs = Path("/sys/class/infiniband_verbs")
    (verbs / "uverbs0").mkdir(parents=True)
    (verbs / "abi_version").write_text("6\n")
    (verbs / "uverbs0/ibdev").write_text("mlx5_9\n")
    (verbs / "uverbs0/abi_version").write_text("1\n")
    Path("/dev/infiniband").mkdir()
    Path("/dev/infiniband/uverbs0").write_text("")


def cover(directory: str, kept: tuple[str, ...]) -> bool:
    """A tmpfs over `directory` in which only the entries `kept` of before are found."""
    before = Path(os.environ["COMPAT_SCRATCH"]) / ("before" + directory.replace("/", "-"))
    before.mkdir()
    if not mount(directory, str(before), "", MS_BIND | MS_REC):
        return False
    if not mount("tmpfs", directory, "tmpfs", 0, "mode=755"):
        return False
    for name in kept:
        source, target = before / name, Path(directory) / name
        if not source.exists():
            continue
        target.mkdir() if source.is_dir() else target.touch()
        mount(str(source), str(target), "", MS_BIND | MS_REC)
    return True


if __name__ == "__main__":  # the keeper of the second namespace
    own_sysfs()
    no_address_detection()
    print("ready", flush=True)
    sys.stdin.read()
