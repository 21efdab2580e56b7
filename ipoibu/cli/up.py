# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu up`: one interface in the foreground, until SIGINT, SIGTERM or SIGHUP."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from ipoibu.cli.log_format import log_format
from ipoibu.cli.options import add_options, given

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "up",
        help="bring an interface up",
        description="Bring an IPoIB interface up and run it in the foreground.",
    )
    parser.add_argument("name", metavar="NAME", help="the interface to create, such as ib0")
    add_options(parser, "up")
    parser.add_argument(
        "--config", metavar="FILE", type=Path, help="TOML file with the same keys as these options"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ipoibu.daemon.config import InterfaceConfig
    from ipoibu.daemon.privilege import confine_daemon
    from ipoibu.daemon.run import Daemon

    config = InterfaceConfig.build(options.name, given(options, "up"), options.config)
    # Call this before pyverbs, which would configure the root logger, is imported.
    logging.basicConfig(level=config.logging_level, format=log_format())
    Daemon(config, announce=_announce, confine=confine_daemon).run()
    return 0


def _announce(line: str) -> None:
    print(line, flush=True)
