"""Uses pyverbs as its own documentation shows; the argument says which part."""
import os
import sys

import pyverbs.device as d
from pyverbs.pd import PD


def name_of_first() -> str:
    return d.get_device_list()[0].name.decode()


def devices() -> None:
    for device in d.get_device_list():
        print(device.name.decode(), guid_text(device.guid))


def guid_text(guid) -> str:
    return guid if isinstance(guid, str) else ":".join(f"{guid:016x}"[i:i + 4] for i in range(0, 16, 4))


def query() -> None:
    with d.Context(name=name_of_first()) as context:
        device = context.query_device()
        assert device.max_qp > 0 and device.max_cqe > 0 and device.phys_port_cnt == 1, str(device)
        print("device ok")
        check_port(context, 1)
        print("port ok")
        print("gid 0", str(context.query_gid(port_num=1, index=0)).strip())


def check_port(context, number: int) -> None:
    port = context.query_port(number)
    assert port.state == 4 and port.max_mtu == 5 and port.gid_tbl_len > 0 and port.link_layer == 2, str(port)


def second_port() -> None:
    with d.Context(name=name_of_first()) as context:
        check_port(context, 2)
        print("port 2 ok")


def pd() -> None:
    with d.Context(name=name_of_first()) as context:
        domains = [PD(context) for _ in range(100)]
        for domain in domains:
            domain.close()
    print("pd ok")


def many() -> None:
    d.Context(name=name_of_first()).close()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(200):
        d.Context(name=name_of_first()).close()
    after = len(os.listdir("/proc/self/fd"))
    assert before == after, f"{before} descriptors before, {after} after"
    print("many ok")


def fork() -> None:
    d.Context(name=name_of_first()).close()
    child = os.fork()
    if child == 0:
        d.Context(name=name_of_first()).close()
        print("child ok", flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "the child failed"
    d.Context(name=name_of_first()).close()
    print("parent ok")


globals()[sys.argv[1].replace("-", "_")]()
