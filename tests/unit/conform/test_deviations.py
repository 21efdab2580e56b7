# SPDX-License-Identifier: BSD-2-Clause
"""The suite grades a small host with one deviation at a time, and names exactly the clause of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import pytest

from ipoibu.conform.catalogue import all_tests
from ipoibu.conform.suite import Suite, Surroundings
from ipoibu.conform.test import Test
from ipoibu.conform.verdict import Outcome, Verdict
from tests.doubles.peer.deviations import DEVIATIONS
from tests.doubles.peer.whole import WholeHost, peer_of
from tests.doubles.peer.wire import Wire


def grade(host: WholeHost, tests: Sequence[Test], note: Callable[[Verdict], None]) -> None:
    around = Surroundings([f"10.1.2.{number}" for number in range(4, 254)], seed=1)
    suite = Suite(host.wire, peer_of(host), around, host.helper(), is_destructive=True)
    suite.run(tests, note)


@cache
def clean() -> tuple[list[Verdict], dict[str, list[Test]]]:
    """Grade the host without deviation; return the verdicts, and the tests that ask for each deviation."""
    host = WholeHost(Wire())
    verdicts: list[Verdict] = []
    asked = {name: list(all_tests()) for name in host.asked}  # while it was made
    host.asked.clear()

    def note(verdict: Verdict) -> None:
        verdicts.append(verdict)
        for name in host.asked - {it for it, tests in asked.items() if verdict.test in tests}:
            asked.setdefault(name, []).append(verdict.test)
        host.asked.clear()

    grade(host, all_tests(), note)
    return verdicts, asked


def test_a_host_without_deviation_passes_everything() -> None:
    verdicts, _ = clean()
    assert {it.test.id: it.reason for it in verdicts if it.outcome is not Outcome.PASS} == {}


@pytest.mark.parametrize(("deviation", "clause"), DEVIATIONS.items())
def test_a_deviation_is_named(deviation: str, clause: str) -> None:
    """A test that does not ask for the deviation comes out as on the host without one."""
    _, asked = clean()
    assert deviation in asked, "no test asks for it"
    verdicts: list[Verdict] = []
    grade(WholeHost(Wire(), deviation), asked[deviation], verdicts.append)
    bad = [it for it in verdicts if it.outcome in (Outcome.FAIL, Outcome.WARN)]
    assert bad, "no test noticed"
    assert {clause} == {c for it in bad for c in it.test.clauses}, {
        it.test.id: it.reason for it in bad
    }
