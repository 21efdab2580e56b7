# SPDX-License-Identifier: BSD-2-Clause
"""docs/understand/conformance.md says no more than the code and the tests can show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.mutation.clauses import MUTATIONS, Mutation
from tests.mutation.page import ROOT, load

CLAUSES = load().clauses()


def test_the_page_is_read_whole() -> None:
    ids = [clause.id for clause in CLAUSES]
    assert len(ids) == len(set(ids)) > 40
    assert {"E1", "A6", "G5", "B1", "M8", "T3", "R3", "N6"} <= set(ids)


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: str(clause.id))
def test_a_clause_that_is_met_is_cited_by_code_and_shown_by_a_test(clause: Any) -> None:
    if clause.state == "met":
        assert clause.code
        assert clause.tests


def test_a_note_says_how_each_clause_deviates() -> None:
    page = (ROOT / "docs/understand/conformance.md").read_text()
    deviating = {clause.id for clause in CLAUSES if clause.state == "deviates"}
    assert deviating >= {"K3", "X3"}
    assert not {clause for clause in deviating if f"\n- {clause}: " not in page}


def test_evidence_is_a_test_whose_docstring_begins_with_the_clause(tmp_path: Path) -> None:
    python, c = tmp_path / "test_it.py", tmp_path / "test_it.c"
    python.write_text(
        '''"""E1: a module is no evidence."""
A4 = B4 = None

def test_one():
    """E2, E3: these."""

def test_two():
    """A test of something else (E4)."""

def helper():
    """E5."""
'''
    )
    c.write_text(
        "/* E6: this. */\nstatic void one(void)\n{}\n\nstatic void two(void)\n{ /* E7. */ }\n"
    )
    evidence = load().evidence
    assert list(evidence(python)) == [("test_one", ["E2", "E3"])]
    assert list(evidence(c)) == [("one", ["E6"])]


def test_there_is_a_mutation_for_each_clause_that_is_met() -> None:
    met = {clause.id for clause in CLAUSES if clause.state == "met"}
    assert {mutation.clause for mutation in MUTATIONS} == met


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: str(mutation.clause))
def test_a_mutation_names_a_clause_with_evidence_and_changes_one_place(mutation: Mutation) -> None:
    """`make nightly` runs them; here the table must still fit the code."""
    (clause,) = [clause for clause in CLAUSES if clause.id == mutation.clause]
    rooms = ("tests/unit/", "ext/") if mutation.is_c else ("tests/unit/",)
    assert any(test.startswith(rooms) for test in clause.tests)
    assert (ROOT / mutation.file).read_text().count(mutation.old) == 1
