# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu config check`: the faults of configuration files, before an interface reads them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "config",
        help="check configuration files",
        description="Check configuration files of `ipoibu up --config` and of ipoibu@NAME.service.",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True, dest="action")
    check = actions.add_parser(
        "check",
        help="list the faults of configuration files",
        description="Print a line FILE:LINE: KEY: FAULT for each fault; exit code 2 if there is one.",
    )
    check.add_argument(
        "files", metavar="FILE", nargs="+", type=Path, help="the file of an interface"
    )
    check.set_defaults(run=run_check)


def run_check(options: argparse.Namespace) -> int:
    from ipoibu.base.errors import UsageError
    from ipoibu.daemon.config.interface_config import faults

    code = 0
    for path in options.files:
        try:
            lines = [str(fault) for fault in faults(path)]
        except UsageError as error:
            lines = [str(error)]
        for line in lines:
            print(" ".join(line.split()))
            code = UsageError.exit_code
    return code
