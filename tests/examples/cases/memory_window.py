"""memory-window: what is lent comes back, and is closed then."""
from pair_case import ExampleCase
from stage import ADDRESS


class MemoryWindow(ExampleCase):
    def lend(self, *arguments, host: int = 0):
        server, port = self.server("memory-window", "--once")
        client = self.start("memory-window", "--port", port, *arguments, ADDRESS, host=host)
        self.assert_ends(client, 0)
        self.assert_ends(server, 0, r"lent and got back \d+ times")
        return client

    def test_lends_again_and_again(self):
        for size in (1, 64, 4096, 100000):
            self.assertIn("transferred", self.lend("-n", 200, "-s", size).text)

    def test_between_hosts(self):
        self.lend("-n", 100, "-s", 10000, host=1)

    def test_too_late(self):
        for host in (0, 1):
            self.assertIn("given back: remote access error", self.lend("-n", 3, "--late", host=host).text)

    def test_many_clients(self):
        server, port = self.server("memory-window", "--clients", 3)
        clients = [self.start("memory-window", "--port", port, "-n", 200, ADDRESS) for _ in range(3)]
        for client in clients:
            self.assert_ends(client, 0)
        self.assert_ends(server, 0)
