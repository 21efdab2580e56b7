# SPDX-License-Identifier: BSD-2-Clause
"""The meaning of every counter, read from `counters.toml`, which also makes docs/reference/counters.md."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Final

_QUEUE: Final = re.compile(r"queue\.(\d+)\.(\w+)")
_MARKUP: Final = re.compile(r"`([^`]*)`|\[([^\]]*)\]\([^)]*\)")


@dataclass(frozen=True, slots=True)
class Section:
    """One section of docs/reference/counters.md; `counters.toml` explains the fields."""

    title: str
    prefix: str
    introduction: str
    counters: Mapping[str, str]
    notes: str = ""
    per_port: tuple[str, ...] = ()
    ends: frozenset[str] = field(default=frozenset())
    drops: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter of `ipoibu stats`. `meaning` is plain text, None for a counter without an explanation.
    `former` is the name that `ipoibu stats` printed in the last release."""

    meaning: str | None = None
    is_per_port: bool = False
    is_drop: bool = False
    former: str | None = None


@cache
def introduction() -> str:
    """Return the text before the sections."""
    return str(_file()["introduction"])


@cache
def sections() -> tuple[Section, ...]:
    return tuple(_section(table) for table in _file()["section"])


def counter(name: str) -> Counter:
    """Return the counter that `ipoibu stats` prints as `name`; of a queue's counter, the sum over all."""
    _, name = split_queue(name)
    return _by_name().get(name, Counter())


def split_queue(name: str) -> tuple[str | None, str]:
    """Split `queue.N.NAME` into N and NAME; N is None for every other counter."""
    match = _QUEUE.fullmatch(name)
    return (match[1], match[2]) if match else (None, name)


@cache
def _file() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("counters.toml").read_text("utf-8"))


def _section(table: dict[str, Any]) -> Section:
    return Section(
        title=table["title"],
        prefix=table["prefix"],
        introduction=table["introduction"],
        counters=table["counters"],
        notes=table.get("notes", ""),
        per_port=tuple(table.get("per_port", ())),
        ends=frozenset(table.get("ends", ())),
        drops=tuple(table.get("drops", ())),
        renamed=table.get("renamed", {}),
    )


@cache
def _by_name() -> dict[str, Counter]:
    """Counters by their names in `ipoibu stats`; where two sections have a name, the first explains it."""
    found: dict[str, Counter] = {}
    for section in sections():
        former = {name: section.prefix + old for old, name in section.renamed.items()}
        for name, meaning in section.counters.items():
            explained = Counter(
                meaning=_MARKUP.sub(lambda match: match[1] or match[2], meaning),
                is_per_port=_matches(name, section.per_port),
                is_drop=_matches(name, section.drops),
                former=former.get(name),
            )
            found.setdefault(section.prefix + name, explained)
    return found


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
