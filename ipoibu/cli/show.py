# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu show`: interfaces with properties that `ip link` does not show of a TUN."""

from __future__ import annotations

import argparse
import ipaddress
from typing import TYPE_CHECKING, Any

from ipoibu.cli.view import Answers, add_view

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    add_view(commands, "show", "show interfaces and their addresses", text, data)


def data(answers: Answers) -> list[dict[str, Any]]:
    return [answer for _, answer in answers]


def text(answers: Answers) -> str:
    return "\n".join(_interface(answer) for _, answer in answers)


def _interface(answer: dict[str, Any]) -> str:
    lines = [
        "{name}: device {device} port {port} {link_layer} state {state} mode {mode}"
        " mtu {mtu}".format_map(answer)
        + (f" of {answer['link_mtu']}" if answer["link_mtu"] != answer["mtu"] else "")
        + (f" queues {answer['queues']}" if answer.get("queues", 1) > 1 else ""),
        "    link/infiniband {hwaddr} brd {broadcast}".format_map(answer),
        "    pkey {pkey} qkey {qkey} qpn {qpn} gid {gid} guid {guid}".format_map(answer),
    ]
    for entry in answer["addresses"]:
        address = ipaddress.ip_interface(entry["address"])
        family = "inet" if address.version == 4 else "inet6"
        lines.append(f"    {family} {entry['address']} {entry['state']}")
    return "\n".join(lines)
