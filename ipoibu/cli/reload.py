# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu reload`: a running interface reads its configuration file again."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "reload",
        help="take over a changed configuration file",
        description="Have a running interface read its configuration file again, and take over what"
        " can change without a restart. Print a line for each key that has changed, and for each that"
        " needs a restart. A faulty file changes nothing.",
    )
    parser.add_argument("name", metavar="NAME", help="the interface, such as ib0")
    parser.add_argument("-j", "--json", action="store_true", help="print JSON with stable keys")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ipoibu.daemon.control.client import Client
    from ipoibu.daemon.control.socket_paths import outside_links
    from ipoibu.daemon.interface.reloader import Outcome

    links = outside_links(options.name)  # `--netns`: the interface is in another namespace
    with Client(links[0] if len(links) == 1 else options.name) as client:
        outcome: dict[str, Any] = client.request("reload")
    if options.json:
        print(json.dumps({"dev": options.name, **outcome}))
    else:
        for line in Outcome(**outcome).lines() or ["nothing has changed"]:
            print(f"{options.name}: {line}")
    return 1 if outcome["failed"] else 0
