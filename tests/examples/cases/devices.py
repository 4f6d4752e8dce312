"""devices: the list, and what it says of a device."""
import json
import subprocess

import stage
from pair_case import ExampleCase


class Devices(ExampleCase):
    def test_lists_the_device(self):
        program = self.start("devices")
        self.assert_ends(program, 0, r"^devices: 1 device\nverbena0: InfiniBand channel adapter")
        listed = json.loads(subprocess.run([str(stage.VERBENA), "devices", "--json"], capture_output=True, check=True).stdout)
        devices = listed["devices"] if isinstance(listed, dict) else listed
        self.assertIn(devices[0]["node_guid"], program.text)
        self.assertRegex(program.text, r"queue pairs +\d+")

    def test_lists_several(self):
        program = self.start("devices", "--trace", run=("--device", "mlx5_0=veth0", "--device", "mlx5_1=lo"))
        self.assert_ends(program, 0, r"devices: 2 devices")
        self.assertRegex(program.text, r"(?m)^mlx5_0: ")
        self.assertRegex(program.text, r"(?m)^mlx5_1: ")
        self.assert_order(program, "rdma_get_devices", "ibv_query_device: ok", "ibv_query_device: ok", "rdma_free_devices")
