"""ping-sr-2e: an event channel, each asynchronous call followed by a wait; a dead peer still goes unseen."""
from pair_case import PairCase, TakesTerms, Works


class PingSr2e(TakesTerms, Works, PairCase):
    name = "ping-sr-2e"

    def test_each_call_is_followed_by_its_event(self):
        agent, client = self.transfer("-n", 3, "--trace")
        self.assert_order(
            client, "rdma_create_event_channel", "rdma_resolve_addr: ok", "rdma_get_cm_event: RDMA_CM_EVENT_ADDR_RESOLVED",
            "rdma_ack_cm_event", "rdma_resolve_route: ok", "rdma_get_cm_event: RDMA_CM_EVENT_ROUTE_RESOLVED",
            "rdma_connect: ok", "rdma_get_cm_event: RDMA_CM_EVENT_ESTABLISHED", "ibv_post_send",
            "rdma_get_cm_event: RDMA_CM_EVENT_DISCONNECTED", "rdma_destroy_id", "rdma_destroy_event_channel")
        self.assert_order(
            agent, "rdma_create_event_channel", "rdma_listen", "rdma_get_cm_event: RDMA_CM_EVENT_CONNECT_REQUEST",
            "rdma_create_event_channel", "rdma_migrate_id: ok", "rdma_accept: ok",
            "rdma_get_cm_event: RDMA_CM_EVENT_ESTABLISHED")

    def test_problem_2_a_dead_client_goes_unseen(self):
        agent, client = self.playing()
        self.kill(client)
        self.assert_does_not_notice(agent)
