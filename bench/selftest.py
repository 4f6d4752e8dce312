#!/usr/bin/python3 -B
"""Tests of the harness itself: reading what tools print, arithmetic, and children that fail. Less than a second."""
import io
import json
import os
import sys
import time
import unittest
from contextlib import redirect_stdout

import connect_page
import guest
import guest_cases
import guest_page
import objects_page
import page
import run
import wire_cases
import wire_page
from cases import (ALL_SIZES, BANDWIDTH, BANDWIDTH_MIB_S, LATENCY, LATENCY_US, MIB, RATE_MOPS, Bench, Case, Peer,
                   PeerFailed, PeerTimedOut, iterations, number, size_name)
from peers import tcp, ucx, verbena
from processes import last_words, numbers, run_alone, run_pair
from summary import LEVEL, LOSES, WINS, Results, ratio_rows, speedup
from wire_cases import WireCase
from wire_summary import WireResults
from wire_summary import ratio_rows as wire_ratio_rows

CORE = min(os.sched_getaffinity(0))
# As perftest 4.5-0.17's printf formats give them, tabs included.
PERFTEST_LATENCY = """\
 local address: LID 0000 QPN 0x0011 PSN 0x5a3c29 RKey 0x000203 VAddr 0x0056084da2c000
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   \
99% percentile[usec]   99.9% percentile[usec] 
 8       1000          0.42           17.31        0.45  \t       0.47     \t0.21\t\t0.60 \t\t17.31  
---------------------------------------------------------------------------------------
"""
PERFTEST_BANDWIDTH = """\
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      5000             0.00               9123.45\t\t   0.145975
---------------------------------------------------------------------------------------
"""
UCX_CSV = """\
iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
100000,0.289,0.299,0.299,25.48,25.50,3339401,3340000
"""


class ReadingPerftest(unittest.TestCase):
    def test_latency_is_the_median(self):
        self.assertEqual(verbena.parse(PERFTEST_LATENCY, Case("write", LATENCY, 8)), {LATENCY_US: 0.45})

    def test_bandwidth_is_the_average_with_its_rate(self):
        expected = {BANDWIDTH_MIB_S: 9123.45, RATE_MOPS: 0.145975}
        self.assertEqual(verbena.parse(PERFTEST_BANDWIDTH, Case("send", BANDWIDTH, 65536)), expected)
        newer = PERFTEST_BANDWIDTH.replace("[MB/sec]", "[MiB/sec]")
        self.assertEqual(verbena.parse(newer, Case("send", BANDWIDTH, 65536)), expected)

    def test_other_units_sizes_or_none_at_all_are_failures(self):
        case = Case("send", BANDWIDTH, 65536)
        for text in (PERFTEST_BANDWIDTH.replace("[MB/sec]", "[Gb/sec]"), PERFTEST_LATENCY, "", "Failed to create MR"):
            with self.assertRaises(PeerFailed):
                verbena.parse(text, case)
        with self.assertRaises(PeerFailed):
            verbena.parse(PERFTEST_BANDWIDTH, Case("send", BANDWIDTH, 8))


class ReadingTheOthers(unittest.TestCase):
    def test_ucx(self):
        self.assertEqual(ucx.parse(UCX_CSV, LATENCY), {LATENCY_US: 0.289})
        self.assertEqual(ucx.parse("a warning\n" + UCX_CSV, BANDWIDTH), {BANDWIDTH_MIB_S: 25.5, RATE_MOPS: 3.34})
        for text in ("", UCX_CSV.splitlines()[0], UCX_CSV.replace("0.289,", "")):
            with self.assertRaises(PeerFailed):
                ucx.parse(text, LATENCY)

    def test_our_helpers(self):
        self.assertEqual(numbers("congestion cubic\nlatency_us 2.5\n", (LATENCY_US,)), {LATENCY_US: 2.5})
        with self.assertRaises(PeerFailed):
            numbers("latency_us\n", (LATENCY_US,))

    def test_last_words_prefer_the_error(self):
        self.assertEqual(last_words("-----\nhello\nFailed to create MR\nbye\n"), "Failed to create MR")
        self.assertEqual(last_words("one\ntwo\n----\n"), "one; two")


