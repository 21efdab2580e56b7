# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu up`: one interface in the foreground, until SIGINT, SIGTERM or SIGHUP."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ipoibu.cli.options import add_interface, interface

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "up",
        help="bring an interface up",
        description="Bring an IPoIB interface up and run it in the foreground.",
    )
    parser.add_argument("name", metavar="NAME", help="the interface to create, such as ib0")
    add_interface(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ipoibu.daemon.elsewhere import run_elsewhere
    from ipoibu.daemon.privilege import confine_daemon
    from ipoibu.daemon.run import Daemon

    config = interface(options.name, options)
    if config.netns is not None:
        run_elsewhere(config, config.netns, _announce)
    else:
        Daemon(config, announce=_announce, confine=confine_daemon).run()
    return 0


def _announce(line: str) -> None:
    print(line, flush=True)
