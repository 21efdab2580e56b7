# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu log`: change what a running interface logs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ipoibu.cli.set import change
from ipoibu.daemon.config.options import LOG_LEVELS

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "log",
        help="change what a running interface logs",
        description="Change the least level that a running interface, its parent and its children log.",
    )
    parser.add_argument("name", metavar="NAME", help="the interface, such as ib0")
    parser.add_argument(
        "level",
        metavar="LEVEL",
        type=LOG_LEVELS.read,
        choices=LOG_LEVELS.words,
        help=", ".join(LOG_LEVELS.words),
    )
    parser.add_argument("-j", "--json", action="store_true", help="print JSON with stable keys")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    return change(options.name, "log-level", options.level, as_json=options.json)
