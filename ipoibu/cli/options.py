# SPDX-License-Identifier: BSD-2-Clause
"""The options of `ipoibu.daemon.options` as arguments of `up`, `lab` and `child add`."""

from __future__ import annotations

import argparse

from ipoibu.daemon.options import options_of


def add_options(parser: argparse.ArgumentParser, command: str) -> None:
    for option in options_of(command):
        parser.add_argument(
            f"--{option.name}",
            metavar=option.metavar,
            help=option.help,
            action="append" if option.several else "store",
        )


def given(options: argparse.Namespace, command: str) -> dict[str, str | list[str]]:
    """Return the texts of the given options, by name."""
    arguments = vars(options)
    texts = {each.name: arguments[each.name.replace("-", "_")] for each in options_of(command)}
    return {name: text for name, text in texts.items() if text is not None}


def as_arguments(texts: dict[str, str | list[str]]) -> list[str]:
    """Return `--NAME=TEXT` for each option, for another command line."""
    return [
        f"--{name}={text}"
        for name, value in texts.items()
        for text in ([value] if isinstance(value, str) else value)
    ]