def a_run(ours: list, theirs: list) -> dict:
    """A document with one latency case of each, rounds from 1."""
    def rows(name, values):
        rounds = [{"round": n} | (value if isinstance(value, dict) else {LATENCY_US: value})
                  for n, value in enumerate(values, 1)]
        return {"peer": name, "operation": "send", "kind": LATENCY, "size": 8, "rounds": rounds}

    answers = [{"for": [operation, LATENCY], "by": ["send", LATENCY]} for operation in ("send", "write")]
    return {"ours": "us", "peers": {"us": {"answers": answers}, "them": {"answers": answers}},
            "results": [rows("us", ours), rows("them", theirs)]}


class Arithmetic(unittest.TestCase):
    def test_speedup_is_above_one_when_we_are_faster(self):
        self.assertEqual(speedup(LATENCY_US, 1, 2), 2)
        self.assertEqual(speedup(BANDWIDTH_MIB_S, 1, 2), 0.5)

    def test_ratios_are_taken_within_rounds(self):
        # The machine was ten times slower in the second round: the ratio of medians would be wrong, ours isn't.
        ratio = Results(a_run([1, 10, 1], [2, 20, 3])).ratio("them", "send", LATENCY_US, 8)
        self.assertEqual((ratio["median"], ratio["min"], ratio["max"], ratio["verdict"]), (2, 2, 3, WINS))

    def test_rounds_without_both_dont_count(self):
        results = Results(a_run([1, {"failed": "no"}, 4], [2, 2, {"failed": "no"}]))
        self.assertEqual(results.ratio("them", "send", LATENCY_US, 8)["rounds"], 1)
        self.assertEqual(results.failures(), {})

    def test_rounds_that_disagree_are_level(self):
        self.assertEqual(Results(a_run([1, 2], [2, 1])).ratio("them", "send", LATENCY_US, 8)["verdict"], LEVEL)
        self.assertEqual(Results(a_run([2, 2], [1, 1])).ratio("them", "write", LATENCY_US, 8)["verdict"], LOSES)

    def test_failures_are_listed_and_give_no_ratio(self):
        results = Results(a_run([{"failed": "why"}] * 2, [1, 1]))
        self.assertIsNone(results.ratio("them", "send", LATENCY_US, 8))
        self.assertEqual(ratio_rows(results), [])
        self.assertEqual(results.failures(), {("us", "why"): [("send", LATENCY, 8)]})

    def test_names(self):
        self.assertEqual([size_name(size) for size in (8, 4096, MIB)], ["8 B", "4 KiB", "1 MiB"])
        self.assertEqual([number(value) for value in (0.0137, 0.45, 4.8213, 53.12, 12345.0)],
                         ["0.0137", "0.450", "4.82", "53.1", "12,300"])
        self.assertEqual(page.ranges([8, 64, MIB], list(ALL_SIZES)), "8 B to 64 B, 1 MiB")
        self.assertEqual((iterations(8, 0.1, 1000), iterations(1 << 40, 1, 1000)), (500_000, 30))


def ratio_rows_of(document: dict) -> list[dict]:
    return wire_ratio_rows(WireResults(document))


def a_wire_run(ours: list, udp: list, rates: dict[int, float]) -> dict:
    """Latency of SEND beside UDP's, and rates by the number of queue pairs, on one link."""
    def row(case, values):
        metric = wire_cases.METRICS[case.measure]
        return case.row("lo") | {"rounds": [{"round": n, metric: value} for n, value in enumerate(values, 1)]}

    rows = [row(WireCase("latency", "verbena", "send", 8), ours), row(WireCase("latency", "udp", "pingpong", 8), udp)]
    rows += [row(WireCase("rate", "verbena", "send", 8, queue_pairs=count), [rate]) for count, rate in rates.items()]
    return {"results": rows, "links": {"lo": "loopback"}}


