"""ping-sr-3: a completion channel, so that waiting takes no processor."""
import re

from pair_case import Notices, PairCase, TakesTerms, Works


def counts(text: str) -> dict[str, int]:
    return {what: int(number) for number, what in
            re.findall(r"(\d+) (first hits|first empty|second hits|second empty|CQ events|of them extra)", text)}


class PingSr3(Notices, TakesTerms, Works, PairCase):
    name = "ping-sr-3"

    def test_has_a_thread_for_events(self):
        _, client = self.playing()
        self.assertIn("cm-events", client.threads())

    def test_waiting_takes_no_processor(self):
        self.assertLess(self.share_of_running_while_waiting(), 0.2)  # ping-sr-2 is tested to be above 0.8

    def test_counts_fit(self):
        agent, client = self.transfer("-n", 500)
        for running in (agent, client):
            found = counts(running.text)
            self.assertEqual(found["first hits"] + found["second hits"], 1000, running.text)
            self.assertGreater(found["CQ events"], 0)
            self.assertEqual(found["CQ events"], found["second hits"] + found["second empty"], running.text)
            self.assertEqual(found["of them extra"], found["second empty"])

    def test_events_are_acknowledged_in_batches_and_all_before_the_queue_goes(self):
        _, client = self.transfer("-n", 400, "--trace")
        events = len(re.findall(r"trace: ibv_get_cq_event: ok", client.text))
        acknowledged = [int(n) for n in re.findall(r"trace: ibv_ack_cq_events: (\d+)", client.text)]
        self.assertGreater(events, 100, "too few to see a batch")
        self.assertEqual(sum(acknowledged), events)
        self.assertEqual(acknowledged[:-1], [100] * (len(acknowledged) - 1))
        self.assert_order(client, "ibv_ack_cq_events", "ibv_destroy_cq: ok", "ibv_destroy_comp_channel: ok")
        self.assertLess(client.text.rindex("ibv_ack_cq_events"), client.text.index("ibv_destroy_cq"))

    def test_arms_before_it_waits(self):
        _, client = self.transfer("-n", 50, "--trace")
        self.assert_order(client, "ibv_create_comp_channel", "ibv_req_notify_cq: ok", "ibv_get_cq_event: ok",
                          "ibv_req_notify_cq: ok")
