"""perftest's atomics: ib_atomic_bw, ib_atomic_lat. No -a, -s, -I: always 8 bytes; fetch and add, unless -A is given."""
from rows.perftest import bandwidth, perftest

SWAP = "-A CMP_AND_SWAP"

BANDWIDTH = bandwidth("ib_atomic_bw") + [
    perftest("bw-swap", "ib_atomic_bw", f"{SWAP} -n 1000", "compare and swap"),
    perftest("bw-swap-q-8", "ib_atomic_bw", f"{SWAP} -q 8 -n 200", "compare and swap, 8 queue pairs"),
    perftest("bw-e", "ib_atomic_bw", "-e -n 1000", "sleeping until a completion event"),
    perftest("bw-o-1", "ib_atomic_bw", "-o 1 -n 1000", "one atomic at a time"),
]

LATENCY = [
    perftest("lat", "ib_atomic_lat", "-n 100", "one after another, polling"),
    perftest("lat-e", "ib_atomic_lat", "-e -n 100", "sleeping until a completion event"),
    perftest("lat-swap", "ib_atomic_lat", f"{SWAP} -n 100", "compare and swap"),
]

ROWS = BANDWIDTH + LATENCY