class Wire(unittest.TestCase):
    def test_ratios_are_ours_by_theirs_against_the_aim(self):
        rows = ratio_rows_of(a_wire_run([3, 30], [2, 20], {1: 1.0, 16: 0.9, 1000: 0.5}))
        self.assertEqual([(row["median"], row["verdict"]) for row in rows], [(1.5, "met"), (0.9, "met"), (0.5, "missed")])

    def test_rounds_that_disagree_leave_it_open(self):
        self.assertEqual([row["verdict"] for row in ratio_rows_of(a_wire_run([3, 4], [2, 2], {}))], ["open"])

    def test_what_the_kernel_alone_misses_is_beyond_the_sockets(self):
        for kernel, expected in ((3.1, "beyond the sockets"), (2.9, "missed")):
            document = a_wire_run([4, 4], [2, 2], {})
            document["results"].append(WireCase("latency", "kernel", "pingpong", 8).row("lo")
                                       | {"rounds": [{"round": n, LATENCY_US: kernel} for n in (1, 2)]})
            self.assertEqual([row["verdict"] for row in ratio_rows_of(document)], [expected])

    def test_the_page_shows_each_ratio_and_what_failed(self):
        document = a_wire_run([4], [2], {1: 2.0, 1000: 1.0}) | {
            "machine": {"date": "today", "verbena": "abc"}, "failed": {}, "probes": [],
            "settings": {"quick": False, "only": "", "rounds_complete": 1, "seconds": 60}}
        document["results"][1]["rounds"].append({"round": 2, "failed": "no"})
        document["results"].append(WireCase("bandwidth", "verbena", "read", MIB).row("lo")
                                   | {"rounds": [{"round": 1, "failed": "it | hung"}]})
        document["ratios"] = ratio_rows_of(document)
        text = wire_page.text(document)
        for expected in ("| lo | 8 B SEND | 4.00 | - | 2.00 | 2.00 (2.00 to 2.00) | missed |", "it \\| hung", "1,000 QPs"):
            self.assertIn(expected, text)

    def test_each_measurement_comes_once_a_round(self):
        plan = wire_cases.plan()
        self.assertEqual(len(plan), len({case.name("lo") for case in plan}))


def connect_rounds(*rounds: tuple[float, float]) -> dict:
    entries = [{"round": n, "rdma_connect_us": rdma, "rdma_whole_us": 2 * rdma, "tcp_accept_us": tcp,
                "tcp_connect_us": tcp / 2} for n, (rdma, tcp) in enumerate(rounds, 1)]
    return {"machine": {"date": "today", "verbena": "abc"}, "probes": [],
            "settings": {"rounds_complete": len(entries), "connections": 9},
            "rounds": [*entries, {"round": 9, "failed": "it hung"}]}


class Connect(unittest.TestCase):
    def test_the_ratio_is_taken_within_rounds(self):
        # The machine was ten times slower in the second round.
        for rounds, expected in (([(90, 10), (900, 100)], (9, "met")), ([(300, 20), (150, 10)], (15, "missed")),
                                 ([(90, 10), (110, 10)], (10, "open"))):
            ratio = connect_page.ratio_row(connect_rounds(*rounds))
            self.assertEqual((ratio["median"], ratio["verdict"]), expected)
        self.assertIsNone(connect_page.ratio_row(connect_rounds()))

    def test_the_page_shows_figures_and_what_failed(self):
        document = connect_rounds((90, 10))
        text = connect_page.text(document | {"ratio": connect_page.ratio_row(document)})
        for expected in ("(9.00 to 9.00)**", "| TCP: `connect` alone | 5.00 (5.00 to 5.00) |", "it hung"):
            self.assertIn(expected, text)


class Objects(unittest.TestCase):
    @staticmethod
    def document(*rounds: tuple[float, float, float]) -> dict:
        entries = [dict.fromkeys(objects_page.KEYS, 1.0) | {"qp_arena_bytes": size, "few_ns": few, "many_ns": many}
                   for size, few, many in rounds]
        made = {"machine": {"date": "today", "verbena": "abc"}, "rounds": [*entries, {"failed": "it hung"}],
                "settings": {"rounds_complete": len(entries), "objects": "9 things"}}
        return made | {"ratio": objects_page.ratio_row(made)}

    def test_aims_are_met_or_missed(self):
        for row, verdict, small in (((8192, 100, 110), "met", True), ((8193, 100, 120), "missed", False)):
            document = self.document(row)
            self.assertEqual((document["ratio"]["verdict"], objects_page.small_enough(document)), (verdict, small))
        self.assertFalse(objects_page.small_enough(self.document()))
        self.assertIn("it hung", objects_page.in_short(self.document()))

    def test_the_page_shows_figures_and_what_failed(self):
        text = objects_page.text(self.document((900, 100, 105)))
        for expected in ("1.05 (1.05 to 1.05)", "9 things", "it hung", "met"):
            self.assertIn(expected, text)


