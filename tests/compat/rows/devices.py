"""Programs that look at devices: the listings agree with each other and with what was configured."""
import re

from row import Process, Row, one, under_run

TWO_DEVICES = ("--device", "roce0=veth0", "--device", "roce1=veth1")
TWO_PORTS = ("--device", "mlx5_0=veth0,veth1")
TOML = """\
[[device]]
name = "mlx5_0"
ports = ["veth0", "veth1"]

[[device]]
name = "mlx5_1"
ports = ["lo"]
"""

GUID = r"[0-9a-f]{4}:[0-9a-f]{4}:[0-9a-f]{4}:[0-9a-f]{4}$"
NOT_ZERO = r"(?!0000:0000:0000:0000)"


def listing(name: str = "verbena0", ports: int = 1, mtu: str = r"1024 \(3\)") -> tuple[str, ...]:
    """Every line of ibv_devinfo's listing, each with a value that makes sense."""
    return (
        rf"^hca_id:\t{name}$",
        r"^\ttransport:\t+InfiniBand \(0\)$",
        r"^\tfw_ver:\t+\d+\.\d+\.\d+$",
        rf"^\tnode_guid:\t+{NOT_ZERO}{GUID}",
        rf"^\tsys_image_guid:\t+{NOT_ZERO}{GUID}",
        r"^\tvendor_id:\t+0x[0-9a-f]{4,6}$",
        r"^\tvendor_part_id:\t+[1-9]\d*$",
        r"^\thw_ver:\t+0x[0-9A-Fa-f]+$",
        r"^\tboard_id:\t+Verbena$",
        rf"^\tphys_port_cnt:\t+{ports}$",
        *(rf"^\t\tport:\t{port}$" for port in range(1, ports + 1)),
        r"^\t\t\tstate:\t+PORT_ACTIVE \(4\)$",
        r"^\t\t\tmax_mtu:\t+4096 \(5\)$",
        rf"^\t\t\tactive_mtu:\t+{mtu}$",
        r"^\t\t\tsm_lid:\t+0$",
        r"^\t\t\tport_lid:\t+0$",
        r"^\t\t\tport_lmc:\t+0x00$",
        r"^\t\t\tlink_layer:\t+Ethernet$",
    )


LIMITS = (
    r"^\tmax_mr_size:\t+0x[1-9a-f]",
    *(rf"^\t{limit}:\t+[1-9]\d*$" for limit in (
        "max_qp", "max_qp_wr", "max_sge", "max_cq", "max_cqe", "max_mr", "max_pd", "max_qp_rd_atom",
        "max_qp_init_rd_atom", "max_mw", "max_mcast_grp", "max_ah", "max_srq", "max_srq_wr", "max_pkeys",
        "num_comp_vectors")),
    r"^\tatomic_cap:\t+ATOMIC_HCA \(1\)$",
    r"^\t\t\tmax_msg_sz:\t+0x40000000$",
    r"^\t\t\tgid_tbl_len:\t+[1-9]\d*$",
    r"^\t\t\tphys_state:\t+LINK_UP \(5\)$",
    r"^\t\t\tGID\[  0\]:\t+::ffff:10\.77\.0\.1, RoCE v2$",
    r"^\t\t\tGID\[  1\]:\t+fd77::1, RoCE v2$",
    r"^\t\t\tGID\[ +\d+\]:\t+fe80::.*, RoCE v2$",
    r"^\t\t\tGID\[ +\d+\]:\t+::ffff:127\.0\.0\.1, RoCE v2$",
)
# Bit 40 of the extended flags is ATOMIC WRITE, for which ibv_devinfo 44 has no name yet.
INVALID = (r"(?i)invalid", r"(?i)unknown(?! flags: 0x10000000000$)")


def devinfo(name: str, options: str, shows: str, *arguments: str, **more) -> Row:
    more.setdefault("must_not", INVALID)
    return under_run(name, "ibv_devinfo", options, shows, *arguments, package="ibverbs-utils", **more)


def guids_differ(results) -> str:
    guids = [re.findall(r"[0-9a-f]{16}", result.output) for result in results]
    if any(len(found) != 1 for found in guids):
        return f"each host should list one GUID, not {guids}"
    return "" if guids[0] != guids[1] else f"both hosts have GUID {guids[0][0]}"


