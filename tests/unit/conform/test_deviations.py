# SPDX-License-Identifier: BSD-2-Clause
"""The suite grades a small host with one deviation at a time, and names exactly the clause of each."""

from __future__ import annotations

import pytest

from ipoibu.conform.catalogue import all_tests
from ipoibu.conform.suite import Suite, Surroundings
from ipoibu.conform.verdict import Outcome, Verdict
from tests.doubles.peer.deviations import DEVIATIONS
from tests.doubles.peer.whole import WholeHost, peer_of
from tests.doubles.peer.wire import Wire


def grade(deviation: str | None) -> list[Verdict]:
    wire = Wire()
    host = WholeHost(wire, deviation)
    around = Surroundings([f"10.1.2.{number}" for number in range(4, 254)], seed=1)
    suite = Suite(wire, peer_of(host), around, host.helper(), is_destructive=True)
    return suite.run(all_tests())


def test_a_host_without_deviation_passes_everything() -> None:
    verdicts = grade(None)
    assert {it.test.id: it.reason for it in verdicts if it.outcome is not Outcome.PASS} == {}


@pytest.mark.parametrize(("deviation", "clause"), DEVIATIONS.items())
def test_a_deviation_is_named(deviation: str, clause: str) -> None:
    bad = [it for it in grade(deviation) if it.outcome in (Outcome.FAIL, Outcome.WARN)]
    assert bad, "no test noticed"
    assert {clause} == {c for it in bad for c in it.test.clauses}, {
        it.test.id: it.reason for it in bad
    }