def a_guest_run(ours: dict[str, list], rxe: dict[str, list], udp: list) -> dict:
    """By measure, of SEND 8 B; an entry that is a text is a failure."""
    def row(who, measure, values, operation="send"):
        metric = wire_cases.METRICS[measure]
        return guest_cases.GuestCase(measure, who, operation, 8).row() | {"rounds": [
            {"round": n} | ({"failed": value} if isinstance(value, str) else {metric: value})
            for n, value in enumerate(values, 1)]}

    rows = [row(who, measure, values) for who, of in (("verbena", ours), ("rxe", rxe)) for measure, values in of.items()]
    rows += [row(who, "latency", udp, "pingpong") for who in (guest_cases.UDP, guest_cases.KERNEL, guest_cases.UDP_BESIDE_RXE)]
    made = {"machine": {"date": "today", "verbena": "abc"}, "results": rows,
            "settings": {"rounds_complete": 2, "guest_kernel": "6.1", "mtu": 9000, "clock_ratio": 1.5,
                         "waiting_percent": 40, "stolen_percent": 0}}
    return made | {"ratios": guest_page.ratio_rows(made)}


class InTheGuest(unittest.TestCase):
    def test_aims_are_against_rxe_and_udp(self):
        # The machine was ten times slower in the second round.
        document = a_guest_run({"rate": [6, 0.8], "latency": [30, 400]}, {"rate": [2, 0.2], "latency": [60, 600]}, [20, 200])
        found = [(row["measure"], row["against"], row.get("verdict")) for row in document["ratios"]]
        self.assertEqual(found, [("rate", "rxe", "met"), ("latency", "rxe", None), ("latency", "udp", "open")])
        self.assertEqual(document["ratios"][0]["median"], 3.5)

    def test_the_page_shows_figures_failures_and_disturbance(self):
        text = guest_page.text(a_guest_run({"rate": [1, "it | hung"]}, {"rate": [2, 2]}, [20, 20]))
        for expected in ("0.500 (0.500 to 0.500) | at least 3: missed |", "| 1 of 2 | it \\| hung |", "40 %", "clock went at 1.50"):
            self.assertIn(expected, text)

    def test_what_the_guest_says_is_kept_line_by_line(self):
        told, case = guest.Told(), guest_cases.plan()[0]
        with redirect_stdout(io.StringIO()):
            for said in ({"kernel": "6.1"}, {"case": case.row(), "entry": {"round": 1, BANDWIDTH_MIB_S: 5}}):
                told.line(json.dumps(said | {"clock": 1.0}), 0)
            told.line("Traceback", 0)
        self.assertEqual((told.kernel, told.found[case], told.other), ("6.1", [{"round": 1, BANDWIDTH_MIB_S: 5}], "Traceback"))

    def test_each_measurement_comes_once_a_round(self):
        plan = guest_cases.plan()
        self.assertEqual(len(plan), len(set(plan)))


class Plan(unittest.TestCase):
    def test_each_measurement_comes_once_a_round(self):
        plan = [(peer.name, case) for peer, case in run.cells(ALL_SIZES, "")]
        self.assertEqual(len(plan), len(set(plan)))
        self.assertIn(("tcp", Case("send", BANDWIDTH, 8)), plan)
        self.assertNotIn(("tcp", Case("write", BANDWIDTH, 8)), plan)

    def test_only_finds_what_stands_beside(self):
        plan = run.cells(ALL_SIZES, "write_bw/8 B/tcp")
        self.assertEqual(plan, [(tcp.PEER, Case("send", BANDWIDTH, 8))])

    def test_patience_ends(self):
        def hang(case, bench):
            raise PeerTimedOut("hung")

        peer, case = Peer("p", "", {}, hang), Case("send", LATENCY, 8)
        some = run.Run(Bench(verbena=None, helpers=None, cores=(0, 1), timeout_seconds=1), [(peer, case)], 9, 60)
        words = [some.measure(peer, case)["failed"] for _ in range(5)]
        self.assertEqual(words[:3], ["hung"] * 3)
        self.assertTrue(all(word.startswith("left out") for word in words[3:]))


class Children(unittest.TestCase):
    def test_failures_say_why(self):
        with self.assertRaisesRegex(PeerFailed, "ended with 3: it broke"):
            run_alone(["sh", "-c", "echo it broke; exit 3"], None, 5)
        with self.assertRaises(PeerFailed):
            run_alone(["/nonexistent/program"], None, 5)
        with self.assertRaisesRegex(PeerFailed, "server sh .*no device"):
            run_pair(["sh", "-c", "echo no device; exit 1"], ["true"], 1, (CORE, CORE), 5)

    def test_what_hangs_is_killed(self):
        start = time.monotonic()
        with self.assertRaises(PeerTimedOut):
            run_alone(["sleep", "60"], None, 0.1)
        with self.assertRaises(PeerTimedOut):
            run_pair(["sleep", "60"], ["true"], 1, (CORE, CORE), 0.1)
        self.assertLess(time.monotonic() - start, 2)


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False).result.wasSuccessful() else 1)
