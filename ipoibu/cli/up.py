# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu up`: one interface in the foreground, until SIGINT, SIGTERM or the end of its terminal."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
from typing import TYPE_CHECKING, NoReturn

from ipoibu.cli.options import add_interface, interface

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser
    from ipoibu.daemon.config.interface_config import InterfaceConfig
    from ipoibu.daemon.handover.keeper import Keeper
    from ipoibu.host.namespace_helper import NamespaceHelper
    from ipoibu.host.netns import OpenNamespace


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "up",
        help="bring an interface up",
        description="Bring an IPoIB interface up and run it in the foreground, until SIGINT, SIGTERM,"
        " `ipoibu down NAME` or the end of its terminal. SIGHUP reloads the file of --config.",
    )
    parser.add_argument("name", metavar="NAME", help="the interface to create, such as ib0")
    add_interface(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ipoibu.daemon.process.plain_asyncio import load_plain_asyncio

    load_plain_asyncio()
    from ipoibu.daemon.handover.keeper import Keeper
    from ipoibu.daemon.privilege import namespace_helper

    config = interface(options.name, options)
    with contextlib.ExitStack() as stack:
        keeper = stack.enter_context(contextlib.closing(Keeper.of_service()))
        namespace = None if config.netns is None else stack.enter_context(config.netns.open())
        helper = stack.enter_context(namespace_helper(config, namespace))
        _run(config, namespace, helper, keeper)
        is_awaited = keeper.leaves_something
    if is_awaited:
        leave()
    return 0


def leave() -> NoReturn:
    """End the process without the interpreter's own end, which takes a tenth of a restart."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _run(
    config: InterfaceConfig,
    namespace: OpenNamespace | None,
    helper: NamespaceHelper | None,
    keeper: Keeper,
) -> None:
    from ipoibu.daemon.daemon import Daemon
    from ipoibu.daemon.netns import run_in_netns
    from ipoibu.daemon.privilege import confine_daemon

    if namespace is not None:
        run_in_netns(config, namespace, helper, _announce, keeper)
    else:
        Daemon(
            config, announce=_announce, confine=confine_daemon, helper=helper, keeper=keeper
        ).run()


def _announce(line: str) -> None:
    print(line, flush=True)
