# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu stats`: the counters of interfaces, among them drops by reason."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ipoibu.cli.view import Answers, add_view, columns

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    add_view(commands, "stats", "show counters", text, data)


def data(answers: Answers) -> list[dict[str, Any]]:
    return [{"name": name, "stats": counters} for name, counters in answers]


def text(answers: Answers) -> str:
    """Return counters above zero, by name; the JSON has all counters."""
    rows = [
        [name, counter, str(value)]
        for name, counters in answers
        for counter, value in sorted(counters.items())
        if value
    ]
    return columns(rows)
