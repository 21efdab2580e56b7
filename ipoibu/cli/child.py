# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu child`: child interfaces, each in another partition on the port of a running interface."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ipoibu.base.errors import NoSuchDevice
from ipoibu.cli.options import add_options, given
from ipoibu.daemon.config.options import options_of

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "child",
        help="add, remove and list child interfaces",
        description="Add, remove and list child interfaces, which are other partitions on the port of a"
        " running interface.",
        epilog="`ipoibu child add ib0 0x8001` makes ib0.8001, which ends when ib0 ends, or before.",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True, dest="action")
    partition = "partition, 0x0001 to 0xffff; full membership is implied"
    action = actions.add_parser(
        "add", help="add a child interface", description="Add a child interface."
    )
    action.add_argument("parent", metavar="NAME", help="the parent, such as ib0")
    action.add_argument("pkey", metavar="P_KEY", help=partition)
    add_options(action, "child")
    action.set_defaults(run=run_add)
    action = actions.add_parser(
        "del",
        help="remove a child interface",
        description="Remove a child interface: `child del ib0 0x8001`, or `child del ib0.8001`.",
    )
    action.add_argument("name", metavar="NAME", help="the parent, or without a P_KEY the child")
    action.add_argument("pkey", metavar="P_KEY", nargs="?", help=partition)
    action.set_defaults(run=run_del)
    action = actions.add_parser("list", help="list child interfaces")
    action.add_argument(
        "name", metavar="NAME", nargs="?", help="the parent; all of this namespace by default"
    )
    action.add_argument("-j", "--json", action="store_true", help="print JSON with stable keys")
    action.set_defaults(run=run_list)


def run_add(options: argparse.Namespace) -> int:
    from ipoibu.daemon.control.client import Client

    pkey = _pkey(options.pkey)
    texts = given(options, "child")
    for option in options_of("child"):  # refuse wrong values before asking the daemon
        value = texts.get(option.name, [])
        for text in [value] if isinstance(value, str) else value:
            option.read(text)
    with Client(options.parent) as client:
        print(client.request("child-add", pkey=pkey, **texts))
    return 0


def run_del(options: argparse.Namespace) -> int:
    from ipoibu.daemon.control.client import Client

    if options.pkey is not None:
        parent, pkey = options.name, _pkey(options.pkey)
    else:
        parent, pkey = find(options.name)
    with Client(parent) as client:
        client.request("child-del", pkey=pkey)
    return 0


def find(name: str) -> tuple[str, str]:
    """The parent, as this namespace calls it, and the P_Key of a child."""
    from ipoibu.cli.view import ask

    answers = ask("child-list", None)
    children = {
        child["name"]: (parent, child["pkey"]) for parent, found in answers for child in found
    }
    if name in children:
        return children[name]
    answers.report()  # it may be the child of one that does not answer
    names = ", ".join(children) or "none"
    raise NoSuchDevice(f"{name} is no child interface (there are: {names}); a parent needs a P_KEY")


def run_list(options: argparse.Namespace) -> int:
    from ipoibu.cli.view import ask, columns

    answers = ask("child-list", options.name)
    children = [child for _, answer in answers for child in answer]
    if options.json:
        print(json.dumps(children, indent=2))
    elif children:
        print(columns([_row(each) for each in children]))
    return answers.report()


def _row(child: Mapping[str, Any]) -> list[str]:
    vlan = [] if child["vlan"] is None else [f"vlan {child['vlan']}"]
    return [child["name"], child["parent"], child["pkey"], *vlan]


def _pkey(text: str) -> str:
    """Check the P_Key before asking the daemon, for exit code 2."""
    from ipoibu.base.addr import PKey

    return str(PKey.parse(text).full)
