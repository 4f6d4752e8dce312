"""Runs cases of one file of the pyverbs suite and tells on a descriptor, one JSON line each, that a case began and how
it ended. A case that takes the whole process with it is the one that began and didn't end.
    cases.py SUITE DESCRIPTOR CASE…"""
import faulthandler
import json
import os
import sys
import unittest

SECONDS_A_CASE = 60


class Teller(unittest.TestResult):
    def __init__(self, descriptor: int):
        super().__init__()
        self.out = os.fdopen(descriptor, "w", buffering=1)

    def tell(self, test: unittest.TestCase, what: str, why: str = "") -> None:
        print(json.dumps({"case": test.id(), "what": what, "why": why}), file=self.out, flush=True)

    def startTest(self, test):
        super().startTest(test)
        faulthandler.dump_traceback_later(SECONDS_A_CASE, exit=True)
        self.tell(test, "began")

    def stopTest(self, test):
        faulthandler.cancel_dump_traceback_later()
        super().stopTest(test)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.tell(test, "pass")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.tell(test, "skip", reason)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.tell(test, "FAIL", self.failures[-1][1])

    def addError(self, test, err):
        super().addError(test, err)
        self.tell(test, "FAIL", self.errors[-1][1])


def main() -> None:
    suite, descriptor, *names = sys.argv[1:]
    os.set_inheritable(int(descriptor), False)
    sys.path[:0] = [suite, os.path.join(suite, "tests")]
    sys.argv[1:] = []
    from args_parser import parser  # the suite's own: what it would read from its command line
    parser.parse_args()
    unittest.defaultTestLoader.loadTestsFromNames(names).run(Teller(int(descriptor)))


if __name__ == "__main__":
    main()
