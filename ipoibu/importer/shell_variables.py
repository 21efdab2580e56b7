# SPDX-License-Identifier: BSD-2-Clause
"""Reads files of shell variables, with the line of each."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ipoibu.daemon.config.config_file import read_text
from ipoibu.importer.draft import Note, Place


@dataclass(frozen=True, slots=True)
class Variable:
    """One assignment of the shell."""

    name: str
    value: str
    place: Place


def read_variables(path: Path, notes: list[Note]) -> Iterator[Variable]:
    """The assignments of a file; other lines become notes."""
    for number, line in enumerate(read_text(path).split("\n"), 1):
        text = line.strip().removeprefix("export ")
        if not text or text.startswith("#"):
            continue
        match = re.match(r"([A-Za-z_][A-Za-z0-9_]*)=", text)
        place = Place(path, number, match[1] if match else "")
        try:
            words = shlex.split(text, comments=True)
        except ValueError:
            words = []
        if not match or len(words) != 1 or re.search(r"[$`]", text):
            notes.append(Note(place, "not a plain assignment of the shell"))
            continue
        yield Variable(match[1], words[0].partition("=")[2], place)
