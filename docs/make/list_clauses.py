# SPDX-License-Identifier: BSD-2-Clause
"""Lists the clauses of docs/understand/conformance.md, the code that cites them and the tests that show them.

Evidence for a clause is a test whose docstring begins with the clause's id, as in "E2." or "E2, E3: text";
a test in C has such a comment directly above it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_ROW: Final = re.compile(r"^\| ([A-Z]\d+) \| (M|S|m) \| (met|later|deviates) \| (.*) \|$")
_CODE: Final = (
    "ipoibu/**/*.py",
    "ext/**/*.c",
    "ext/**/*.h",
    "ext/python/*.pyx",
    "ext/python/*.pxi",
)
_TESTS: Final = ("tests/**/test_*.py", "ext/tests/*.c", "ext/soft/tests/*.c", "ext/verbs/tests/*.c")
_IDS: Final = r"([A-Z]\d{1,2}(?:, [A-Z]\d{1,2})*)[.:]"
_C_TEST: Final = re.compile(rf"^/\* {_IDS}[^/]*\*/\nstatic void (\w+)\(void\)$", re.MULTILINE)


@dataclass
class Clause:
    """One row of the page, the files that cite its id and the tests that show it."""

    id: str
    level: str
    state: str
    demand: str
    code: list[str] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)


def clauses() -> list[Clause]:
    """Every clause of the page, in its order; `ValueError` if a test names an unknown one."""
    page = (ROOT / "docs/understand/conformance.md").read_text()
    listed = [
        Clause(row[1], row[2], row[3], row[4])
        for line in page.splitlines()
        if (row := _ROW.match(line))
    ]
    by_id = {clause.id: clause for clause in listed}
    for path in _files(_CODE):
        if "/tests/" not in str(path):
            for cited in _cited(path.read_text()) & by_id.keys():
                by_id[cited].code.append(str(path.relative_to(ROOT)))
    for path in _files(_TESTS):
        for name, ids in evidence(path):
            test = f"{path.relative_to(ROOT)}::{name}"
            for shown in ids:
                if shown not in by_id:
                    raise ValueError(f"{test} names {shown}, which is no clause of the page")
                by_id[shown].tests.append(test)
    return listed


def evidence(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each test of a file that shows clauses, and the clauses' ids."""
    if path.suffix == ".c":
        for ids, name in _C_TEST.findall(path.read_text()):
            yield name, ids.split(", ")
        return
    yield from _shown(ast.parse(path.read_text()).body, "")


def _shown(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, list[str]]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _shown(node.body, f"{prefix}{node.name}::")
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            match = re.match(_IDS, ast.get_docstring(node) or "")
            if match:
                yield prefix + node.name, match[1].split(", ")


def _files(patterns: tuple[str, ...]) -> Iterator[Path]:
    for pattern in patterns:
        yield from sorted(ROOT.glob(pattern))


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
