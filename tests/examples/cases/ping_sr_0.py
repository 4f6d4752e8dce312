"""ping-sr-0: works, and shows its three problems."""
from pair_case import FOREVER, PairCase, Works


class PingSr0(Works, PairCase):
    name = "ping-sr-0"

    def test_creates_no_channel(self):
        agent, client = self.transfer("-n", 3, "--trace")
        for running in (agent, client):
            self.assertNotIn("create_event_channel", running.text)
            self.assertNotIn("create_comp_channel", running.text)
        self.assert_order(client, "rdma_resolve_addr: ok", "rdma_resolve_route: ok", "rdma_connect: connected")
        # The client takes no event at all: its calls do that.
        self.assertNotIn("rdma_get_cm_event", client.text)

    def test_first_receive_is_posted_before_accept(self):
        agent, _ = self.transfer("-n", 3, "--trace")
        self.assert_order(agent, "ibv_post_recv", "rdma_accept", "ibv_post_send")

    def test_problem_1_a_shorter_message_stops_the_agent_and_the_client_waits(self):
        agent, port = self.agent("--once", "-s", 64)
        client = self.client(port, "-s", 32)
        self.assert_ends(agent, 1, "wrong byte_len: 32 bytes came, 64 were expected")
        self.assert_does_not_notice(client)

    def test_problem_1_a_longer_message_breaks_the_connection(self):
        agent, port = self.agent("--once", "-s", 32)
        client = self.client(port, "-s", 64)
        self.assert_ends(agent, 1, "failed with status 1, .*longer than the RECV")
        self.assert_ends(client, 1, "failed with status (9|11), ")

    def test_problem_1_another_count_leaves_the_agent_waiting(self):
        agent, port = self.agent("--once", "-n", 20)
        self.assert_ends(self.client(port, "-n", 10), 0)
        self.assert_does_not_notice(agent)

    def test_problem_2_a_dead_client_goes_unseen(self):
        agent, client = self.playing()
        self.kill(client)
        self.assert_does_not_notice(agent)

    def test_problem_3_waiting_takes_a_whole_processor(self):
        self.assertGreater(self.share_of_running_while_waiting(), 0.8)

    def test_an_agent_without_end_outlives_a_stuck_client(self):
        agent, port = self.agent("-n", 200)
        stuck = self.client(port, "-n", FOREVER)  # the agent leaves after 200
        self.assert_ends(self.client(port, "-n", 200), 0)
        stuck.end()
        self.assert_ends(self.client(port, "-n", 200), 0)
        self.assertTrue(agent.lives())
