# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu guests`: who is behind a TAP, the MACs of the hosts of the link, and who was refused."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ipoibu.cli.view import Answers, add_view, columns

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    add_view(commands, "guests", "show guests behind a TAP, and hosts of the link", text, data)


def data(answers: Answers) -> list[dict[str, Any]]:
    return [{"dev": name, **entry} for name, entries in answers for entry in entries]


def text(answers: Answers) -> str:
    rows = [
        [
            entry["kind"],
            entry["ip"] or entry["hwaddr"],
            f"dev {entry['dev']}",
            f"lladdr {entry['mac']}",
            f"{entry['state'].upper()} age {entry['age_s']:.1f}s{_refusal(entry)}",
        ]
        for entry in data(answers)
    ]
    return columns(rows)


def _refusal(entry: Mapping[str, Any]) -> str:
    holder = f" holder {entry['holder']}" if entry["holder"] else ""
    return f" count {entry['count']}{holder}" if entry["count"] else ""
