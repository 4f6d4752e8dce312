#!/usr/bin/python3 -B
"""What leaves a host, in the words of tools that nobody here wrote: captures unmodified programs between two network
namespaces, packet by packet as cut by the kernel, has tshark dissect them, and scapy and zlib check their ICRCs.

Usage: dissect.py --bin VERBENA"""
import argparse
import logging
import os
import shlex
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from pathlib import Path

logging.getLogger("scapy").setLevel(logging.ERROR)  # it tells what it thinks of our interfaces
from scapy.compat import raw  # noqa: E402
from scapy.contrib.roce import BTH  # noqa: E402
from scapy.layers.inet import IP  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "compat"))
import hosts  # noqa: E402

PROGRAMS = (
    "ibv_rc_pingpong -g {gid} -n 20 -s 5000",
    "ib_send_bw -x {gid} -F -n 20 -t 4 -s 20000",
    "ib_write_bw -x {gid} -F -n 20 -t 4 -s 100000",
    "ib_read_bw -x {gid} -F -n 20 -t 4 -s 100000",
    "ib_atomic_bw -x {gid} -F -n 20 -t 4",
    "ibv_uc_pingpong -g {gid} -n 20 -s 5000",
    "ib_send_bw -c UC -x {gid} -F -n 20 -t 4 -s 20000",
    "ib_write_bw -c UC -x {gid} -F -n 20 -t 4 -s 100000",
    "ibv_ud_pingpong -g {gid} -n 20 -s 1024",
    "ib_send_bw -c UD -x {gid} -F -n 20 -t 4 -s 1024",
    "ibv_srq_pingpong -g {gid} -n 20 -s 5000",
    "ib_write_bw -c XRC -x {gid} -F -n 20 -t 4 -s 100000",
    "ibv_xsrq_pingpong -g {gid} -e -n 20 -s 5000",  # it sleeps: XRC's keepers need a processor, too
    "ib_send_lat -x {gid} -F -n 20 -s 5000",
    "ib_write_lat -x {gid} -F -n 20 -s 5000",
    "ib_read_lat -x {gid} -F -n 20 -s 5000",
    "ib_atomic_bw -A CMP_AND_SWAP -x {gid} -F -n 20 -t 4",
    "ib_send_lat -c UC -x {gid} -F -n 20 -s 5000",
    "ib_write_lat -c UC -x {gid} -F -n 20 -s 5000",
    "ib_send_lat -c UD -x {gid} -F -n 20 -s 1024",
)
# WRITE with immediate for a second, and RDMA CM; it knows IPv4 only.
QPERF = "qperf -cm1 -t 1 -m 2000 rc_rdma_write_lat quit"
# Over the bad link. The pingpongs leave without waiting for the acknowledgement of their last message, which may be
# lost.
RELIABLE = [program for program in PROGRAMS if program.startswith("ib_") and "-c U" not in program]
IMPAIRED = "loss=1%,duplicate=1%,reorder=1%,delay=1ms"
PORTS = (18515, 19765)  # where perftest and the pingpongs meet, and qperf, over TCP
SERVER = hosts.ADDRESSES[0][0].split("/")[0]
ROCE_PORT = 4791
ETH_P_ALL = 3
SOL_PACKET, PACKET_STATISTICS = 263, 6
ACKNOWLEDGE = 0x11  # of RC; that of XRC is the same but for the service's bits
SERVICE = 0xE0  # those bits
NAK = 3  # the first bits of a syndrome
CERTAIN_LOSS = 1000  # packets over the bad link, of which some are lost for sure
MOST_BY_SCAPY = 200  # packets of a capture: each takes it a millisecond


class Capture:
    """Everything that passes veth0, in the pcap format."""

    def __init__(self, path: Path):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.socket.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        self.socket.bind(("veth0", 0))
        self.socket.settimeout(0.2)
        self.file = path.open("wb")
        self.file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        self.frames = []
        self.lost = 0
        self.stopping = False
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self) -> None:
        while True:
            try:
                frame = self.socket.recv(65536)
            except TimeoutError:
                if self.stopping:
                    return
                continue
            self.frames.append(frame)

    def end(self) -> list[bytes]:
        self.stopping = True
        self.thread.join()
        self.lost = struct.unpack("II", self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]
        self.socket.close()
        for number, frame in enumerate(self.frames):
            self.file.write(struct.pack("<IIII", number, 0, len(frame), len(frame)) + frame)
        self.file.close()
        return self.frames


