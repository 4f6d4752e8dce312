"""rc-example-cm: the same operations, connected by RDMA CM; the regions travel as private data."""
from cases import rc_example
from cases.rc_example import DONE
from pair_case import ExampleCase
from stage import ADDRESS


class RcExampleCm(ExampleCase):
    name = "rc-example-cm"
    exchange = rc_example.RcExample.exchange
    test_sizes = rc_example.RcExample.test_sizes
    test_between_two_hosts = rc_example.RcExample.test_between_two_hosts
    test_rounds_and_the_clients_count_and_size = rc_example.RcExample.test_rounds_and_the_clients_count_and_size
    test_several_clients = rc_example.RcExample.test_several_clients

    def test_rejects_what_makes_no_sense(self):
        server, port = self.server(self.name, "--clients", 2)
        self.assert_ends(self.start("ping-sr-0-client", "--port", port, ADDRESS), 1, "the server rejects us: ")
        self.assert_ends(self.start(self.name, "--port", port, ADDRESS), 0, DONE)
        self.assert_ends(server, 1, "1 of 2 clients failed")
