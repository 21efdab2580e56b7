# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu peers`: the peers of interfaces on links without multicast, and of iWARP's mesh."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from ipoibu.cli.view import Answers, add_view, columns

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser

_KEYS: Final = ("peer", "locator", "underlay", "state", "role", "mtu", "addresses", "groups")


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    add_view(commands, "peers", "show peers of links without multicast", text, data)


def data(answers: Answers) -> list[dict[str, Any]]:
    return [
        {"dev": name, **{key: entry[key] for key in _KEYS}}
        for name, entries in answers
        for entry in entries
    ]


def text(answers: Answers) -> str:
    rows = [
        [
            entry["peer"] or "-",
            f"dev {entry['dev']}",
            f"at {entry['locator']}",
            entry["state"].upper(),
            f"mtu {entry['mtu']}" if entry["mtu"] else "-",
            f"groups {len(entry['groups'])}",
            ",".join(entry["addresses"]) or "-",
        ]
        for entry in data(answers)
    ]
    return columns(rows)
