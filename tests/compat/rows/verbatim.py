"""Lines as guides to RDMA have them. They move up to 80 GB, which takes a while."""
from row import ORDINARY, ROOT, Row
from rows.perftest import perftest


def line(program: str, device: str, user: str) -> Row:
    options = f"-a -F -c RC -d {device} -i 1"
    return perftest(f"{program}-{device}", program, options,
                    f"each size from 2 bytes to 8 MiB, with `--device-name {device}`", run=("--device-name", device),
                    users=(user,), remark=f"as {'root' if user == ROOT else 'an ordinary user'} only, to save time")


ROWS = [
    line("ib_read_bw", "mlx5_0", ROOT),
    line("ib_read_bw", "ibp59s0", ORDINARY),
    line("ib_write_bw", "mlx5_0", ROOT),
]
