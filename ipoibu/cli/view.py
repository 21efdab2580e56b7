# SPDX-License-Identifier: BSD-2-Clause
"""The common part of `show`, `neigh`, `mcast`, `conn` and `stats`: ask daemons, print once or
repeatedly."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Container, Iterable
from typing import TYPE_CHECKING, Any, Final

from ipoibu.base.errors import NoSuchDevice, UsageError

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser

WATCH_S: Final = 1.0
CLEAR_SCREEN: Final = "\033[H\033[2J"
# (interface name, the daemon's answer) of each interface asked
Answers = list[tuple[str, Any]]


class Asked(Answers):
    """The answers; `silent` says which interfaces did not answer."""

    def __init__(self, answers: Iterable[tuple[str, Any]] = ()) -> None:
        super().__init__(answers)
        self.silent: dict[str, str] = {}  # by interface

    def report(self) -> int:
        """Print which interfaces did not answer; return the exit code."""
        for line in self.silent.values():
            print(f"ipoibu: {line}", file=sys.stderr)
        return 1 if self.silent else 0


def add_view(
    commands: argparse._SubParsersAction[Parser],
    command: str,
    summary: str,
    text: Callable[[Answers], str],
    data: Callable[[Answers], list[dict[str, Any]]],
) -> Parser:
    """Add a command that asks daemons for `command` and prints `text` of the answers, or with -j the
    JSON of `data`; return its parser."""
    parser = commands.add_parser(command, help=summary, description=summary.capitalize() + ".")
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="the interface; all of this namespace by default"
    )
    parser.add_argument("-j", "--json", action="store_true", help="print JSON with stable keys")
    parser.add_argument(
        "--watch",
        metavar="SECONDS",
        nargs="?",
        type=parse_period,
        const=WATCH_S,
        help="repeat until interrupted, every second by default; with -j one line each",
    )

    parser.set_defaults(run=viewer(command, text, data))
    return parser


def viewer(
    command: str,
    text: Callable[[Answers], str],
    data: Callable[[Answers], list[dict[str, Any]]],
) -> Callable[[argparse.Namespace], int]:
    """Return the function that runs such a command with the options `name`, `json` and `watch`."""

    def run(options: argparse.Namespace) -> int:
        def show() -> tuple[str, Asked]:
            answers = ask(command, options.name)
            if not options.json:
                return text(answers), answers
            return json.dumps(data(answers), indent=None if options.watch else 2), answers

        if options.watch is None:
            output, answers = show()
            if output:
                print(output)
            return answers.report()
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends a watch
            _watch(show, options.watch, clear=not options.json and sys.stdout.isatty())
        return 0

    return run


def ask(command: str, name: str | None, leave_out: Container[str] = ()) -> Asked:
    """Return the answer of one interface, or of all in this namespace except those to leave out, and those
    that end meanwhile."""
    from ipoibu.daemon.control.client import Client, DaemonEnded, NotAnswering
    from ipoibu.daemon.control.socket_paths import names

    if name is not None:
        with Client(name) as client:
            return Asked([(name, client.request(command))])
    answers = Asked()
    with contextlib.ExitStack() as stack:
        clients: list[Client] = []
        for each in names():
            if each in leave_out:
                continue
            try:
                client = stack.enter_context(Client(each))
                client.begin(command)
                clients.append(client)
            except (NoSuchDevice, DaemonEnded):
                continue  # the daemon was killed, or is ending
            except NotAnswering as error:
                answers.silent[each] = str(error)
        for client in clients:
            try:
                answers.append((client.name, client.answer()))
            except DaemonEnded:
                continue
            except NotAnswering as error:
                answers.silent[client.name] = str(error)
    return answers


def _watch(show: Callable[[], tuple[str, Asked]], period_s: float, *, clear: bool) -> None:
    while True:
        output, answers = show()
        sys.stdout.write((CLEAR_SCREEN if clear else "") + output + "\n")
        sys.stdout.flush()
        answers.report()
        time.sleep(period_s)


def parse_period(text: str) -> float:
    """Read seconds from 0.1 on."""
    try:
        period_s = float(text)
    except ValueError:
        period_s = 0.0
    if not 0.1 <= period_s <= 86_400:
        raise UsageError(f"{text!r}: expected seconds, 0.1 or more")
    return period_s


def columns(rows: list[list[str]]) -> str:
    """Return the rows as text in aligned columns, two blanks apart, without padding in the last column."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)] if rows else []
    return "\n".join(
        "  ".join([*(word.ljust(w) for word, w in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    )
