"""ping-sr-4: both channels non-blocking, one poll(2), no thread of its own."""
from pair_case import Notices, PairCase, TakesTerms, Works


class PingSr4(Notices, TakesTerms, Works, PairCase):
    name = "ping-sr-4"

    def test_has_no_thread_more_than_ping_sr_0(self):
        agent, client = self.playing()
        plain = self.threads_of_ping_sr_0()
        self.assertNotIn("cm-events", client.threads() + agent.threads())
        self.assertEqual(len(client.threads()), len(plain))
        self.assertEqual(len(agent.threads()), len(plain))

    def threads_of_ping_sr_0(self) -> list[str]:
        _, port = self.server("ping-sr-0-agent", "--once", "-n", 1_000_000_000)
        client = self.start("ping-sr-0-client", "--port", port, "-n", 1_000_000_000, "10.77.0.1")
        self.wait_busy(client)
        return client.threads()

    def test_both_channels_do_not_block(self):
        _, client = self.transfer("-n", 3, "--trace")
        self.assertEqual(client.text.count("doesn't block any more"), 2, client.text)

    def test_waiting_takes_no_processor(self):
        self.assertLess(self.share_of_running_while_waiting(), 0.2)
