# SPDX-License-Identifier: BSD-2-Clause
"""The suites of examples/suites give the verdicts that docs/findings/suites has of them."""

from __future__ import annotations

from typing import Final

import pytest

from tests.lab.suites import Run, Suite, load, perform, prepare, steady, suites

pytestmark = [pytest.mark.lab, pytest.mark.nightly]

RUNS: Final = [(suite, run) for suite in suites() for run in suite.runs]


@pytest.mark.parametrize(
    ("suite", "run"), RUNS, ids=[f"{suite.name} {run.title}" for suite, run in RUNS]
)
def test_a_suite_gives_the_verdicts_that_are_published(suite: Suite, run: Run) -> None:
    stored = {it["title"]: it["tests"] for it in load(suite)["runs"]}[run.title]
    prepare(suite)
    assert steady(suite, run, perform(run).tests) == steady(suite, run, stored)
