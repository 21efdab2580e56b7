# SPDX-License-Identifier: BSD-2-Clause
"""Writes docs/reference/clauses.md: who grades each clause, and why some cannot be seen.

Without arguments it writes the page, with --check it compares.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "docs/make")]

from generated_page import write_or_check  # noqa: E402
from list_clauses import clauses  # noqa: E402

from ipoibu.conform.catalogue import all_tests  # noqa: E402
from ipoibu.conform.clauses import CLAUSES, listed  # noqa: E402
from ipoibu.conform.report import item  # noqa: E402

PAGE: Final = ROOT / "docs/reference/clauses.md"
HEAD: Final = """# Clauses and tests

`python docs/make/list_conformance.py` writes this page. `ipoibu conform` grades any host from
outside ([conform.md](../use/conform.md)); the tests of this project look inside ipoibu, too.
"""


def page() -> str:
    shown = {it.id: it.tests for it in clauses()}
    known = {it.id for it in CLAUSES}
    of_page = [it for it in listed() if it["id"] in known]
    own = [it for it in listed() if it["id"] not in known]
    seen = sum(bool(it["tests"]) for it in of_page)
    parts = [
        HEAD,
        f"{len(all_tests())} tests of `ipoibu conform` grade {seen} of the {len(of_page)} clauses of\n"
        f"[conformance.md](../understand/conformance.md), and {len(own)} of its own, below.\n\n",
    ]
    for it in of_page:
        by = f"by {_list(it['tests'])}" if it["tests"] else f"it cannot be seen: {it['unseen']}"
        own_tests = dict.fromkeys(f"`{test.partition('::')[0]}`" for test in shown[it["id"]])
        inside = f". Inside: {_list(own_tests)}" if own_tests else ""
        parts.append(item(f"**{it['id']}** ({it['level']}): {by}{inside}"))
    parts.append(
        "\n## Clauses of `ipoibu conform`\n\n"
        "TAHI ids are the procedures of the TAHI project for IPv6, adapted to addresses of 20 bytes.\n\n"
    )
    parts += [
        item(f"**{it['id']}** ({it['level']}, {it['source']}): by {_list(it['tests'])}")
        for it in own
    ]
    return "".join(parts)


def _list(words: Iterable[str]) -> str:
    return ", ".join(words)


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page, "usage: list_conformance.py [--check]", sys.argv[1:]))
