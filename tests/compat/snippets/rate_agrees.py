"""Compares the width and speed that ibv_devinfo -v (verbs) and sysfs tell of verbena0's port."""
import re
import subprocess
import sys

# Gb/s a lane, by the kernel's names; ibv_devinfo prints the number, sysfs the name.
LANE = {"SDR": 2.5, "DDR": 5.0, "QDR": 10.0, "FDR10": 10.0, "FDR": 14.0, "EDR": 25.0, "HDR": 50.0, "NDR": 100.0}

shown = subprocess.run(["ibv_devinfo", "-v"], capture_output=True, text=True, check=True).stdout
width = re.search(r"active_width:\s+(\d+)X", shown)[1]
lane = float(re.search(r"active_speed:\s+([\d.]+) Gbps", shown)[1])
with open("/sys/class/infiniband/verbena0/ports/1/rate") as file:
    rate = file.read().strip()
total, sysfs_width, name = re.match(r"([\d.]+) Gb/sec \((\d+)X (\w+)\)", rate).groups()
if sysfs_width == width and LANE[name] == lane and float(total) == int(width) * lane:
    print(f"rate agrees: {rate}")
else:
    sys.exit(f"verbs: {width}X at {lane} Gb/s a lane; sysfs: {rate}")
