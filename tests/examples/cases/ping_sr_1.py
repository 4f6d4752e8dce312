"""ping-sr-1: the first problem is gone, the others are not."""
from pair_case import PairCase, TakesTerms, Works


class PingSr1(TakesTerms, Works, PairCase):
    name = "ping-sr-1"

    def test_creates_no_channel(self):
        agent, client = self.transfer("-n", 3, "--trace")
        for running in (agent, client):
            self.assertNotIn("create_event_channel", running.text)
            self.assertNotIn("create_comp_channel", running.text)

    def test_problem_2_a_dead_client_goes_unseen(self):
        agent, client = self.playing()
        self.kill(client)
        self.assert_does_not_notice(agent)
