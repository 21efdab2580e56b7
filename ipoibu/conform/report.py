# SPDX-License-Identifier: BSD-2-Clause
"""The verdicts of one run as lines of text, JSON, JUnit and Markdown."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from xml.etree import ElementTree as xml

from ipoibu.conform.clauses import listed
from ipoibu.conform.verdict import Outcome, Verdict

WIDTH: Final = 100  # of text in Markdown, characters
LINES_MAX: Final = 40  # of a transcript, in Markdown and text; JSON has all of it
_ILLEGAL: Final = dict.fromkeys((*range(9), 11, 12, *range(14, 32)), "?")


@dataclass(frozen=True, slots=True)
class Run:
    """All verdicts about one peer. `link` is the tester's device in words; `peer` the addresses."""

    peer: str
    hwaddr: str
    link: str
    mode: str
    verdicts: Sequence[Verdict]
    seconds: float
    repeat: str  # the command that repeats one test, up to its id

    @property
    def failed(self) -> list[Verdict]:
        return [it for it in self.verdicts if it.outcome is Outcome.FAIL]

    def counts(self) -> dict[str, int]:
        """Return how many tests have each outcome."""
        counts = Counter(it.outcome for it in self.verdicts)
        return {it.value: counts[it] for it in Outcome}


def line(verdict: Verdict) -> str:
    """Return the line that appears while the tests run."""
    text = f"{verdict.outcome.value:14s} {verdict.test.id:12s} {verdict.test.title}"
    return f"{text}\n{'':15s}{verdict.reason}" if verdict.reason else text


def summary(run: Run) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in run.counts().items() if count)
    return f"{len(run.verdicts)} tests of {run.peer} in {run.seconds:.0f} s: {counts}"


def as_json(run: Run) -> dict[str, Any]:
    return {
        "peer": run.peer,
        "hwaddr": run.hwaddr,
        "link": run.link,
        "mode": run.mode,
        "seconds": round(run.seconds, 1),
        "counts": run.counts(),
        "tests": [
            {**it.as_json(), "repeat": f"{run.repeat} --only {it.test.id}"} for it in run.verdicts
        ],
        "clauses": clause_outcomes(run.verdicts),
    }


def clause_outcomes(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return each clause with the worst outcome of its tests, or why it has none."""
    worst: dict[str, Outcome] = {}
    order = [Outcome.FAIL, Outcome.WARN, Outcome.PASS, Outcome.NOT_APPLICABLE]
    for verdict in verdicts:
        for clause in verdict.test.clauses:
            known = worst.get(clause, verdict.outcome)
            worst[clause] = min(known, verdict.outcome, key=order.index)
    return [
        {
            "id": it["id"],
            "level": it["level"],
            "source": it["source"],
            "demand": it["demand"],
            "outcome": worst[it["id"]].value
            if it["id"] in worst
            else ("cannot be seen from outside" if it["unseen"] else "not run"),
            "why": it["unseen"] or "",
        }
        for it in listed()
    ]


def junit(run: Run) -> str:
    """Return a JUnit file: a test case for each test, a failure for "fail", a skip for "not applicable"."""
    counts = run.counts()
    suite = xml.Element(
        "testsuite",
        name=f"ipoibu conform {run.peer}",
        tests=str(len(run.verdicts)),
        failures=str(counts["fail"]),
        skipped=str(counts["not applicable"]),
        errors="0",
        time=f"{run.seconds:.3f}",
    )
    for it in run.verdicts:
        case = xml.SubElement(
            suite,
            "testcase",
            classname="conform." + it.test.clauses[0],
            name=f"{it.test.id} {it.test.title}",
            time=f"{it.seconds:.3f}",
        )
        if it.outcome is Outcome.FAIL:
            failure = xml.SubElement(case, "failure", message=it.reason.translate(_ILLEGAL))
            failure.text = _transcript(it).translate(_ILLEGAL)
        elif it.outcome is Outcome.NOT_APPLICABLE:
            xml.SubElement(case, "skipped", message=it.reason.translate(_ILLEGAL))
        elif it.outcome is Outcome.WARN:
            xml.SubElement(case, "system-out").text = f"warn: {it.reason}".translate(_ILLEGAL)
    return xml.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _transcript(verdict: Verdict) -> str:
    lines = [f"{it}\n    {it.raw.hex()}" if it.raw else str(it) for it in verdict.transcript]
    left = len(lines) - LINES_MAX
    return "\n".join(lines[:LINES_MAX] + ([f"... {left} further lines"] if left > 0 else []))


def details(run: Run, verdict: Verdict) -> str:
    """Return what was sent and heard, and how to repeat the test alone."""
    return f"{_transcript(verdict)}\nrepeat: {run.repeat} --only {verdict.test.id}"


def page(title: str, report: Mapping[str, Any], known: Mapping[str, Mapping[str, str]]) -> str:
    """Return a page of Markdown from what `as_json` returns.

    `known` has, by a test's id, what somebody has found out about its failure: the source, whether it
    matters, what to report, in this order.
    """
    tests: Sequence[Mapping[str, Any]] = report["tests"]
    counts = ", ".join(f"{count} {name}" for name, count in report["counts"].items() if count)
    parts = [
        f"# {title}\n",
        _wrapped(
            f"Graded by `ipoibu conform` from {report['link']}: {len(tests)} tests, {counts}. Each failed"
            " test failed twice, and the host answered pings all the time unless a reason says otherwise."
        ),
        "## Clauses\n",
        _table(
            ("clause", "source", "level", "verdict"),
            [
                (it["id"], it["source"], it["level"], it["outcome"])
                for it in report["clauses"]
                if it["outcome"] in _JUDGED
            ],
        ),
    ]
    for outcome, heading in (("fail", "Failures"), ("warn", "Warnings")):
        found = [it for it in tests if it["outcome"] == outcome]
        parts += [f"## {heading}\n"] if found else []
        for it in found:
            parts.append(f"### {it['id']}\n")
            parts.append(_wrapped(f"Demanded: {it['title']}."))
            reason = it["reason"][:1].upper() + it["reason"][1:]
            parts.append(_wrapped(f"{', '.join(it['clauses'])} ({it['source']}). {reason}."))
            for name, text in known.get(it["id"], {}).items():
                parts.append(_wrapped(f"{_KNOWN.get(name, name)}: {text}"))
            lines = [line for line in it["transcript"] if line["mark"] != "-"]
            shown = "\n".join(
                textwrap.fill(
                    f"{line['at_s']:8.3f} s {line['mark']} {line['words']}",
                    WIDTH,
                    subsequent_indent=" " * 13,
                    break_on_hyphens=False,
                )
                for line in lines[:LINES_MAX]
            )
            parts.append(f"```text\n{shown}\n```\n")
    left = [it for it in tests if it["outcome"] == "not applicable"]
    if left:
        parts.append("## Not applicable\n")
        parts.append("".join(item(f"{it['id']}: {it['reason']}") for it in left))
    return "\n".join(parts)


_KNOWN: Final = {
    "source": "Where",
    "matters": "Does it matter",
    "report": "For a report",
    "reason": "Why it stays",
}
_JUDGED: Final = ("pass", "fail", "warn")


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_on_hyphens=False) + "\n"


def item(text: str) -> str:
    """Return a list item of Markdown, wrapped."""
    lines = textwrap.wrap(text, WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    return "- " + "\n  ".join(lines) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in lines
    )