IBV = [
    under_run("ibv_devices", "ibv_devices", "", "one device, verbena0, with its GUID", package="ibverbs-utils",
              must=(r"^ +verbena0 +\t(?!0{16})[0-9a-f]{16}$",)),
    devinfo("devinfo", "", "every line of the usual listing", must=listing()),
    devinfo("devinfo-v", "-v", "limits, and GIDs in the order a peer would use them", "-v", must=listing() + LIMITS),
    devinfo("devinfo-d", "-d verbena0", "a device by name", "-d", "verbena0", must=listing()),
    devinfo("devinfo-d-unknown", "-d mlx5_7", "a name that isn't there", "-d", "mlx5_7", status=255,
            must=(r"^IB device 'mlx5_7' wasn't found$",), must_not=()),
    devinfo("devinfo-i", "-i 1", "a port by number", "-i", "1", must=listing()),
    devinfo("devinfo-i-unknown", "-i 2", "a port that isn't there", "-i", "2", status=4,
            must=(r"^Invalid port requested for device$",), must_not=()),
    devinfo("devinfo-l", "-l", "names only", "-l", must=(r"^1 HCA found:\n\tverbena0$",)),
]

CONFIGURED = [
    devinfo("device-name", "-d mlx5_0 -i 1", "`--device-name mlx5_0`: scripts with a fixed name",
            "-d", "mlx5_0", "-i", "1", run=("--device-name", "mlx5_0"), must=listing("mlx5_0"), must_not=("verbena0",)),
    devinfo("device-lo", "-v", "`--device verbena0=lo`: a machine with loopback only", "-v",
            run=("--device", "verbena0=lo"),
            must=listing(mtu=r"4096 \(5\)") + (r"GID\[  0\]:\t+::ffff:127\.0\.0\.1, RoCE v2$",)),
    devinfo("two-devices", "", "`--device roce0=veth0 --device roce1=veth1`: two devices", run=TWO_DEVICES,
            must=listing("roce0") + listing("roce1"), must_not=INVALID + ("verbena0",)),
    devinfo("two-ports", "", "`--device mlx5_0=veth0,veth1`: one device, two ports", run=TWO_PORTS,
            must=listing("mlx5_0", ports=2)),
    devinfo("two-ports-i", "-i 2", "the second port alone", "-i", "2", run=TWO_PORTS,
            must=(r"^\t\tport:\t2$",), must_not=(r"^\t\tport:\t1$",)),
    devinfo("toml", "", "`--config devices.toml`: two devices, the first with two ports", files={"devices.toml": TOML},
            run=("--config", "{tmp}/devices.toml"), must=listing("mlx5_0", ports=2) + (r"^hca_id:\tmlx5_1$",)),
    devinfo("toml-l", "-l", "the same, names only", "-l", files={"devices.toml": TOML},
            run=("--config", "{tmp}/devices.toml"), must=(r"^2 HCAs found:\n\tmlx5_0\n\tmlx5_1$",)),
]

GUIDS = [
    one("guid-stays", "ibv_devices", "", "the same GUID after the host agent was stopped and started",
        "a=$({verbena} run ibv_devices) && {verbena} agent stop && ! {verbena} agent status &&"
        ' b=$({verbena} run ibv_devices) && echo "$b" && [ "$a" = "$b" ]',
        package="ibverbs-utils", must=("no host agent runs",)),
    Row("guid-differs", "ibv_devices", "", "different GUIDs on different hosts",
        (Process(("{verbena}", "run", "ibv_devices")), Process(("{verbena}", "run", "ibv_devices"), host=1)),
        package="ibverbs-utils", hosts=2, check=guids_differ),
    one("guid-agrees", "ibstat", "", "verbs and sysfs tell the same GUIDs of each of two devices",
        "{verbena} run --device roce0=veth0 --device roce1=veth1 {python} {snippets}/guids_agree.py",
        package="infiniband-diags", needs=("ibv_devinfo",), must=(r"^roce0 agrees$", r"^roce1 agrees$")),
    one("rate-agrees", "ibstatus", "", "verbs and sysfs tell the same width and speed of a port",
        "{verbena} run {python} {snippets}/rate_agrees.py", package="infiniband-diags", needs=("ibv_devinfo",),
        must=(r"^rate agrees",)),
]

CA = (
    r"^CA 'verbena0'$",
    r"^\tCA type: Verbena$",
    r"^\tNumber of ports: 1$",
    r"^\tFirmware version: \d+\.\d+\.\d+$",
    r"^\tHardware version: 0x[0-9a-f]+$",
    r"^\tNode GUID: 0x(?!0{16})[0-9a-f]{16}$",
    r"^\tSystem image GUID: 0x(?!0{16})[0-9a-f]{16}$",
)
CA_PORT = (
    r"State: Active$",
    r"Physical state: LinkUp$",
    r"Rate: [1-9]\d*( \(FDR10\))?$",
    r"Base lid: 0$",
    r"LMC: 0$",
    r"SM lid: 0$",
    r"Capability mask: 0x[0-9a-f]{8}$",
    r"Port GUID: 0x(?!0{16})[0-9a-f]{16}$",
    r"Link layer: Ethernet$",
)


