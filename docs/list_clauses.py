# SPDX-License-Identifier: BSD-2-Clause
"""Lists the clauses of docs/conformance.md with the code and the tests that cite them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_ROW = re.compile(r"^\| ([A-Z]\d+) \| (M|S|m) \| (met|later) \| (.*) \|$")
_CODE = ("ipoibu/**/*.py", "ext/**/*.c", "ext/**/*.h", "ext/python/*.pyx")
_TESTS = ("tests/**/*.py", "tests/**/*.c", "ext/tests/*.c", "ext/soft/tests/*.c")


@dataclass
class Clause:
    """One row of the page, with the files that cite its id."""

    id: str
    level: str
    state: str
    demand: str
    code: list[str] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)


def clauses() -> list[Clause]:
    """Every clause of the page, in its order."""
    page = (ROOT / "docs" / "conformance.md").read_text()
    listed = [
        Clause(row[1], row[2], row[3], row[4])
        for line in page.splitlines()
        if (row := _ROW.match(line))
    ]
    by_id = {clause.id: clause for clause in listed}
    for patterns, attribute in ((_CODE, "code"), (_TESTS, "tests")):
        for pattern in patterns:
            for path in sorted(ROOT.glob(pattern)):
                name = str(path.relative_to(ROOT))
                if attribute == "code" and "/tests/" in name:
                    continue
                for cited in _cited(path.read_text()) & by_id.keys():
                    getattr(by_id[cited], attribute).append(name)
    return listed


def _cited(text: str) -> set[str]:
    """Ids in a text, `G1-G5` and `G1..G5` spelt out."""
    ids = set(re.findall(r"\b[A-Z]\d{1,2}\b", text))
    for letter, first, last in re.findall(r"\b([A-Z])(\d{1,2})(?:-|\.\.)\1(\d{1,2})\b", text):
        ids |= {f"{letter}{number}" for number in range(int(first), int(last) + 1)}
    return ids


def main() -> None:
    for clause in clauses():
        print(f"{clause.id:4} {clause.level} {clause.state:6} {clause.demand}")
        for kind, names in (("code", clause.code), ("test", clause.tests)):
            print(f"       {kind}: {', '.join(names) or '-'}")


if __name__ == "__main__":
    main()
