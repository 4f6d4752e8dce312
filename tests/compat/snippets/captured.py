"""captured.py DIRECTORY COMMAND…: runs a program with VERBENA_CAPTURE and VERBENA_TRACE, tells what tshark makes of
the captures."""
import os
import subprocess
import sys
import tempfile
from pathlib import Path


def tshark(path: Path, chosen: str) -> int:
    """How many of a capture's packets it sees that are `chosen`."""
    shown = subprocess.run(["tshark", "-n", "-r", str(path), "-Y", chosen], capture_output=True, text=True)
    if shown.returncode:
        sys.exit(f"tshark: {shown.stderr}")
    return len(shown.stdout.splitlines())


directory = tempfile.mkdtemp(dir=sys.argv[1])  # each end has its own
environment = os.environ | {"VERBENA_CAPTURE": f"{directory}/%p.pcapng", "VERBENA_TRACE": "1"}
done = subprocess.run(sys.argv[2:], env=environment)
for path in Path(directory).iterdir():
    print(tshark(path, "infiniband"), "packets captured,", tshark(path, "_ws.malformed"), "malformed")
sys.exit(done.returncode)