def ibstat(name: str, options: str, shows: str, *arguments: str, **more) -> Row:
    return under_run(name, "ibstat", options, shows, *arguments, package="infiniband-diags", **more)


IBSTAT = [
    ibstat("ibstat", "", "the adapter and its port", must=CA + CA_PORT),
    ibstat("ibstat-l", "-l", "names only", "-l", must=(r"\Averbena0\n\Z",)),
    ibstat("ibstat-s", "-s", "the adapter without its ports", "-s", must=CA, must_not=("Port 1:",)),
    ibstat("ibstat-p", "-p", "port GUIDs only", "-p", must=(r"\A0x(?!0{16})[0-9a-f]{16}\n\Z",)),
    ibstat("ibstat-ca", "verbena0", "an adapter by name", "verbena0", must=CA + CA_PORT),
    ibstat("ibstat-ca-port", "verbena0 1", "an adapter's port", "verbena0", "1",
           must=(r"^CA: 'verbena0'$", r"^Port 1:$") + CA_PORT),
    ibstat("ibstat-unknown", "mlx5_7", "a name that isn't there", "mlx5_7", status=255,
           must=(r"'mlx5_7' IB device can't be found",)),
    ibstat("ibstat-two-ports", "mlx5_0 2", "the second port", "mlx5_0", "2", run=TWO_PORTS,
           must=(r"^CA: 'mlx5_0'$", r"^Port 2:$", r"State: Active$")),
]

PORT_STATUS = (
    r"^Infiniband device 'verbena0' port 1 status:$",
    r"^\tdefault gid:\t 0000:0000:0000:0000:0000:ffff:0a4d:0001$",
    r"^\tbase lid:\t 0x0$",
    r"^\tsm lid:\t\t 0x0$",
    r"^\tstate:\t\t 4: ACTIVE$",
    r"^\tphys state:\t 5: LinkUp$",
    r"^\trate:\t\t [1-9][\d.]* Gb/sec \(\dX \w+\)$",
    r"^\tlink_layer:\t Ethernet$",
)


def ibstatus(name: str, options: str, shows: str, *arguments: str, **more) -> Row:
    return under_run(name, "ibstatus", options, shows, *arguments, package="infiniband-diags", **more)


IBSTATUS = [
    ibstatus("ibstatus", "", "a shell script that reads /sys/class/infiniband", must=PORT_STATUS),
    ibstatus("ibstatus-dev", "verbena0", "a device by name", "verbena0", must=PORT_STATUS),
    ibstatus("ibstatus-port", "verbena0:1", "a port", "verbena0:1", must=PORT_STATUS),
    ibstatus("ibstatus-unknown", "mlx5_7", "a name that isn't there", "mlx5_7", status=255,
             must=(r"device 'mlx5_7': sys files not found",)),
    ibstatus("ibstatus-two-ports", "", "both ports of `--device mlx5_0=veth0,veth1`", run=TWO_PORTS,
             must=(r"'mlx5_0' port 1 status", r"'mlx5_0' port 2 status")),
]


def beside(name: str, program: str, options: str, command: str, **more) -> Row:
    """The fake is seen without Verbena, and only Verbena's device with it."""
    script = f"ls /sys/class/infiniband; echo verbena:; {{verbena}} run -- {command}"
    return one(name, program, options, "a real device (`mlx5_9`) of the host stays invisible", script, real_device=True,
               must=(r"\Amlx5_9\nverbena:\n", "verbena0"), must_not=(r"verbena:(.*\n)*.*mlx5_9",), **more)


REAL = [
    beside("real-ibv_devices", "ibv_devices", "", "ibv_devices", package="ibverbs-utils"),
    beside("real-ibstat", "ibstat", "", "ibstat", package="infiniband-diags"),
    beside("real-ibstatus", "ibstatus", "", "ibstatus", package="infiniband-diags"),
    beside("real-ls", "ls", "/sys/class/infiniband*", "sh -c 'ls /sys/class/infiniband /sys/class/infiniband_verbs/*;"
           " cat /sys/class/infiniband/*/node_desc'", package="coreutils"),
]

ROWS = IBV + CONFIGURED + GUIDS + IBSTAT + IBSTATUS + REAL
