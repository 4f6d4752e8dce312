"""multicast-ud: one to many, with the 40 bytes that come before each message."""
from pair_case import ExampleCase
from stage import ADDRESS

GROUP = "239.77.0.1"


class MulticastUd(ExampleCase):
    def receiver(self, *arguments, host: int = 0):
        running = self.start("multicast-ud", *arguments, GROUP, host=host)
        running.wait_for(f"joined {GROUP}")
        return running

    def test_one_to_two(self):
        receivers = [self.receiver(), self.receiver()]
        self.assert_ends(self.start("multicast-ud", "--send", GROUP), 0, "transferred: 100 messages")
        for receiver in receivers:
            self.assert_ends(receiver, 0, f"received 100 of 100 messages, 0 lost, from {ADDRESS}")

    def test_one_to_two_hosts(self):
        receivers = [self.receiver(), self.receiver(host=1), self.receiver(host=1)]
        self.assert_ends(self.start("multicast-ud", "--send", GROUP), 0)
        for receiver in receivers:
            self.assert_ends(receiver, 0, f"received 100 of 100 messages, 0 lost, from {ADDRESS}")

    def test_other_groups_are_not_heard(self):
        receiver = self.receiver("-n", 10)
        self.assert_ends(self.start("multicast-ud", "--send", "-n", 20, "239.77.0.2"), 0)
        self.assert_ends(self.start("multicast-ud", "--send", "-n", 10, GROUP), 0)
        self.assert_ends(receiver, 0, "received 10 of 10 messages, 0 lost")

    def test_what_is_missing_is_counted(self):
        receiver = self.receiver("-n", 30, "--idle-ms", 300)
        self.assert_ends(self.start("multicast-ud", "--send", "-n", 20, GROUP), 0)
        self.assert_ends(receiver, 0, "received 20 of 30 messages, 10 lost")

    def test_messages_longer_than_the_mtu_are_refused(self):
        self.assert_ends(self.start("multicast-ud", "--send", "-s", 5000, GROUP), 1, "at most the MTU's")

    def test_a_wrong_length_stops(self):
        receiver = self.receiver("-s", 100)
        self.assert_ends(self.start("multicast-ud", "--send", "-n", 3, "-s", 50, GROUP), 0)
        self.assert_ends(receiver, 1, "wrong byte_len: 90 bytes came, 140 were expected")
