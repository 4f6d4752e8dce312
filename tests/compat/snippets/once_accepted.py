"""once_accepted.py COMMAND…: runs a client of RDMA CM, again while nobody listens yet: such servers show no TCP port."""
import re
import subprocess
import sys
import time

NOBODY = r"REJECTED|UNREACHABLE|[Rr]efused|Unexpected CM event|rejected"

for _ in range(50):
    done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    output = done.stdout.decode(errors="replace")
    if done.returncode == 0 or not re.search(NOBODY, output):
        break
    time.sleep(0.2)
print(output, end="")
sys.exit(done.returncode)
