# SPDX-License-Identifier: BSD-2-Clause
"""Each failure on the pages of docs/findings is a test of today, and somebody has found out what it means."""

from __future__ import annotations

import re
import tomllib

import pytest

from ipoibu.conform.catalogue import all_tests
from tests.lab.grading import FINDINGS, KNOWN, SUBJECTS, index

PAGES = [it for it in SUBJECTS if (FINDINGS / f"conformance-{it.name}.md").exists()]


@pytest.mark.parametrize("subject", PAGES, ids=lambda it: it.name)
def test_each_failure_of_a_page_is_known(subject) -> None:  # type: ignore[no-untyped-def]
    text = (FINDINGS / f"conformance-{subject.name}.md").read_text()
    known = tomllib.loads(KNOWN.read_text())[subject.family]
    failed = set(re.findall(r"^### (\S+)$", text, re.MULTILINE))
    assert failed <= known.keys()
    assert failed <= {test.id for test in all_tests()}
    for name in failed:
        assert known[name]["source"]
    assert text.count("\nWhere: ") == len(failed)


def test_every_subject_has_a_page_and_the_index_has_each() -> None:
    assert PAGES == SUBJECTS
    assert (FINDINGS / "conformance.md").read_text() == index()


def test_what_is_known_is_about_tests_of_today() -> None:
    ids = {test.id for test in all_tests()}
    for known in tomllib.loads(KNOWN.read_text()).values():
        assert known.keys() <= ids
