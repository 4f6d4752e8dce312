"""ping-sr-2: a thread for CM events, so that a lost peer ends it; waiting still takes a processor."""
from pair_case import Notices, PairCase, TakesTerms, Works


class PingSr2(Notices, TakesTerms, Works, PairCase):
    name = "ping-sr-2"

    def test_has_a_thread_for_events(self):
        agent, client = self.playing()
        self.assertIn("cm-events", client.threads())
        self.assertIn("cm-events", agent.threads())

    def test_problem_3_waiting_takes_a_whole_processor(self):
        self.assertGreater(self.share_of_running_while_waiting(), 0.8)
