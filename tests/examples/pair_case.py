"""What the pairs of programs have in common: an agent that listens, and clients."""
import re
import signal
import time
import unittest

import stage
from stage import ADDRESS, Running

TEARDOWN = ("rdma_disconnect", "ibv_dereg_mr", "rdma_destroy_qp", "ibv_destroy_cq", "ibv_dealloc_pd", "rdma_destroy_id")
FOREVER = 1_000_000_000


class ExampleCase(unittest.TestCase):
    """Ends what a test started."""

    def setUp(self):
        self.started = []

    def tearDown(self):
        for running in self.started:
            running.end()

    def start(self, program: str, *arguments, **more) -> Running:
        self.started.append(Running(program, *arguments, **more))
        return self.started[-1]

    def server(self, program: str, *arguments, **more) -> tuple[Running, str]:
        """One that listens, and its port."""
        running = self.start(program, "--port", 0, *arguments, **more)
        return running, running.wait_for(r"listening on (?:TCP )?port (\d+)")[1]

    def assert_ends(self, running: Running, status: int, pattern: str = "", seconds: float = stage.PATIENCE_S) -> None:
        self.assertEqual(running.wait(seconds), status, running.account())
        if pattern:
            self.assertRegex(running.text, pattern)

    def assert_order(self, running: Running, *verbs: str) -> None:
        """That the trace has lines with these beginnings in this order; others may be between."""
        lines = iter(running.text.splitlines())
        for verb in verbs:
            if not any(line.startswith(f"trace: {verb}") for line in lines):
                self.fail(f"{verb} isn't where it should be in the trace of {running.name}:\n{running.text}")


class PairCase(ExampleCase):
    """Tests of one pair; `name` is that of the subclass's programs."""
    name = ""

    def agent(self, *arguments, **more) -> tuple[Running, str]:
        return self.server(f"{self.name}-agent", *arguments, **more)

    def client(self, port: str, *arguments, address: str = ADDRESS, **more) -> Running:
        return self.start(f"{self.name}-client", "--port", port, *arguments, address, **more)

    def playing(self, *agent_arguments) -> tuple[Running, Running]:
        """An agent and a client that don't come to an end, while data moves."""
        agent, port = self.agent("--once", "--count", FOREVER, *agent_arguments)
        client = self.client(port, "--count", FOREVER)
        self.wait_busy(client)
        return agent, client

    def wait_busy(self, client: Running) -> None:
        """Until the connection is there and used. Asleep or not, what a ping costs can be seen."""
        deadline = time.monotonic() + stage.PATIENCE_S
        while client.lives() and time.monotonic() < deadline:
            if client.cpu_s() >= 0.1:
                return
            time.sleep(0.02)
        self.fail(f"no data moves; {client.account()}")

    def kill(self, running: Running) -> None:
        running.send(signal.SIGKILL)
        running.wait()

    def assert_notices(self, survivor: Running) -> None:
        self.assert_ends(survivor, 1, r"the peer disconnected before we were done: .*\(ECONNRESET\)", seconds=5)

    def assert_does_not_notice(self, survivor: Running) -> None:
        time.sleep(0.5)  # those that notice have done so by now
        self.assertGreater(survivor.share_of_running(1), 0.8, "it should be polling still")
        self.assertTrue(survivor.lives(), survivor.account())

    def share_of_running_while_waiting(self) -> float:
        """Of a client whose agent is stopped for a moment."""
        agent, client = self.playing()
        agent.send(signal.SIGSTOP)
        time.sleep(0.1)
        share = client.share_of_running(0.6)
        alive = client.lives()
        agent.send(signal.SIGCONT)
        self.assertTrue(alive, client.account())
        return share


