# SPDX-License-Identifier: BSD-2-Clause
"""The options of `ipoibu.daemon.config.options` as arguments of `up`, `lab` and `child add`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ipoibu.cli.log_format import start_log
from ipoibu.daemon.config.options import options_of

if TYPE_CHECKING:
    from ipoibu.daemon.config.interface_config import InterfaceConfig


def add_options(parser: argparse.ArgumentParser, command: str) -> None:
    for option in options_of(command):
        parser.add_argument(
            f"--{option.name}",
            metavar=option.metavar,
            help=option.help,
            action="append" if option.several else "store",
            nargs="?" if option.alone is not None else None,
            const=option.alone,
        )


def add_interface(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe an interface: those of `up`, and --config."""
    add_options(parser, "up")
    parser.add_argument(
        "--config", metavar="FILE", type=Path, help="TOML file with the same keys as these options"
    )


def interface(
    name: str, options: argparse.Namespace, default_device: Callable[[], str | None] = lambda: None
) -> InterfaceConfig:
    """Return the configuration of the interface `name`, and begin to log as it says.

    Call this before pyverbs, which would configure the root logger, is imported.
    """
    from ipoibu.daemon.config.interface_config import InterfaceConfig

    texts = given(options, "up")
    if "device" not in texts and options.config is None:
        device = default_device()
        texts |= {"device": device} if device is not None else {}
    config = InterfaceConfig.build(name, texts, options.config)
    config.check_surroundings()
    start_log(config.logging_level, name)
    return config


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
