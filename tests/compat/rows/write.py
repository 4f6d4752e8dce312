"""perftest's RDMA WRITE: ib_write_bw, ib_write_lat. -a is in verbatim.py; they have no -e."""
from rows.pair import AS_ROOT_ONLY
from rows.perftest import bandwidth, bandwidth_of_sizes, inline, latency_of_sizes, perftest

BANDWIDTH = bandwidth("ib_write_bw") + bandwidth_of_sizes("ib_write_bw") + [
    inline("bw-I-64", "ib_write_bw", "-I 64 -s 64 -n 1000"),
    inline("bw-I-0", "ib_write_bw", "-I 0 -s 64 -n 1000"),
    perftest("bw-mr_per_qp", "ib_write_bw", "--mr_per_qp -q 8 -n 200", "8 queue pairs, each with its memory region",
             **AS_ROOT_ONLY),
    perftest("bw-perform_warm_up", "ib_write_bw", "--perform_warm_up -n 1000", "warmed up before", **AS_ROOT_ONLY),
]

LATENCY = [
    perftest("lat", "ib_write_lat", "-n 100", "to and fro; the target looks at its memory only"),
    inline("lat-I-64", "ib_write_lat", "-I 64 -s 64 -n 100"),
    inline("lat-I-0", "ib_write_lat", "-I 0 -s 64 -n 100"),
] + latency_of_sizes("ib_write_lat")

ROWS = BANDWIDTH + LATENCY
