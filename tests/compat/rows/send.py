"""perftest's SEND: ib_send_bw, ib_send_lat."""
from rows.pair import AS_ROOT_ONLY
from rows.perftest import bandwidth, bandwidth_of_sizes, every_size, inline, latency_of_sizes, perftest

BANDWIDTH = bandwidth("ib_send_bw") + bandwidth_of_sizes("ib_send_bw") + [
    every_size("bw-a", "ib_send_bw", "-a -n 100"),
    perftest("bw-e", "ib_send_bw", "-e -n 1000", "sleeping until a completion event"),
    perftest("bw-e-b", "ib_send_bw", "-e -b -n 1000", "the same, both ways at once"),
    inline("bw-I-64", "ib_send_bw", "-I 64 -s 64 -n 1000"),
    inline("bw-I-0", "ib_send_bw", "-I 0 -s 64 -n 1000"),
    perftest("bw-r-8", "ib_send_bw", "-r 8 -n 1000", "a receive queue of 8: the sender has to wait"),
    perftest("bw-recv_post_list", "ib_send_bw", "--recv_post_list=8 -n 800", "receives posted in lists of 8",
             **AS_ROOT_ONLY),
    perftest("bw-D", "ib_send_bw", "-D 1", "for one second", **AS_ROOT_ONLY),
]

LATENCY = [
    perftest("lat", "ib_send_lat", "-n 100", "to and fro, polling"),
    perftest("lat-e", "ib_send_lat", "-e -n 100", "sleeping until a completion event"),
    inline("lat-I-64", "ib_send_lat", "-I 64 -s 64 -n 100"),
    inline("lat-I-0", "ib_send_lat", "-I 0 -s 64 -n 100"),
] + latency_of_sizes("ib_send_lat")

ROWS = BANDWIDTH + LATENCY
