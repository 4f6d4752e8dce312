"""blast-sr-2e: the same stream, but a lost peer goes unseen."""
from cases.blast_sr_2 import BlastWorks
from pair_case import PairCase, TakesTerms


class BlastSr2e(TakesTerms, BlastWorks, PairCase):
    name = "blast-sr-2e"

    def after_starving(self, agent):
        self.assert_does_not_notice(agent)

    def test_a_dead_sender_goes_unseen(self):
        agent, client = self.playing()
        self.kill(client)
        self.assert_does_not_notice(agent)
