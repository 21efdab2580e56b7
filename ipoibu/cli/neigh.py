# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu neigh`: the neighbours of interfaces, in the format of `ip neigh`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ipoibu.cli.view import Answers, add_view

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    add_view(commands, "neigh", "show neighbours", text, data)


def data(answers: Answers) -> list[dict[str, Any]]:
    return [{"dev": name, **entry} for name, entries in answers for entry in entries]


def text(answers: Answers) -> str:
    return "\n".join(_entry(entry) for entry in data(answers))


def _entry(entry: dict[str, Any]) -> str:
    fields = [f"{entry['ip']} dev {entry['dev']}"]
    if entry["hwaddr"] is not None:
        fields.append(f"lladdr {entry['hwaddr']}")
    if entry["router"]:
        fields.append("router")
    fields.append(f"{entry['state'].upper()} age {entry['age_s']:.1f}s")
    if entry["pending"]:
        fields.append(f"pending {entry['pending']}")
    return " ".join(fields)
