# SPDX-License-Identifier: BSD-2-Clause
"""The report in JUnit XML: the rules of the schema junit-10.xsd of Jenkins, and what readers find in it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final
from xml.etree import ElementTree

from ipoibu.lab.machines.junit import OUTPUT_CHARACTERS, junit
from ipoibu.lab.machines.runner import Result

GOOD: Final = Result("a", 0, "hello\n", "", None, 1.25)
BAD: Final = Result("b", 7, "no route\n", "a log\n", None, 2.5)
PANIC: Final = Result("c", None, "", "Kernel panic - not syncing", "Kernel panic - not syncing", 3)
VICTIM: Final = Result("d", None, "", "", "ended because machine c failed", 3, PANIC)

# The schema: for each element its required and its other attributes, and its children
SCHEMA: Final = {
    "testsuites": ("", "name time tests failures errors", "testsuite"),
    "testsuite": (
        "name tests failures errors",
        "group time skipped timestamp hostname id package file log url version",
        "testsuite properties testcase system-out system-err",
    ),
    "testcase": ("name", "time classname group", "skipped failure system-out system-err"),
    "failure": ("", "type message", ""),
    "skipped": ("", "type message", ""),
    "system-out": ("", "", ""),
}
TIME: Final = r"\d{1,3}(,?\d{3})*(\.\d{0,3})?"


def read(report: bytes) -> ElementTree.Element:
    """Return the report, which keeps the rules."""
    root = ElementTree.fromstring(report)
    assert root.tag == "testsuites"
    for element in root.iter():
        required, others, children = (words.split() for words in SCHEMA[element.tag])
        assert set(required) <= set(element.keys()) <= {*required, *others}
        assert {child.tag for child in element} <= set(children)
        assert re.fullmatch(TIME, element.get("time", "0"))
    return root


def test_a_lab_is_a_suite_and_a_script_a_case() -> None:
    root = read(junit("vrrp", [GOOD, BAD, PANIC, VICTIM]))
    (suite,) = root
    counts = ("tests", "failures", "errors", "skipped", "time")
    assert [suite.get(it) for it in counts] == ["4", "2", "0", "1", "3.000"]
    assert suite.get("name") == "vrrp"
    good, bad, panic, victim = suite
    assert [case.get("name") for case in suite] == list("abcd")
    assert good.get("time") == "1.250"
    assert [child.tag for child in good] == ["system-out"]
    assert good.findtext("system-out") == "hello\n"
    failure = bad.find("failure")
    assert failure is not None
    assert failure.attrib == {"type": "exit status", "message": "exit status 7"}
    assert failure.text == "no route\n\n--- end of the kernel log\na log\n"
    assert panic.find("failure[@type='machine']") is not None
    assert [child.tag for child in victim] == ["skipped", "system-out"]


def test_bytes_that_xml_cannot_have_are_spelled_out() -> None:
    output = "\x1b[31mred\x1b[0m <&>\"' ]]>\t\0\ufffe\x07\x0c end é\U0001f600\r\n"
    report = junit("<&\x1b>", [replace(BAD, output=output, failure="\x01\nWARNING: <here>")])
    (suite,) = read(report)
    text = suite[0].findtext("system-out")
    red = "#x1B[31mred#x1B[0m <&>\"' ]]>\t#x00#xFFFE#x07#x0C end é\U0001f600"
    assert text is not None
    assert text.rstrip() == red
    assert suite.get("name") == "<&#x1B>"
    failure = suite[0].find("failure")
    assert failure is not None
    assert failure.get("message") == "#x01\nWARNING: <here>"


def test_long_output_keeps_its_end() -> None:
    (suite,) = read(junit("long", [replace(GOOD, output="x" * OUTPUT_CHARACTERS + "the end")]))
    text = suite[0].findtext("system-out")
    assert text is not None
    assert text.startswith("[7 characters before this]\n")
    assert text.endswith("xthe end")
