"""path-migration: a connection between two ports of each host; one loses its link, or the program changes the path."""
import subprocess
import time

import stage
from pair_case import FOREVER, ExampleCase
from stage import ADDRESS

DEVICES = ("mlx5_0=veth0,veth2", "mlx5_0=veth1,veth3")


def second_link() -> None:
    first, second = stage.HOSTS
    first.ip("link add veth2 type veth peer name veth3")
    subprocess.run(["ip", "link", "set", "veth3", "netns", second.prefix[second.prefix.index("-t") + 1]], check=True)
    for number, host in enumerate(stage.HOSTS):
        host.ip(f"addr add 10.78.0.{number + 1}/24 dev veth{number + 2}")
        host.ip(f"link set veth{number + 2} up")


def wait_until_active() -> None:
    """Both ports of the first host: after a link comes back its agent hears of it a moment later."""
    command = [*stage.HOSTS[0].prefix, str(stage.VERBENA), "run", "--device", DEVICES[0], "--", "ibv_devinfo"]
    end = time.monotonic() + 10
    while subprocess.run(command, capture_output=True, text=True).stdout.count("PORT_ACTIVE") < 2:
        if time.monotonic() > end:
            raise AssertionError("a port whose link is up stays down")
        time.sleep(0.05)


class PathMigration(ExampleCase):
    name = "path-migration"

    @classmethod
    def setUpClass(cls):
        second_link()

    def pair(self, *arguments, count, environment=None, host=1):
        server, port = self.server(self.name, run=("--device", DEVICES[0]), environment=environment)
        client = self.start(self.name, "--port", port, "-n", count, *arguments, ADDRESS, host=host,
                            run=("--device", DEVICES[host]), environment=environment)
        return server, client

    def test_the_program_changes_the_path(self):
        for host, environment in ((1, None), (0, None), (0, {"VERBENA_PATH": "wire"})):
            with self.subTest(host=host, environment=environment):
                server, client = self.pair("--migrate", 20, count=300, host=host, environment=environment)
                self.assert_ends(client, 0, r"changed the path after \d+ round trips")
                self.assert_ends(server, 0)
                self.assertRegex(client.text, r"in the end MIGRATED, the path is that of port 2")
                for running in (server, client):
                    self.assertRegex(running.text, r"event: path migration succeeded; the path is that of port 2")

    def test_a_port_loses_its_link(self):
        server, client = self.pair(count=FOREVER)
        for running in (server, client):
            running.wait_for(r"ARMED, the path is that of port 1")
        stage.HOSTS[0].ip("link set veth0 down")
        try:
            for running in (server, client):
                running.wait_for(r"event: path migration succeeded; the path is that of port 2[\s\S]*messages came; MIGRATED")
            before = client.text.count("messages came")
            client.wait_for(rf"(messages came[\s\S]*){{{before + 2}}}")
            self.assertTrue(server.lives() and client.lives(), client.account())
        finally:
            client.end()
            server.end()
            stage.HOSTS[0].ip("link set veth0 up")
            wait_until_active()

    def test_mistakes_are_named(self):
        self.assert_ends(self.start(self.name), 1, "port 2 isn't another one of the device's 1")
