"""Programs whose packages are large: only in `make compat`."""
from row import one
from rows.pair import AS_ROOT_ONLY

ROWS = [
    one("qemu-migrate", "qemu-system-x86_64", "-incoming rdma:10.77.0.1:4444", "a running guest moves to another QEMU",
        ("{python}", "{snippets}/qemu_migrate.py", "{verbena}", "run", "--"), package="qemu-system-x86", timeout_s=120,
        must=(r"^before: running and paused \(inmigrate\)$", r"^Migration status: completed$",
              r"^after: paused \(postmigrate\) and running$"),
        **AS_ROOT_ONLY),
]
