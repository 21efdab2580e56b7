# SPDX-License-Identifier: BSD-2-Clause
"""The blocks of code on the pages: what they say, and whether a program printed that.

The word after the fence says what a block is: `sh` has commands, `console` a session, whose lines with a
prompt (`#` for root, `$` for anybody) are commands and whose other lines show what these print; the output
may have more lines, and `...` stands for anything. All others are named after their languages, and `text`
has none.
"""

from __future__ import annotations

import functools
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]

_BLOCK: Final = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_PROMPT: Final = re.compile(r"[#$] (?=\S)")

# What differs from run to run: times, dates, counters, process numbers, and the hardware addresses whose
# queue pair number is random. IP addresses and words are what they are.
_FIXED: Final = r"\d+\.\d+\.\d+\.\d+|\bf[de][0-9a-f]{2}:[0-9a-f:]+|\b[a-z]\w*\d"
_VARIES: Final = r"\.\.\.|(?:[0-9a-f]{2}:){3,}[0-9a-f:]*|0x[0-9a-f]+|\b[0-9a-f]{9,}\b|\d+(?:\.\d+)?"
_PART: Final = re.compile(f"(?P<fixed>{_FIXED})|(?P<varies>{_VARIES})")


class Block(NamedTuple):
    page: str
    line: int  # of its first line in the page
    language: str
    text: str

    @property
    def lines(self) -> list[str]:
        return self.text.rstrip("\n").split("\n")

    @property
    def commands(self) -> list[str]:
        """The commands of a block of shell or of a session, each with its continuation lines."""
        joined = self.text.replace("\\\n", " ").rstrip("\n").split("\n")
        if self.language == "console":
            return [line[2:] for line in joined if _PROMPT.match(line)]
        return [line for line in joined if line.strip()]

    @property
    def output(self) -> list[str]:
        """The lines of a session that its commands print."""
        joined = self.text.replace("\\\n", " ").rstrip("\n").split("\n")
        return [line for line in joined if not _PROMPT.match(line)]

    @property
    def name(self) -> str:
        """The page and the first line, as tables of tests name a block."""
        return f"{self.page}: {self.lines[0]}"


@functools.cache
def tracked_pages() -> list[str]:
    """Return the tracked pages; without git (in an sdist) the existing ones."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode == 0:
        return [name for name in listed.stdout.split() if (ROOT / name).exists()]
    hidden = re.compile(r"(^|/)[._]")
    names = (path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.md"))
    return sorted(name for name in names if not hidden.search(name))


def pages() -> list[str]:
    """The pages of the documentation; experiments of bench/notes are none."""
    return [page for page in tracked_pages() if not page.startswith("bench/")]


def blocks(page: str, *languages: str) -> Iterator[Block]:
    """The blocks of the page, or those of the languages, without their indentation."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        indent, language, body = match.groups()
        body = re.sub(f"^{indent}", "", body, flags=re.MULTILINE)
        if not languages or language in languages:
            yield Block(page, text[: match.start()].count("\n") + 2, language, body)


def simple_commands(line: str) -> Iterator[list[str]]:
    """The words of each simple command of a shell's line, without redirections and comments."""
    reader = shlex.shlex(line, posix=True, punctuation_chars=";&|<>")
    reader.whitespace_split = True
    words: list[str] = []
    skip = False
    for word in reader:
        if skip:
            skip = False
        elif set(word) <= set(";&|"):
            yield words
            words = []
        elif set(word) <= set("<>&"):
            skip = True
            if words and words[-1].isdigit():  # the descriptor that is redirected
                words.pop()
        else:
            words.append(word)
    if words:
        yield words


def missing(expected: list[str], printed: str) -> str | None:
    """The first of the expected lines that the output does not have after those before it."""
    lines = iter(printed.split("\n"))
    for line in expected:
        shape = re.compile(_shape(line.strip()))
        if not any(shape.search(each) for each in lines):
            return line
    return None


def _shape(line: str) -> str:
    parts, end = [], 0
    for match in _PART.finditer(line):
        parts.append(re.escape(line[end : match.start()]))
        end = match.end()
        if match["fixed"]:
            parts.append(re.escape(match["fixed"]))
        elif match["varies"] == "...":
            parts.append(".*")
        else:
            parts.append(r"[0-9a-fx:.]+")
    text = "".join([*parts, re.escape(line[end:])])
    return re.sub(r"(?:\\ )+", r" +", text)
