# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu status`: whether interfaces run and are up, one line each."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any, Final

from ipoibu.base.errors import NoSuchDevice
from ipoibu.cli.view import ask, columns

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser

KEYS: Final = ("name", "state", "pid", "device", "mode", "mtu", "parent")


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "status",
        help="say whether interfaces are up",
        description="Print a line for each running interface: name, state, process, device, mode, MTU,"
        " addresses. Exit code 0 if all are up, 1 if one is not or does not answer, 3 if there is none.",
    )
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="the interface; all of this namespace by default"
    )
    parser.add_argument("-j", "--json", action="store_true", help="print JSON with stable keys")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    answers = ask("show", options.name)
    if not answers and not answers.silent:
        raise NoSuchDevice("no interface of ipoibu runs in this network namespace")
    rows = [_row(shown) for _, shown in answers]
    if options.json:
        print(json.dumps(rows, indent=2))
    elif rows:
        print(columns([_words(row) for row in rows]))
    return answers.report() or int(any(row["state"] != "up" for row in rows))


def _row(shown: dict[str, Any]) -> dict[str, Any]:
    addresses = [entry["address"] for entry in shown["addresses"]]
    return {**{key: shown[key] for key in KEYS}, "addresses": addresses}


def _words(row: dict[str, Any]) -> list[str]:
    addresses = " ".join(row["addresses"]) or "no address"
    process = f"process {row['pid']}"
    return [
        row["name"],
        row["state"],
        process,
        row["device"],
        row["mode"],
        f"mtu {row['mtu']}",
        addresses,
    ]
