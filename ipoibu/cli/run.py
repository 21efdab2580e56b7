# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu run`: a command whose only network is an IPoIB interface, without root."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Final

from ipoibu.base.errors import UsageError
from ipoibu.cli.options import add_interface, given, interface

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser

SHELL: Final = "/bin/sh"


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "run",
        help="run a command with an interface of its own, without root",
        description="Run COMMAND (by default $SHELL) in a user and network namespace of its own, whose"
        " only network is an IPoIB interface. This needs no privilege (docs/use/rootless.md).",
        usage="ipoibu run [options] [-- COMMAND...]",
        epilog="The exit status is the command's, or 128 + N after signal N.",
    )
    parser.add_argument(
        "--name", default="ib0", metavar="NAME", help="the name of the interface; ib0 by default"
    )
    parser.add_argument(
        "--join", metavar="NAME", help="run COMMAND in the namespaces of a running `ipoibu run`"
    )
    add_interface(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ipoibu.rootless import run as rootless

    words = options.rest or [os.environ.get("SHELL") or SHELL]
    if options.join is not None:
        if given(options, "up") or options.config is not None:
            raise UsageError("--join takes no other option: the interface is up already")
        rootless.join(options.join, words)
    return rootless.run(interface(options.name, options, rootless.default_device), words)
