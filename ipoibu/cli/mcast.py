# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu mcast`: the multicast groups of interfaces."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ipoibu.cli.view import Answers, add_view, columns

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    add_view(commands, "mcast", "show multicast groups", text, data)


def data(answers: Answers) -> list[dict[str, Any]]:
    return [{"dev": name, **entry} for name, entries in answers for entry in entries]


def text(answers: Answers) -> str:
    rows = [
        [
            str(entry["dev"]),
            str(entry["mgid"]),
            ",".join(entry["groups"]) or "-",
            str(entry["kind"]),
            f"users {entry['users']} {entry['state']}",
        ]
        for entry in data(answers)
    ]
    return columns(rows)
