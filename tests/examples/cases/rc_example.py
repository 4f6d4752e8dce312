"""rc-example: a device of one's choice, a connection made by hand over TCP, and the four operations."""
import re

from pair_case import ExampleCase
from stage import ADDRESS

DONE = r"round 1: RECV, \d+ bytes, verified\n[\s\S]*round 1: READ, \d+ bytes, verified\n[\s\S]*round 1: WRITE, \d+ bytes\n"


class RcExample(ExampleCase):
    name = "rc-example"

    def exchange(self, *client_arguments, server_arguments=(), host=0):
        server, port = self.server(self.name, "--once", *server_arguments)
        client = self.start(self.name, "--port", port, *client_arguments, ADDRESS, host=host)
        self.assert_ends(client, 0, DONE)
        self.assert_ends(server, 0, r"round 1: WRITE was here, \d+ bytes, verified")
        return server, client

    def guid(self) -> str:
        program = self.start("devices")
        program.wait()
        return re.search(r"node GUID +(\S+)", program.text)[1]

    def test_sizes(self):
        for size, sges in ((1, 1), (64, 2), (5000, 1), (1_000_000, 5)):
            with self.subTest(size=size):
                self.exchange("-s", size, "--sges", sges)

    def test_device_by_name(self):
        self.exchange("-d", "verbena0", server_arguments=("-d", "verbena0"))

    def test_device_by_guid(self):
        self.exchange("-d", self.guid())

    def test_port_and_gid_index(self):
        self.exchange("-i", 1, "-g", 1, server_arguments=("-i", 1, "-g", 1))

    def test_between_two_hosts(self):
        self.exchange("-n", 3, "-s", 10_000, host=1)

    def test_rounds_and_the_clients_count_and_size(self):
        server, _ = self.exchange("-n", 4, "-s", 300, server_arguments=("-n", 9, "-s", 9))
        self.assertEqual(server.text.count("WRITE was here, 300 bytes"), 4)

    def test_several_clients(self):
        server, port = self.server(self.name, "--clients", 3)
        clients = [self.start(self.name, "--port", port, "-n", 5, ADDRESS) for _ in range(3)]
        for client in clients:
            self.assert_ends(client, 0, DONE)
        self.assert_ends(server, 0)

    def test_trace_shows_the_states(self):
        _, client = self.exchange("--trace")
        self.assert_order(client, "ibv_get_device_list", "ibv_open_device", "ibv_query_device", "ibv_query_port", "ibv_query_gid",
                          "ibv_create_qp", "ibv_modify_qp, INIT: ok", "ibv_modify_qp, RTR: ok", "ibv_modify_qp, RTS: ok",
                          "ibv_post_send, READ: ok", "ibv_post_send, WRITE: ok", "ibv_destroy_qp", "ibv_close_device")

    def test_mistakes_are_named(self):
        for arguments, sentence in ((("-d", "mlx5_7"), "none of 1 devices has the name or GUID mlx5_7"),
                                    (("-i", 2), "port 2 isn't one of the device's 1"),
                                    (("-g", 9999), "ibv_query_gid: ")):
            with self.subTest(arguments=arguments):
                self.assert_ends(self.start(self.name, *arguments), 1, sentence)
