# SPDX-License-Identifier: BSD-2-Clause
"""Reads the sections of a keyfile or a unit file, with the line of each setting."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ipoibu.daemon.config.config_file import read_text
from ipoibu.importer.draft import Note, Place


@dataclass(frozen=True, slots=True)
class Entry:
    """A setting; `number` counts the file's sections, because those of systemd repeat."""

    section: str
    number: int
    key: str
    value: str
    place: Place


def read_entries(path: Path, *, continued: bool) -> tuple[list[Entry], list[Note]]:
    """Read all settings of a file, and note the lines that are none.

    In a file of systemd (`continued`) a backslash at its end joins a line with the next one, except
    comments. `UsageError` if the file is not readable.
    """
    entries: list[Entry] = []
    notes: list[Note] = []
    section, number = "", 0
    start, joined = 0, ""
    for line, raw in enumerate(read_text(path).split("\n"), 1):
        text = raw.strip()
        if text.startswith(("#", ";")) or (not text and not joined):
            continue
        start = start if joined else line
        if continued and text.endswith("\\"):
            joined += f"{text[:-1].rstrip()} "
            continue
        text, joined = joined + text, ""
        if text.startswith("[") and text.endswith("]"):
            section, number = text[1:-1], number + 1
            continue
        key, equals, value = text.partition("=")
        place = Place(path, start, f"{section}.{key.strip()}" if section and equals else "")
        if not equals or not section:
            notes.append(Note(place, f"{text[:60]!r} is no setting of a section"))
            continue
        entries.append(Entry(section, number, key.strip(), value.strip(), place))
    return entries, notes
