# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu up`: one interface in the foreground, until SIGINT, SIGTERM or SIGHUP."""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ipoibu.cli.options import add_options, given

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser


STDERR: Final = 2


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
    logging.basicConfig(level=config.logging_level, format=_format())
    Daemon(config, announce=_announce, confine=confine_daemon).run()
    return 0


def _format() -> str:
    """The form of a log line; the journal has time stamps of its own (systemd.exec(5))."""
    status = os.fstat(STDERR)
    goes_to_journal = os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
    stamp = "" if goes_to_journal else "%(asctime)s "
    return f"{stamp}ipoibu: %(levelname)s: %(message)s"


def _announce(line: str) -> None:
    print(line, flush=True)