def roce(frame: bytes) -> tuple[bytes, bytes] | None:
    """A frame's IP header and what follows it, if that is RoCEv2."""
    kind = frame[12:14]
    if kind == b"\x08\x00" and frame[23] == 17:
        length = (frame[14] & 15) * 4
        total = struct.unpack("!H", frame[16:18])[0]
        ip, rest = frame[14:14 + length], frame[14 + length:14 + total]
    elif kind == b"\x86\xdd" and frame[20] == 17:
        total = struct.unpack("!H", frame[18:20])[0]
        ip, rest = frame[14:54], frame[54:54 + total]
    else:
        return None
    return (ip, rest) if struct.unpack("!H", rest[2:4])[0] == ROCE_PORT else None


def icrc_is_right(ip: bytes, rest: bytes) -> bool:
    """The second opinion: annex A17 by hand, with what may change on the way set to ones."""
    ip, rest = bytearray(ip), bytearray(rest)
    if ip[0] >> 4 == 4:
        ip[1] = 0xFF  # type of service
        ip[8] = 0xFF  # time to live
        ip[10:12] = b"\xff\xff"
    else:
        ip[0] |= 0x0F  # traffic class, flow label
        ip[1:4] = b"\xff\xff\xff"
        ip[7] = 0xFF  # hop limit
    rest[6:8] = b"\xff\xff"
    rest[12] = 0xFF  # reserved, between pkey and destination
    crc = zlib.crc32(b"\xff" * 8 + bytes(ip) + bytes(rest[:-4]))
    return struct.pack("<I", crc) == bytes(rest[-4:])


def scapy_agrees(ip: bytes, rest: bytes) -> bool:
    """It makes no ICRC over IPv6."""
    if ip[0] >> 4 == 6:
        return True
    packet = IP(ip + rest)
    packet[BTH].icrc = None  # have it made anew
    return raw(packet)[-4:] == bytes(rest[-4:])


def tshark(path: Path, chosen: str, *fields: str) -> list[list[str]]:
    """These fields of each chosen frame."""
    options = [word for field in fields for word in ("-e", field)]
    run = subprocess.run(["tshark", "-n", "-r", str(path), "-Y", chosen, "-T", "fields", *options],
                         capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"tshark: {run.stderr}")
    return [line.split("\t") for line in run.stdout.splitlines()]


def wait_for_listener() -> None:
    wanted = [f":{port:04X} " for port in PORTS]
    for _ in range(500):
        tables = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
        if any(port in line and " 0A " in line for line in tables.splitlines() for port in wanted):
            return
        time.sleep(0.01)


def command_lines(program: str) -> tuple[list[str], list[str]]:
    """The server's and the client's."""
    words = shlex.split(program)
    return (words[:1], [words[0], SERVER, *words[1:]]) if program == QPERF else (words, [*words, SERVER])