class Works:
    """What each pair does, whatever its stage. Mixed into cases of pairs."""
    directions = 2  # of messages: a ping is answered

    def transfer(self, *common, agent_more=(), client_more=(), **client_place) -> tuple[Running, Running]:
        agent, port = self.agent("--once", *common, *agent_more)
        client = self.client(port, *common, *client_more, **client_place)
        self.assert_ends(client, 0)
        self.assert_ends(agent, 0)
        return agent, client

    def assert_transferred(self, running: Running, count: int, size: int) -> None:
        messages = self.directions * count
        self.assertRegex(running.text, rf"transferred: {messages} messages, {messages * size} bytes")

    def test_transfers_and_verifies(self):
        for count, size, more in ((200, 64, ()), (50, 1, ()), (30, 100_000, ("--sges", 3)), (4, 1 << 20, ("--sq-depth", 1, "--rq-depth", 1))):
            with self.subTest(size=size):
                agent, client = self.transfer("-n", count, "-s", size, *more)
                self.assert_transferred(agent, count, size)
                self.assert_transferred(client, count, size)
                self.assertRegex(client.text, r"cpu: [\d.]+ s user, [\d.]+ s system")
                self.assertRegex(client.text, r"latency of .*: median [\d.]+ us, 99 % [\d.]+ us")
                self.assertRegex(client.text, r"rate: \d+ messages/s, [\d.]+ MB/s")

    def test_between_two_hosts(self):
        self.transfer("-n", 50, "-s", 5000, host=1)

    def test_over_the_wire_of_one_host(self):
        wire = {"VERBENA_PATH": "wire"}
        agent, port = self.agent("--once", "-n", 50, "-s", 3000, environment=wire)
        client = self.client(port, "-n", 50, "-s", 3000, environment=wire)
        self.assert_ends(client, 0)
        self.assert_ends(agent, 0)

    def test_ipv6(self):
        agent, port = self.server(f"{self.name}-agent", "--once", stage.ADDRESS_6)
        self.assert_ends(self.client(port, address=stage.ADDRESS_6), 0)
        self.assert_ends(agent, 0)

    def test_serves_several_clients_at_once(self):
        agent, port = self.agent("--clients", 3, "-n", 300)
        clients = [self.client(port, "-n", 300) for _ in range(3)]
        for client in clients:
            self.assert_ends(client, 0)
        self.assert_ends(agent, 0)
        self.assertEqual(len(re.findall("transferred: ", agent.text)), 3)

    def test_trace_shows_the_tear_down_in_reverse_order(self):
        agent, client = self.transfer("-n", 3, "--trace")
        for running in (agent, client):
            self.assert_order(running, *TEARDOWN)
        self.assert_order(agent, "rdma_create_id", "rdma_bind_addr", "rdma_listen", "rdma_get_cm_event: RDMA_CM_EVENT_CONNECT_REQUEST",
                          "ibv_post_recv", "rdma_accept")
        self.assert_order(client, "rdma_create_id", "rdma_resolve_addr", "rdma_resolve_route", "ibv_alloc_pd", "ibv_create_cq",
                          "rdma_create_qp", "ibv_reg_mr", "rdma_connect", "ibv_post_send", "completion of wr_id")

    def test_nobody_listens(self):
        self.assert_ends(self.client("9"), 1, r"(?i)reject|refused")

    def test_command_line(self):
        self.assert_ends(self.start(f"{self.name}-client"), 2, "server is required")
        self.assert_ends(self.start(f"{self.name}-client", "--size", 0, ADDRESS), 2, "size")
        self.assert_ends(self.start(f"{self.name}-client", "--help"), 0, "--sq-depth.*")


class TakesTerms:
    """From stage 1 on the agent's count and size are the client's. Mixed into cases of pairs."""

    def test_agent_adopts_count_and_size(self):
        agent, client = self.transfer(agent_more=("-n", 5, "-s", 10), client_more=("-n", 120, "-s", 5000))
        self.assert_transferred(agent, 120, 5000)
        self.assert_transferred(client, 120, 5000)
        self.assertIn("a client wants count 120 and size 5000; ours were 5 and 10", agent.text)

    def test_agent_rejects_what_makes_no_sense_and_serves_the_next(self):
        agent, port = self.agent("--clients", 2)
        senseless = self.start("ping-sr-0-client", "--port", port, ADDRESS)  # says nothing of count and size
        self.assert_ends(senseless, 1, r"rdma_connect: the server rejects us: .*(makes no sense|neither count nor size)")
        self.assert_ends(self.client(port), 0)
        self.assert_ends(agent, 1, r"a client was rejected: [\s\S]*1 of 2 clients failed")


class Notices:
    """From stage 2 on a lost peer ends a program promptly. Mixed into cases of pairs."""

    def test_agent_notices_that_the_client_was_killed(self):
        agent, client = self.playing()
        self.kill(client)
        self.assert_notices(agent)

    def test_client_notices_that_the_agent_was_killed(self):
        agent, client = self.playing()
        self.kill(agent)
        self.assert_notices(client)
