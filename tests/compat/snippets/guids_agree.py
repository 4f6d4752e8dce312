"""Compares the GUIDs that ibv_devinfo (verbs) and ibstat (sysfs) tell of each device."""
import re
import subprocess
import sys


def of_verbs(device: str) -> tuple[str, ...]:
    shown = subprocess.run(["ibv_devinfo", "-d", device], capture_output=True, text=True, check=True).stdout
    return tuple(text.replace(":", "") for text in re.findall(r"_guid:\s+(\S+)", shown))


def of_sysfs(device: str) -> tuple[str, ...]:
    shown = subprocess.run(["ibstat", device], capture_output=True, text=True, check=True).stdout
    return tuple(re.findall(r"(?:Node|System image) GUID: 0x(\S+)", shown))


status = 0
for device in ("roce0", "roce1"):
    if of_verbs(device) == of_sysfs(device):
        print(device, "agrees")
    else:
        print(f"{device}: node and system image GUID are {of_verbs(device)} by verbs, {of_sysfs(device)} by sysfs")
        status = 1
sys.exit(status)
