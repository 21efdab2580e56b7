# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu set`: change an option of a running interface."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from ipoibu.daemon.config.options import BY_NAME
from ipoibu.daemon.interface.changes import CHANGEABLE, check

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser


class _Offered(tuple[str, ...]):
    """Words that the completion offers; `run` refuses other words with a reason."""

    def __contains__(self, word: object) -> bool:
        return True


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "set",
        help="change an option of a running interface",
        description="Change an option of a running interface without a restart.",
    )
    parser.add_argument("name", metavar="NAME", help="the interface, such as ib0")
    parser.add_argument(
        "option",
        metavar="OPTION",
        choices=_Offered(CHANGEABLE),
        help=f"{', '.join(CHANGEABLE)}; the other options of `ipoibu up` need a restart",
    )
    parser.add_argument("value", metavar="VALUE", help="the value, as for `ipoibu up`")
    parser.add_argument("-j", "--json", action="store_true", help="print JSON with stable keys")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    return change(options.name, check(options.option), options.value, as_json=options.json)


def change(name: str, option: str, value: str, *, as_json: bool) -> int:
    """Refuse a wrong value before asking the daemon, then have the daemon change the option."""
    from ipoibu.daemon.control.client import Client

    word = BY_NAME[option].read(value)
    if isinstance(word, str):  # `Connected` is the mode `connected`
        value = word
    with Client(name) as client:
        done = client.request("set", option=option, value=value)
    if as_json:
        print(json.dumps(done))
    else:
        print(f"{name}: {option} {done['value']} (before: {done['before']})")
    return 0
