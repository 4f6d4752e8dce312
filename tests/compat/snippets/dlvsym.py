"""Loads libibverbs as NCCL does: dlopen("libibverbs.so"), then every symbol by dlvsym with its version."""
import ctypes
import sys

SYMBOLS = {
    "IBVERBS_1.1": """ibv_get_device_list ibv_free_device_list ibv_get_device_name ibv_open_device ibv_close_device
        ibv_get_async_event ibv_ack_async_event ibv_query_device ibv_query_port ibv_query_gid ibv_query_qp ibv_alloc_pd
        ibv_dealloc_pd ibv_reg_mr ibv_dereg_mr ibv_create_cq ibv_destroy_cq ibv_create_qp ibv_modify_qp ibv_destroy_qp
        ibv_fork_init ibv_event_type_str""".split(),
    "IBVERBS_1.8": ["ibv_reg_mr_iova2"],
    "IBVERBS_1.12": ["ibv_reg_dmabuf_mr"],
}

library = ctypes.CDLL("libibverbs.so")
dlvsym = ctypes.CDLL(None).dlvsym
dlvsym.restype = ctypes.c_void_p
dlvsym.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)


def find(symbol: str, version: str = "IBVERBS_1.1") -> int:
    address = dlvsym(library._handle, symbol.encode(), version.encode())
    if not address:
        sys.exit(f"{symbol}@{version} is missing")
    return address


for version, symbols in SYMBOLS.items():
    for symbol in symbols:
        find(symbol, version)
print("all symbols found")

ListType = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int))
NameType = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)
get_device_list = ListType(find("ibv_get_device_list"))
get_device_name = NameType(find("ibv_get_device_name"))
count = ctypes.c_int()
devices = get_device_list(ctypes.byref(count))
print(count.value, "device:", *(get_device_name(devices[i]).decode() for i in range(count.value)))

with open("/proc/self/maps") as maps:
    mapped = {line.split()[-1] for line in maps if "libibverbs" in line}
if any(not path.startswith(sys.argv[1]) for path in mapped):
    sys.exit(f"not only ours is mapped: {mapped}")
