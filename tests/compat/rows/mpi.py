"""MPI and OpenSHMEM over UCX: small programs that look at every value. Rows of *heavy*, as their packages are large."""
from row import ROOT, Row, one
from rows.middleware import TRANSPORTS, UCX_TROUBLE, WIRE

# Ranks share the machine's few cores.
OPEN_MPI = ("mpicc.openmpi -o {tmp}/use {snippets}/mpi_use.c && "
            "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
            "{verbena} run -- mpirun.openmpi -n RANKS --oversubscribe --mca pml ucx --mca osc ucx {tmp}/use")
# Otherwise ranks of one host speak through MPICH's own shared memory.
MPICH = ("mpicc.mpich -o {tmp}/use {snippets}/mpi_use.c && "
         "MPIR_CVAR_NOLOCAL=1 {verbena} run -- mpiexec.hydra -n RANKS {tmp}/use")
SHMEM = ("oshcc -o {tmp}/use {snippets}/shmem_use.c && "
         "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
         "{verbena} run -- oshrun -n RANKS --oversubscribe --mca pml ucx --mca spml ucx {tmp}/use || true  # see the remark")
WRONG = (r"is wrong$", r"UCX +(ERROR|FATAL)")


def mpi(kind: str, program: str, script: str, package: str, transport: str, ranks: int, wire: bool = False, **more) -> Row:
    environment = f"export UCX_TLS={TRANSPORTS[transport]},self UCX_NET_DEVICES=verbena0:1{' ' + WIRE if wire else ''}\n"
    path = f", {WIRE}" if wire else ""
    more.setdefault("must", (rf"^{ranks} ranks: ring and allreduce ok$", rf"^{ranks} ranks: window ok$"))
    more.setdefault("must_not", WRONG + UCX_TROUBLE)
    more.setdefault("shows", "ring, allreduce, a window's put, get, fetch and op")
    shows = f"{more.pop('shows')}; {ranks} ranks over {transport}_verbs{path}"
    return one(f"{kind}-{transport}-{ranks}{'-wire' if wire else ''}", program, f"-n {ranks}", shows,
               environment + script.replace("RANKS", str(ranks)), package=package, users=(ROOT,), timeout_s=120, **more)


def open_mpi(*what, **more) -> Row:
    return mpi("openmpi", "mpirun.openmpi", OPEN_MPI, "openmpi-bin", *what, needs=("mpicc.openmpi",), **more)


def mpich(*what, **more) -> Row:
    return mpi("mpich", "mpiexec.hydra", MPICH, "mpich", *what, needs=("mpicc.mpich",),
               remark="with MPIR_CVAR_NOLOCAL=1, or MPICH takes its own shared memory on one host", **more)


def shmem(*what, **more) -> Row:
    return mpi("openshmem", "oshrun", SHMEM, "openmpi-bin", *what, needs=("oshcc",), must_not=WRONG,
               shows="OpenSHMEM: put, get, atomics, sum", must=(rf"^{what[1]} elements ok$",),
               remark="crashes in shmem_finalize, after all is done; so it does over TCP, without Verbena", **more)


ROWS = [
    open_mpi("rc", 2), open_mpi("rc", 4), open_mpi("rc", 8), open_mpi("rc", 4, True),
    open_mpi("ud", 2), open_mpi("ud", 4), open_mpi("ud", 4, True),
    mpich("rc", 2), mpich("rc", 4), mpich("rc", 8), mpich("rc", 4, True),
    mpich("ud", 2), mpich("ud", 4), mpich("ud", 4, True),
    shmem("rc", 2), shmem("rc", 4), shmem("rc", 4, True), shmem("ud", 4),
]
