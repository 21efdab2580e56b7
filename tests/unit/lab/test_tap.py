# SPDX-License-Identifier: BSD-2-Clause
"""The report in TAP 14, with prove as its reader (which knows version 13), for each level of subtests."""

from __future__ import annotations

import json
import re
import subprocess
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Final

from ipoibu.lab.machines.runner import Result
from ipoibu.lab.machines.tap import tap

GOOD: Final = Result("a", 0, "hello\n", "", None, 1.25)
BAD: Final = Result("b", 7, 'no "route"\x1b\n', "", None, 2.5)
VICTIM: Final = Result("c", None, "", "", "ended because machine b failed", 3, BAD)
KSELFTEST: Final = """\
TAP version 13
1..2
# selftests: net: one
# what it prints
ok 1 selftests: net: one
a line of no kind
Bail out! says a line
not ok 2 selftests: net: two # exit=1
"""
KTAP: Final = """\
KTAP version 1
1..1
  KTAP version 1
  1..2
    KTAP version 1
    1..1
    # deep: a diagnosis
    ok 1 deep
  ok 1 first
  ok 2 second # SKIP no device
ok 1 all
"""


def judge(text: str, path: Path) -> str:
    """Return what prove says about a report of one level."""
    path.write_text(re.sub(r"\ATAP version 14", "TAP version 13", text))
    words = ["prove", "--verbose", "--exec", "cat", str(path)]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def subtest(text: str) -> str:
    """Return the next level of a report."""
    return textwrap.dedent("".join(re.findall(r"^    .*\n", text, re.MULTILINE)))


def test_each_script_is_a_test(tmp_path: Path) -> None:
    report = tap([GOOD, BAD, VICTIM])
    assert report.startswith("TAP version 14\n1..3\nok 1 - a\n  ---\n  duration_ms: 1250\n  ...\n")
    assert "\nok 3 - c # SKIP ended because machine b failed\n" in report
    said = judge(report, tmp_path / "lab.tap")
    assert "Failed 1/3 subtests" in said
    assert "(less 1 skipped subtest: 1 okay)" in said
    assert "Parse errors" not in said
    assert "Result: PASS" in judge(tap([GOOD]), tmp_path / "good.tap")


def test_a_failure_has_its_status_and_output() -> None:
    block = tap([BAD]).split("  ---\n")[1]
    assert (
        block == '  duration_ms: 2500\n  exit: 7\n  output:\n    - "no \\"route\\"\\u001b"\n  ...\n'
    )
    assert json.loads('"no \\"route\\"\\u001b"') == BAD.output.rstrip("\n")
    failure = "WARNING: CPU: 0\nmore"
    assert r'  message: "WARNING: CPU: 0\nmore"' in tap([replace(BAD, failure=failure)])


def test_the_tap_of_a_script_is_a_subtest(tmp_path: Path) -> None:
    report = tap([replace(GOOD, output=KSELFTEST)])
    assert "\n# Subtest: a\n    1..2\n    # selftests: net: one\n" in report
    assert "\n    # Bail out! says a line\n" in report
    inner = subtest(report)
    said = judge("TAP version 14\n" + inner, tmp_path / "inner.tap")
    assert "Failed 1/2 subtests" in said
    assert "Parse errors" not in said
    assert "Result: PASS" in judge(report, tmp_path / "outer.tap")  # the exit status decides


def test_levels_of_two_and_four_columns_become_four(tmp_path: Path) -> None:
    for output in (KTAP, KTAP.replace("  ", "    ")):
        text = tap([replace(GOOD, output=output)])
        for _ in range(3):
            text = subtest(text)
            assert "Result: PASS" in judge("TAP version 14\n" + text, tmp_path / "level.tap")
        assert "ok 1 deep" in text


def test_a_plan_that_a_script_lacks_is_added(tmp_path: Path) -> None:
    output = "TAP version 13\nok 1 - one\nok 2 - two\n1..2 of what"
    inner = subtest(tap([replace(GOOD, output=output)]))
    assert inner.count("1..2") == 1
    inner = subtest(tap([replace(GOOD, output="KTAP version 1\nok 1\nok 2\n  1..0\n")]))
    assert inner.endswith("1..2\n")


def test_words_that_look_a_little_like_tap_stay_output() -> None:
    for output in ("ok\n", "1..2 retries\n", "TAP version 13\n", "okay 1\n1..1\n"):
        assert "# Subtest" not in tap([replace(GOOD, output=output)])
