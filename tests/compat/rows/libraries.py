"""Libraries and programs over them that load ours: linked, as plugins, or by dlopen."""
import shlex
import signal

from row import Process, Row, one, under_run

# With LD_DEBUG=libs the loader tells whose libibverbs it takes.
OURS = (r"calling init: {lib}/libibverbs\.so\.1",)
NOT_THEIRS = (r"calling init: /(usr/)?lib/\S*/libibverbs\.so",)
OUR_RDMACM = (r"calling init: {lib}/librdmacm\.so\.1",)
NOT_THEIR_RDMACM = (r"calling init: /(usr/)?lib/\S*/librdmacm\.so",)
CRASH = (r"(?i)segmentation fault", r"(?i)assertion", r"Caught signal")


def traced(name: str, program: str, options: str, shows: str, *arguments: str, **more) -> Row:
    command = ("{verbena} run -- env LD_DEBUG=libs LD_DEBUG_OUTPUT={tmp}/loader " + shlex.join((program, *arguments)) +
               "; status=$?; cat {tmp}/loader.*; exit $status")
    more["must"] = OURS + more.get("must", ())
    more["must_not"] = NOT_THEIRS + CRASH + more.get("must_not", ())
    return one(name, program, options, shows, command, **more)


def pyverbs(name: str, options: str, shows: str, script: str, *arguments: str, **more) -> Row:
    command = ("{verbena}", "run", *more.pop("run", ()), "--", "{python}", "{snippets}/" + script, *arguments)
    return one(name, "python3", options, shows, command, package="python3-pyverbs", needs=("python:pyverbs",), **more)


ROWS = [
    pyverbs("pyverbs-devices", "pyverbs: get_device_list", "the device by name and GUID", "pyverbs_use.py", "devices",
            must=(r"^verbena0 [0-9a-f:]{19}$",)),
    pyverbs("pyverbs-query", "pyverbs: Context, query_device, query_port, query_gid", "attributes of device and port",
            "pyverbs_use.py", "query",
            must=(r"^device ok$", r"^port ok$", r"^gid 0 0000:0000:0000:0000:0000:ffff:0a4d:0001$")),
    pyverbs("pyverbs-two-ports", "pyverbs: query_port(2)", "the second port of `--device mlx5_0=veth0,veth1`",
            "pyverbs_use.py", "second-port", run=("--device", "mlx5_0=veth0,veth1"), must=(r"^port 2 ok$",)),
    pyverbs("pyverbs-pd", "pyverbs: PD", "protection domains come and go", "pyverbs_use.py", "pd", must=(r"^pd ok$",)),
    pyverbs("pyverbs-many", "pyverbs: 200 contexts, one after another", "opening and closing leaks no descriptor",
            "pyverbs_use.py", "many", must=(r"^many ok$",)),
    pyverbs("pyverbs-fork", "pyverbs: fork", "parent and child each list and open", "pyverbs_use.py", "fork",
            must=(r"^child ok$", r"^parent ok$")),
    traced("ucx_info", "ucx_info", "-d", "UCX takes our libibverbs and finds rc_verbs and ud_verbs", "-d",
           package="ucx-utils", must=(r"^# Memory domain: verbena0$", r"^#      Transport: rc_verbs\n#  +Device: verbena0:1$",
                                      r"^#      Transport: ud_verbs\n#  +Device: verbena0:1$"),
           must_not=(r"UCX +ERROR",)),
    traced("fi_info", "fi_info", "-p verbs", "libfabric's verbs provider takes our libraries, finds RC and UD",
           "-p", "verbs", must=OUR_RDMACM + (r"^ +domain: verbena0$", r"^ +protocol: FI_PROTO_RDMA_CM_IB_RC$",
                                             r"^ +protocol: FI_PROTO_IB_UD$"),
           must_not=NOT_THEIR_RDMACM, package="libfabric-bin"),
    traced("ib_write_bw-version", "ib_write_bw", "--version", "with libmlx5 and libefa, bound to our private symbols",
           "--version", package="perftest", status=1, must=(r"^Version: \d", r"calling init: \S*/libmlx5\.so\.1"),
           remark="exits with 1, as with the system's library"),
    traced("ib_write_bw-help", "ib_write_bw", "--help", "the same", "--help", package="perftest", status=1,
           must=(r"Options:", r"--ib-dev="), remark="exits with 1, as with the system's library"),
    traced("rping", "rping", "-h", "our librdmacm and libibverbs together", "-h", package="rdmacm-utils", status=22,
           must=OUR_RDMACM + (r"^rping -s ",), must_not=NOT_THEIR_RDMACM,
           remark="exits with 22, as with the system's library"),
    one("nccl", "python3", "dlopen(\"libibverbs.so\"), dlvsym", "loading as NCCL does, with versions 1.1, 1.8, 1.12",
        ("{verbena}", "run", "--", "{python}", "{snippets}/dlvsym.py", "{lib}"), package="python3",
        must=(r"^all symbols found$", r"^1 device: verbena0$")),
    Row("asyncwatch", "ibv_asyncwatch", "", "opens the device and waits for events, until it is told to end",
        (Process(("{verbena}", "run", "--", "ibv_asyncwatch"), ready=r"async event FD \d+", end_with=signal.SIGTERM,
                 status=-signal.SIGTERM, must=(r"^verbena0: async event FD \d+",)),),
        package="ibverbs-utils"),
    Row("asyncwatch-d", "ibv_asyncwatch", "-d mlx5_0", "the same, by name",
        (Process(("{verbena}", "run", "--device-name", "mlx5_0", "--", "ibv_asyncwatch", "-d", "mlx5_0"),
                 ready=r"async event FD \d+", end_with=signal.SIGINT, status=-signal.SIGINT,
                 must=(r"^mlx5_0: async event FD \d+",)),),
        package="ibverbs-utils"),
]
