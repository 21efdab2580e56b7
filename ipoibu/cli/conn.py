# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu conn`: the connections of interfaces in connected mode."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ipoibu.cli.view import Answers, add_view

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    add_view(commands, "conn", "show connections of connected mode", text, data)


def data(answers: Answers) -> list[dict[str, Any]]:
    return [{"dev": name, **entry} for name, entries in answers for entry in entries]


def text(answers: Answers) -> str:
    return "\n".join(_entry(entry) for entry in data(answers))


def _entry(entry: dict[str, Any]) -> str:
    fields = [f"{entry['peer']} dev {entry['dev']} {entry['role']} {entry['state'].upper()}"]
    if entry.get("locator"):
        fields.append(f"at {entry['locator']}")
    if entry["qpn"]:
        fields.append(f"qpn {entry['qpn']} remote {entry['remote_qpn']}")
    if entry["mtu"]:
        fields.append(f"mtu {entry['mtu']}")
    if entry["path_mtu"]:
        fields.append(f"path-mtu {entry['path_mtu']}")
    if entry["superframes"]:
        fields.append("superframes")
    if entry["retries"]:
        fields.append(f"retries {entry['retries']}")
    if entry["tx_messages"] is None:
        return " ".join(fields)
    fields.append(
        f"tx {entry['tx_messages']}/{entry['tx_bytes']} rx {entry['rx_messages']}/{entry['rx_bytes']}"
        f" age {entry['age_s']:.1f}s idle {entry['idle_s']:.1f}s"
    )
    return " ".join(fields)
