# SPDX-License-Identifier: BSD-2-Clause
"""Turns text and the Markdown of this project's pages into roff, the language of manual pages (man(7))."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

_INLINE: Final = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\*([^*]+)\*|!?\[([^\]]+)\]\(([^)\s]+)\)")


def escape(text: str) -> str:
    """Text whose every character stands for itself, also at the beginning of a line."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^(?=[.'])", r"\\&", text, flags=re.MULTILINE)


def bold(text: str) -> str:
    return f"\\fB{escape(text)}\\fR"


def italic(text: str) -> str:
    return f"\\fI{escape(text)}\\fR"


def section(title: str) -> str:
    return f'.SH "{escape(title.upper())}"'


def subsection(title: str) -> str:
    return f'.SS "{escape(title)}"'


def item(head: str, text: str) -> list[str]:
    """An item of a list, whose `head` is roff and whose `text` is Markdown of one paragraph."""
    return [".TP", head, inline(text)]


def literal(lines: list[str]) -> list[str]:
    """Lines as they are."""
    return [".PP", ".in +4n", ".nf", *(escape(line) for line in lines), ".fi", ".in"]


def inline(text: str) -> str:
    """One paragraph of Markdown: code and strong words are bold, a link is its text."""
    parts, end = [], 0
    text = " ".join(text.split())
    for match in _INLINE.finditer(text):
        parts.append(escape(text[end : match.start()]))
        code, strong, emphasis, link, target = match.groups()
        end = match.end()
        if code or strong:
            parts.append(bold(code or strong))
        elif emphasis:
            parts.append(italic(emphasis))
        else:
            parts.append(inline(link))
            if "://" in target:
                parts.append(escape(f" ({target})"))
    return "".join([*parts, escape(text[end:])])


def markdown(text: str) -> Iterator[str]:
    """Pages as we write them: headings, paragraphs, lists, tables and blocks of code."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("```"):
            end = next(n for n in range(at + 1, len(lines)) if lines[n].startswith("```"))
            yield from literal(lines[at + 1 : end])
            at = end + 1
        elif match := re.match(r"(#+) (.*)", line):
            title = re.sub(r"[`*]", "", match[2])
            yield section(title) if len(match[1]) < 3 else subsection(title)
            at += 1
        elif line.startswith("|"):
            end = _end(lines, at, lambda each: each.startswith("|"))
            yield from _table(lines[at:end])
            at = end
        elif match := re.match(r"(-|\d+\.) ", line):
            end = _end(lines, at + 1, lambda each: each.startswith("  "))
            head = "\\(bu" if match[1] == "-" else match[1]
            yield f".IP {head} {len(match[1]) + 1}"
            yield inline(" ".join([line[match.end() :], *lines[at + 1 : end]]))
            at = end
        elif not line.strip():
            at += 1
        else:
            end = _end(lines, at, lambda each: bool(re.match(r"(?!```|#|\||- |\d+\. )\S", each)))
            yield ".PP"
            yield inline(" ".join(lines[at:end]))
            at = end


def _end(lines: list[str], start: int, belongs: Callable[[str], bool]) -> int:
    end = start
    while end < len(lines) and belongs(lines[end]):
        end += 1
    return max(end, start)


def _table(rows: list[str]) -> Iterator[str]:
    """A table of two columns as a list of items; further columns follow the second."""
    cells = [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", row.strip("|"))]
        for row in rows
    ]
    for first, *rest in cells[2:]:
        text = "; ".join(part for part in rest if part)
        yield from item(inline(first) or "\\&", text)
