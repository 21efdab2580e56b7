# SPDX-License-Identifier: BSD-2-Clause
"""The results of a lab as JUnit XML, which GitLab, Jenkins and the reporters of GitHub read.

A lab is a test suite, the script of each machine a test case: with its time, its output, and what failed. A
machine that the lab ended because another one failed counts as skipped, so that the report names the cause.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final
from xml.etree import ElementTree

from ipoibu.lab.machines.runner import Result
from ipoibu.lab.machines.stream import end_of

OUTPUT_CHARACTERS: Final = (
    1 << 20
)  # GitLab refuses files beyond 30 MB; a suite has 8 machines at most
KERNEL_LOG_LINES: Final = 40
# XML 1.0 has no other control characters, not even as references.
_NO_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(name: str, results: Sequence[Result]) -> bytes:
    """Return the report of the lab `name`."""
    failed = [it for it in results if not it.succeeded]
    skipped = [it for it in failed if it.culprit is not None]
    counts = {
        "tests": str(len(results)),
        "failures": str(len(failed) - len(skipped)),
        "errors": "0",
        "time": f"{max((it.duration_s for it in results), default=0):.3f}",
    }
    suites = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(
        suites,
        "testsuite",
        {
            "name": _xml(name),
            **counts,
            "skipped": str(len(skipped)),
            "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S"),
        },
    )
    for result in results:
        _add_case(suite, name, result)
    ElementTree.indent(suites)
    report: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return report + b"\n"


def _add_case(suite: ElementTree.Element, name: str, result: Result) -> None:
    attributes = {
        "name": _xml(result.name),
        "classname": _xml(name),
        "time": f"{result.duration_s:.3f}",
    }
    case = ElementTree.SubElement(suite, "testcase", attributes)
    output = _xml(end_of(result.output, OUTPUT_CHARACTERS))
    if not result.succeeded:
        message = _xml(result.failure or f"exit status {result.status}")
        if result.culprit is not None:
            ElementTree.SubElement(case, "skipped", message=message)
        else:
            kind = "machine" if result.failure else "exit status"
            failure = ElementTree.SubElement(case, "failure", type=kind, message=message)
            log = "\n".join(result.kernel_log.splitlines()[-KERNEL_LOG_LINES:])
            failure.text = f"{output}\n--- end of the kernel log\n{_xml(log)}\n"
    ElementTree.SubElement(case, "system-out").text = output


def _xml(text: str) -> str:
    """Return `text` with `#x1B` for a character that XML cannot have."""
    return _NO_XML.sub(lambda match: f"#x{ord(match[0]):02X}", text)
