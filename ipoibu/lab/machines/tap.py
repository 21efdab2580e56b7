# SPDX-License-Identifier: BSD-2-Clause
"""The results of a lab in version 14 of the Test Anything Protocol: a test for the script of each machine.

A script that prints TAP itself, as KUnit and the kernel's selftests do (KTAP), becomes a subtest. The exit
status alone decides whether a script has succeeded, as it does for the lab.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from math import gcd
from typing import Final

from ipoibu.lab.machines.runner import Result

OUTPUT_LINES: Final = 100  # of a script that failed and prints no TAP

_VERSION: Final = re.compile(r" *K?TAP version \d+$")
_PLAN: Final = re.compile(r"( *)1\.\.\d+\b")
_TEST: Final = re.compile(r"( *)(?:not )?ok\b(?! *\.)")
_COMMENT: Final = re.compile(r" *#")


def tap(results: Sequence[Result]) -> str:
    """Return the report of a lab."""
    lines = ["TAP version 14", f"1..{len(results)}"]
    for number, result in enumerate(results, 1):
        is_tap = _is_tap(result.output)
        if is_tap:
            lines += [f"# Subtest: {result.name}", *_subtest(result.output)]
        skip = f" # SKIP {result.failure}" if result.culprit is not None else ""
        word = "ok" if result.succeeded or skip else "not ok"
        lines.append(_line(f"{word} {number} - {result.name}{skip}"))
        lines += _diagnosis(result, with_output=not is_tap)
    return "\n".join(lines) + "\n"


def _diagnosis(result: Result, *, with_output: bool) -> Iterator[str]:
    """Return the YAML block of a test; JSON strings are YAML strings."""
    yield "  ---"
    yield f"  duration_ms: {result.duration_s * 1000:.0f}"
    if not result.succeeded:
        yield f"  exit: {'null' if result.status is None else result.status}"
        if result.failure:
            yield f"  message: {json.dumps(result.failure)}"
        if with_output:
            yield "  output:"
            for line in result.output.splitlines()[-OUTPUT_LINES:]:
                yield f"    - {json.dumps(line)}"
    yield "  ..."


def _is_tap(output: str) -> bool:
    """Return True for output that has a plan, and a test or the name of the protocol."""
    lines = output.splitlines()
    has_plan = any(_PLAN.match(line) for line in lines)
    return has_plan and any(_VERSION.match(line) or _TEST.match(line) for line in lines)


def _subtest(output: str) -> Iterator[str]:
    """Return the lines of a subtest, with TAP's indentation of four; KTAP has two, and KUnit four.

    Lines that are no TAP are comments: `Bail out!` would end the whole report.
    """
    lines = [_line(line) for line in output.splitlines()]
    found = [_PLAN.match(line) or _TEST.match(line) for line in lines]
    step = gcd(*(len(match[1]) for match in found if match)) or 4
    tests = 0
    has_plan = False
    for line, match in zip(lines, found, strict=True):
        if _VERSION.match(line):
            continue
        if match:
            level = len(match[1]) // step
            is_plan = line.lstrip().startswith("1..")
            tests += level == 0 and not is_plan
            has_plan |= level == 0 and is_plan
            yield f"{' ' * (4 + 4 * level)}{line.lstrip()}"
        elif line.strip():
            comment = line.strip() if _COMMENT.match(line) else f"# {line}"
            yield f"    {comment}"
    if not has_plan:
        yield f"    1..{tests}"


def _line(text: str) -> str:
    """Return `text` in one line without control characters; `\\x1b` stands for the escape character."""
    return "".join(it if it.isprintable() else it.encode("unicode_escape").decode() for it in text)
