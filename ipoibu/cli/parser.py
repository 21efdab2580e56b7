# SPDX-License-Identifier: BSD-2-Clause
"""The parser of the command line, with a subparser for each command's module."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, NoReturn

from ipoibu.base.errors import UsageError

COMMANDS: Final = (
    "up",
    "down",
    "run",
    "child",
    "lab",
    "bench",
    "conform",
    "status",
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
    "genkey",
    "doctor",
    "completion",
)


class Parser(argparse.ArgumentParser):
    """An argument parser that raises `UsageError`: one line, exit code 2."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see `{self.prog} --help`)")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Refuse what is left over here, where it is known which command it was for."""
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            options = [word for action in self._actions for word in action.option_strings]
            near = nearest(rest[0].partition("=")[0], options)
            self.error(f"unrecognized arguments: {' '.join(rest)}{near}")
        return found, rest

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            words = [str(choice) for choice in action.choices]
            what = f"{value!r} is none of {', '.join(words)}{nearest(str(value), words)}"
            raise argparse.ArgumentError(action, what)


def nearest(word: str, words: Sequence[str]) -> str:
    """Return the end of a sentence that proposes one of `words`; empty if none is like `word`."""
    begin = [each for each in words if word.strip("-") and each.startswith(word)]
    if not begin:
        import difflib  # only a mistake needs it

        begin = difflib.get_close_matches(word, words, 1)
    return f"; did you mean {begin[0]}?" if begin else ""


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
