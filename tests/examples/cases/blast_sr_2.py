"""blast-sr-2: a stream, verified; what happens without enough RECVs; a lost peer ends it."""
from pair_case import Notices, PairCase, TakesTerms, Works


class BlastWorks(Works):
    directions = 1

    def test_starving_the_receiver_fails_the_sender_and_says_why(self):
        agent, port = self.agent("--once", "--starve", "--rq-depth", 8, "--rnr-retry", 2)
        client = self.client(port, "-n", 100)
        self.assert_ends(client, 1, "failed with status 13, RNR retry counter exceeded: receiver not ready: the peer had no RECV")
        self.after_starving(agent)

    def test_a_slow_receiver_slows_the_sender_but_loses_nothing(self):
        agent, client = self.transfer("-n", 60, agent_more=("--rq-depth", 2, "--slow-us", 2000))
        self.assert_transferred(agent, 60, 4096)
        self.assertGreater(client.number(r"transferred: .* in ([\d.]+) s"), 0.1)  # 58 of 60 had to wait 2 ms

    def test_wrong_bytes_are_found(self):
        agent, port = self.agent("--once")
        # Without --verify a sender fills each buffer once, and the fifth message has the first one's bytes.
        self.client(port, "--no-verify", "-n", 20, "--sq-depth", 4)
        self.assert_ends(agent, 1, "message 4: byte 0 is 0x01, it should be 0x45")

    def test_no_verify_finds_nothing(self):
        self.transfer("-n", 20, "--sq-depth", 4, "--no-verify")

    def test_many_are_outstanding(self):
        _, client = self.transfer("-n", 100, "--sq-depth", 32, "--trace")
        before_first_completion = client.text[:client.text.index("trace: completion of")]
        self.assertEqual(before_first_completion.count("trace: ibv_post_send: ok"), 32)


class BlastSr2(Notices, TakesTerms, BlastWorks, PairCase):
    name = "blast-sr-2"

    def after_starving(self, agent):
        self.assert_notices(agent)
