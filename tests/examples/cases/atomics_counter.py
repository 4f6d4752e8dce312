"""atomics-counter: no count is lost with atomics; some are without."""
from pair_case import ExampleCase
from stage import ADDRESS, Running


class AtomicsCounter(ExampleCase):
    def count(self, clients: int, count: int, *arguments, hosts=(0,)) -> tuple[int, Running]:
        server, port = self.server("atomics-counter", "--clients", clients)
        running = [self.start("atomics-counter", "--port", port, "-n", count, *arguments, ADDRESS, host=hosts[i % len(hosts)])
                   for i in range(clients)]
        for client in running:
            self.assert_ends(client, 0, f"counted {count}; others came between")
        self.assert_ends(server, 0)
        return int(server.number(r"in the end the counter is at (\d+)")), server

    def test_no_count_is_lost(self):
        self.assertEqual(self.count(3, 3000)[0], 9000)

    def test_nor_between_hosts(self):
        self.assertEqual(self.count(4, 300, hosts=(0, 1))[0], 1200)

    def test_alone_read_and_write_do_as_well(self):
        self.assertEqual(self.count(1, 500, "--racy")[0], 500)

    def test_together_read_and_write_lose_counts(self):
        for _ in range(5):  # on a machine that runs them one after the other nothing is lost
            if self.count(3, 3000, "--racy")[0] < 9000:
                return
        self.fail("READ and WRITE are as good as atomics?")

    def test_the_server_sleeps(self):
        server, port = self.server("atomics-counter", "--once")
        client = self.start("atomics-counter", "--port", port, "-n", 20000, ADDRESS)
        self.assert_ends(client, 0)
        self.assert_ends(server, 0)
        self.assertNotIn("transferred", server.text)
