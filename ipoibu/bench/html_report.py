# SPDX-License-Identifier: BSD-2-Clause
"""A report as one HTML file that fetches nothing: environment, sections, and all results as JSON.

    write(path, Page("title", environment(), [Section("heading", ["text", Table(head, rows)])], results))

The page is well-formed XML, too, so that a test or a script reads it with any parser. The results stand
in `<script type="application/json" id="results">`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Final

from ipoibu.bench.picture import Picture

_NUMBER: Final = re.compile(r"(?:>=)?[-+]?\d[\d ,]*(?:\.\d+)?(?:e[-+]?\d+)? ?%?|-")
# The colours of words that judge, whichever table they stand in
_JUDGED: Final = {
    **dict.fromkeys(("met", "pass", "faster", "better"), "good"),
    **dict.fromkeys(("not met", "fail", "slower", "worse"), "bad"),
    **dict.fromkeys(("warn", "skip"), "fair"),
}
_STYLE: Final = """
body { font: 15px/1.45 sans-serif; max-width: 76em; margin: 1.5em auto; padding: 0 1em; color: #222; }
h1 { font-size: 1.5em; } h2 { font-size: 1.2em; margin-top: 1.8em; border-bottom: 1px solid #ccc; }
table { border-collapse: collapse; margin: .8em 0; display: block; overflow-x: auto; }
caption { text-align: left; font-weight: bold; padding-bottom: .3em; }
th, td { padding: .2em .6em; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.good { color: #1b6e2d; } td.bad { color: #b3261e; font-weight: bold; } td.fair { color: #8a6100; }
pre { background: #f4f4f4; padding: .6em; overflow-x: auto; }
svg { display: block; margin: 1em 0; max-width: 100%; height: auto; }
svg text { font: 12px sans-serif; fill: currentColor; } svg .title { font-weight: bold; }
svg .rule { stroke: #bbb; }
@media (prefers-color-scheme: dark) {
  body { background: #1b1b1b; color: #ddd; } pre { background: #2a2a2a; }
  td.good { color: #7fcf8f; } td.bad { color: #ff8a80; } td.fair { color: #e0b050; }
}
"""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text. Numbers stand at the right, and words that judge, such as "pass", have a colour."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Pre:
    """Text whose lines and blanks stay, such as a dump in hexadecimal."""

    text: str


Part = str | Table | Picture | Pre


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with text, tables and pictures; a blank line in a text begins a new paragraph."""

    title: str
    parts: Sequence[Part]


@dataclass(frozen=True, slots=True)
class Page:
    """A whole report; `results` is what the JSON of the same command has."""

    title: str
    environment: Mapping[str, Any]
    sections: Sequence[Section]
    results: Any = field(default=None)


def write(path: Path, page: Page) -> None:
    path.write_text(html(page), encoding="utf-8")


def html(page: Page) -> str:
    """Return the text of the file."""
    title = escape(page.title)
    body = [f"<h1>{title}</h1>", _environment(page.environment)]
    for number, section in enumerate(page.sections):
        body.append(f'<section id="s{number}"><h2>{escape(section.title)}</h2>')
        body += [_part(part) for part in section.parts]
        body.append("</section>")
    if page.results is not None:
        kept = f'<script type="application/json" id="results">{_json(page.results)}</script>'
        body.append("<p>This file holds all results as JSON, in the element “results”.</p>" + kept)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width"/>'
        f"<title>{title}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _json(results: Any) -> str:
    """Return JSON without the characters that would end the element, or be markup of XML."""
    text = json.dumps(results, indent=1)
    for mark in "<>&":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text


def _environment(environment: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{escape(key.replace('_', ' '))}</td><td>{escape(_plain(value))}</td></tr>\n"
        for key, value in environment.items()
    )
    return f"<table><caption>Environment</caption>\n<tbody>{rows}</tbody></table>" if rows else ""


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_plain(each)}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    if value is None:
        return "-"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _part(part: Part) -> str:
    if isinstance(part, Picture):
        return part.svg
    if isinstance(part, Table):
        return _table(part)
    if isinstance(part, Pre):
        return f"<pre>{escape(part.text)}</pre>"
    return "\n".join(f"<p>{escape(each)}</p>" for each in re.split(r"\n\s*\n", part.strip()))


def _table(table: Table) -> str:
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.head)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in table.rows)
    return f"<table>{caption}<thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table>"


def _cell(text: str) -> str:
    kind = _JUDGED.get(text) or ("number" if _NUMBER.fullmatch(text) else "")
    marked = f' class="{kind}"' if kind else ""
    return f"<td{marked}>{escape(text)}</td>"
