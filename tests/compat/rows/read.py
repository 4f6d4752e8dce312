"""perftest's RDMA READ: ib_read_bw, ib_read_lat. -a is in verbatim.py; they have no -I."""
from rows.perftest import bandwidth, bandwidth_of_sizes, latency_of_sizes, perftest

BANDWIDTH = bandwidth("ib_read_bw") + bandwidth_of_sizes("ib_read_bw") + [
    perftest("bw-e", "ib_read_bw", "-e -n 1000", "sleeping until a completion event"),
    perftest("bw-o-1", "ib_read_bw", "-o 1 -n 1000", "one READ at a time"),
]

LATENCY = [
    perftest("lat", "ib_read_lat", "-n 100", "one after another, polling"),
    perftest("lat-e", "ib_read_lat", "-e -n 100", "sleeping until a completion event"),
] + latency_of_sizes("ib_read_lat")

ROWS = BANDWIDTH + LATENCY
