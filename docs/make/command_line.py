# SPDX-License-Identifier: BSD-2-Clause
"""The commands of ipoibu as ipoibu(1) and the site show them, read from the parser of the command line."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

from ipoibu.cli.parser import Parser


class Item(NamedTuple):
    """One option, whose `names` are what the user types, or one argument, which has none."""

    names: tuple[str, ...]
    value: str  # "" if the option takes none
    text: str


class Command(NamedTuple):
    """A command or a nested one, such as `ipoibu child add`."""

    name: str
    usage: str  # what follows the name
    texts: tuple[str, ...]
    items: tuple[Item, ...]


def commands(parser: Parser, name: str = "ipoibu") -> Iterator[Command]:
    """The command of this parser, and those below it."""
    usage = " ".join(parser.format_usage().split()).removeprefix(f"usage: {name}").strip()
    texts = tuple(text for text in (parser.description, parser.epilog) if text)
    yield Command(name, usage, texts, tuple(_items(parser)))
    for word, below in subparsers(parser):
        yield from commands(below, f"{name} {word}")


def subparsers(parser: Parser) -> Iterator[tuple[str, Parser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _items(parser: Parser) -> Iterator[Item]:
    formatter = parser._get_formatter()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
            continue
        text = formatter._expand_help(action) if action.help else ""
        value = str(action.metavar or action.dest) if not action.option_strings else ""
        if action.option_strings and action.nargs != 0:
            value = str(action.metavar or action.dest.upper())
        yield Item(tuple(action.option_strings), value, text)
