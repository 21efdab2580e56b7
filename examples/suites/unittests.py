# SPDX-License-Identifier: BSD-2-Clause
"""Runs the tests of one module of rdma-core, and prints TAP: a line for each test, with its reason.

pyverbs.sh starts it once for each module, because a module that crashes ends the process.
"""

import os
import sys
import unittest
from importlib import import_module

from args_parser import parser


def first_line(words):
    return (str(words).strip() or "no reason").splitlines()[0]


class Tap(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.verdicts = {}

    def say(self, test, reason=None, directive=""):
        name = test.id().removeprefix("tests.") if hasattr(test, "id") else str(test)
        if name not in self.verdicts:
            self.verdicts[name] = reason
            verb = "ok" if reason is None or directive else "not ok"
            print(f"{verb} {name}", f"# {directive}{reason}" if reason else "", flush=True)

    def addSuccess(self, test):
        self.say(test)

    def addSkip(self, test, reason):
        self.say(test, first_line(reason), "SKIP ")

    def addFailure(self, test, error):
        self.say(test, f"{error[0].__name__}: {first_line(error[1])}")

    addError = addFailure

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.addFailure(test, error)

    def startTest(self, test):
        super().startTest(test)
        print(f"# {test.id()}", flush=True)


parser.parse_args()
tests = unittest.defaultTestLoader.loadTestsFromModule(import_module(f"tests.{sys.argv[1]}"))
tests.run(Tap())
sys.stdout.flush()
os._exit(0)
