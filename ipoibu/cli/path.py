# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu path`: the paths of interfaces to other ports and to groups."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ipoibu.cli.view import Answers, add_view

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    add_view(commands, "path", "show paths to ports and groups", text, data)


def data(answers: Answers) -> list[dict[str, Any]]:
    return [{"dev": name, **entry} for name, entries in answers for entry in entries]


def text(answers: Answers) -> str:
    return "\n".join(_entry(entry) for entry in data(answers))


def _entry(entry: dict[str, Any]) -> str:
    fields = [f"{entry['gid']} dev {entry['dev']} {entry['state'].upper()}"]
    fields += [
        f"{name} {entry[key]}"
        for name, key in (("lid", "lid"), ("sl", "sl"), ("rate", "rate"), ("mtu", "mtu"))
        if entry[key]
    ]
    if entry["waiting"]:
        fields.append(f"waiting {entry['waiting']}")
    if entry["next_hops"]:
        fields.append(f"for {','.join(entry['next_hops'])}")
    return " ".join(fields)
