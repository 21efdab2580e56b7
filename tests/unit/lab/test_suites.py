# SPDX-License-Identifier: BSD-2-Clause
"""The pages of other projects' suites, and the reader of what the suites print."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.interpreter import run
from tests.lab.suites import Outcome, Run, Suite, known, load, main, read, steady, suites

LINES_MAX: Final = 100
each_suite = pytest.mark.parametrize("suite", suites(), ids=lambda it: it.name)


def test_the_pages_are_what_the_stored_verdicts_make() -> None:
    run(["docs/make/list_suites.py", "--check"])


@each_suite
def test_a_suite_is_short_and_each_of_its_runs_is_stored(suite: Suite) -> None:
    assert suite.about.endswith(".")
    assert suite.lines <= LINES_MAX
    assert [it["title"] for it in load(suite)["runs"]] == [it.title for it in suite.runs]
    assert set(load(suite)["versions"]) == set(suite.packages)


@each_suite
def test_somebody_has_found_a_reason_of_each_failure(suite: Suite) -> None:
    unknown = [
        (run["title"], test, verdict)
        for run in load(suite)["runs"]
        for test, verdict in run["tests"].items()
        if verdict.startswith("fail") and known(suite.name, test, run["title"], verdict) is None
    ]
    assert unknown == []


def test_lines_of_tap_become_verdicts_and_others_do_not() -> None:
    outputs = [
        "# Linux 6.12.1\nok one\nnot ok two # status 1: lost 12345 at 0xdeadbeef\nok three # SKIP no XRC\n",
        "ok two\nnot ok one\nokay four\n# ok five\n",
    ]
    outcome = read(outputs)
    assert outcome.release == "6.12.1"
    assert outcome.tests == {
        "one": "fail",
        "two": "fail: status 1: lost N at N",
        "three": "skip: no XRC",
    }


def test_a_run_says_which_kernel_fabric_and_side_it_has() -> None:
    run = Run.of("6.1", "ipoibu lab --guests 2 --ipoib ipoibu --fabric roce --run 'all=./a.sh x'")
    assert run.title == "6.1 lean, roce, ipoibu"
    assert run.arguments[:5] == ("lab", "--kernel", "6.1", "--guests", "2")
    assert run.arguments[-1] == "all=./a.sh x"


def test_what_differs_from_run_to_run_is_not_compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "known.toml"
    file.write_text('[[some]]\ntests = "^a"\nreason = "r"\nunsteady = true\n')
    monkeypatch.setattr(sys.modules[KNOWN_MODULE], "KNOWN", file)
    suite = Suite("some", "", (), (), (), 0)
    run = Run.of("6.1", "ipoibu lab")
    assert steady(suite, run, {"ab": "pass", "b": "skip: x"}) == {"b": "skip"}


def test_a_run_without_verdicts_does_not_keep_the_others_from_theirs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = sys.modules[main.__module__]
    runs = tuple(Run.of(kernel, "ipoibu lab") for kernel in ("6.1", "6.12", "7.3"))
    suite = Suite("some", "", (), runs, (), 0)

    def perform(run: Run) -> Outcome:
        assert run.kernel != "6.1", "a machine has ended"
        if run.kernel == "7.3":
            json.loads("")  # the lab has ended without a report
        return Outcome({"a": "pass"}, "6.12.1")

    monkeypatch.setattr(module, "suites", lambda: [suite])
    monkeypatch.setattr(module, "perform", perform)
    monkeypatch.setattr(module, "STORE", tmp_path)
    monkeypatch.setattr(module.subprocess, "run", lambda *_, **__: None)
    assert main([]) == 2
    assert [it["title"] for it in load(suite)["runs"]] == [runs[1].title]
    assert "a machine has ended" in capsys.readouterr().err


KNOWN_MODULE: Final = known.__module__
