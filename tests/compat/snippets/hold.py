"""Attaches to the host agent by opening the device, makes the file named, and waits: hold.py FILE."""
import ctypes
import signal
import sys

ibverbs = ctypes.CDLL("libibverbs.so.1")
ibverbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
ibverbs.ibv_open_device.restype = ctypes.c_void_p
ibverbs.ibv_open_device.argtypes = (ctypes.c_void_p,)

devices = ibverbs.ibv_get_device_list(None)
if not ibverbs.ibv_open_device(devices[0]):
    sys.exit("the device can't be opened")
open(sys.argv[1], "w").close()
signal.pause()