def run(program: str, places: list, verbena: str, faults: str) -> None:
    environment = os.environ | ({"VERBENA_FAULTS": faults} if faults else {})
    ends = [[*place.prefix, verbena, "run", "--", *words] for place, words in zip(places, command_lines(program))]
    server = subprocess.Popen(ends[0], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    wait_for_listener()
    client = subprocess.run(ends[1], capture_output=True, text=True, timeout=60, env=environment)
    said = server.communicate(timeout=60)[0].decode()
    if client.returncode or server.returncode:
        sys.exit(f"{program}: ended with {client.returncode} and {server.returncode}\n"
                 f"{client.stdout}{client.stderr}{said}")


def acknowledges(rest: bytes) -> bool:
    return rest[8] & ~SERVICE == ACKNOWLEDGE


def repairs(packets: list[tuple[bytes, bytes]]) -> tuple[int, int]:
    """How many NAKs there are, and how many requests and answers had been sent before."""
    naks = sum(acknowledges(rest) and rest[20] >> 5 == NAK for _, rest in packets)
    # Opcode, destination and PSN.
    named = [(rest[8], rest[13:16], rest[17:20]) for _, rest in packets if not acknowledges(rest)]
    return naks, len(named) - len(set(named))


def look_at(program: str, circumstances: str, faults: str, places: list, options, scratch: Path) -> list[str]:
    path = scratch / "capture.pcap"
    capture = Capture(path)
    run(program, places, options.bin, faults)
    time.sleep(0.2)
    packets = [found for frame in capture.end() if (found := roce(frame))]
    named = f"{program} over {circumstances}"
    wrong = [f"{named}: the capture lost {capture.lost} frames"] if capture.lost else []
    bad = sum(not icrc_is_right(ip, rest) for ip, rest in packets)
    if bad or not packets:
        wrong.append(f"{named}: {bad} of {len(packets)} ICRCs are wrong")
    doubted = sum(not scapy_agrees(ip, rest) for ip, rest in packets[:MOST_BY_SCAPY])
    if doubted:
        wrong.append(f"{named}: scapy makes other ICRCs of {doubted} packets")
    seen = tshark(path, f"udp.dstport=={ROCE_PORT}", "infiniband.bth.opcode", "frame.number", "_ws.expert.message")
    understood = sum(bool(opcode) for opcode, _, _ in seen)
    if understood != len(packets):
        wrong.append(f"{named}: tshark sees {understood} packets of InfiniBand, {len(packets)} were sent")
    # The pingpong programs ask for a hop limit of 1 themselves. Of what is malformed tshark says so there, too; about
    # NAKs and what is sent again it says nothing.
    wrong += [f"{named}: frame {number}: {message}" for _, number, message in seen
              if message and not message.endswith('"Time To Live" only 1')][:10]
    naks, again = repairs(packets)
    if faults and len(packets) > CERTAIN_LOSS and not again:
        wrong.append(f"{named}: nothing was sent again")
    repaired = f", {naks} NAKs, {again} sent again" if faults else ""
    print(f"{'FAIL' if wrong else 'pass'}  {named}: {len(packets)} packets{repaired}", flush=True)
    return wrong


def inside(options) -> None:
    places = hosts.make_hosts(2, options.mtu)
    for place, link in zip(places, hosts.LINKS):
        # What the capture sees is what a wire would.
        subprocess.run([*place.prefix, "ethtool", "-K", link, "gso", "off", "tx-udp-segmentation", "off", "tx", "off"],
                       check=True, stdout=subprocess.DEVNULL)
    turns = [(program.format(gid=gid), f"{family}, MTU {options.mtu}", "")
             for gid, family in ((0, "IPv4"), (1, "IPv6")) for program in PROGRAMS]
    turns.append((QPERF, f"IPv4, MTU {options.mtu}", ""))
    if options.mtu == 1500:
        turns += [(program.format(gid=0), "a bad link, IPv4, MTU 1500", IMPAIRED) for program in RELIABLE]
    with tempfile.TemporaryDirectory() as scratch:
        wrong = [text for turn in turns for text in look_at(*turn, places, options, Path(scratch))]
    print(*wrong, sep="\n")
    sys.exit(1 if wrong else 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=os.path.abspath, help="the verbena command")
    parser.add_argument("--mtu", type=int, help=argparse.SUPPRESS)  # in namespaces made for it
    options = parser.parse_args()
    if options.mtu:
        return inside(options)
    own = ["unshare", "-n", "-m"] if os.geteuid() == 0 else ["unshare", "-r", "-n", "-m"]
    # The pid namespace takes what is left behind with it.
    own += ["-p", "-f", "--kill-child", "--mount-proc"]
    ends = [subprocess.run([*own, sys.executable, "-B", __file__, *sys.argv[1:], "--mtu", str(mtu)]).returncode
            for mtu in (1500, 9000)]
    sys.exit(any(ends))  # a negative one: ended by a signal


if __name__ == "__main__":
    main()
