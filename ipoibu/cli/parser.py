# SPDX-License-Identifier: BSD-2-Clause
"""The parser of the command line, with a subparser for each command's module."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, NoReturn

from ipoibu.errors import UsageError

COMMANDS: Final = (
    "up",
    "run",
    "child",
    "lab",
    "bench",
    "show",
    "neigh",
    "mcast",
    "conn",
    "peers",
    "guests",
    "path",
    "stats",
    "metrics",
    "monitor",
    "top",
    "ping",
    "set",
    "log",
    "reload",
    "capture",
    "config",
    "import",
    "doctor",
    "completion",
)


class Parser(argparse.ArgumentParser):
    """An argument parser that raises `UsageError`: one line, exit code 2."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see `{self.prog} --help`)")


class _Version(argparse.Action):
    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print the version and exit")

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> NoReturn:
        from importlib.metadata import PackageNotFoundError, version

        try:
            text = version("ipoibu")
        except PackageNotFoundError:
            text = "(not installed)"
        print(f"ipoibu {text}")
        parser.exit()


def build(commands: Sequence[str] = COMMANDS) -> Parser:
    """Build the parser of some commands, or of all; the attribute `run` of its result is the command's
    function. Each command costs the imports of its module."""
    parser = Parser(
        prog="ipoibu",
        description="IP over InfiniBand in user space.",
        epilog="Exit codes: 0 done, 1 failed, 2 usage, 3 no such device, 4 not permitted.",
    )
    parser.add_argument("--version", action=_Version)
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True, dest="command")
    for name in commands:
        module = import_module(f"ipoibu.cli.{name}")
        module.add(subparsers)
    return parser
