#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Write docs/reference/options.md from the table of options, `ipoibu/daemon/config/options.py`.

docs/make/list_options.py            write the file
docs/make/list_options.py --check    exit 1 if the file is not what would be written
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Final

from generated_page import write_or_check

from ipoibu.daemon.config.options import OPTIONS, Option

PAGE: Final = Path(__file__).parents[1] / "reference/options.md"
COLUMNS: Final = 100

INTRODUCTION: Final = """\
# Options of an interface

`docs/make/list_options.py` writes this page from the table in `ipoibu/daemon/config/options.py`; a
test fails when the page and the table differ.

`ipoibu up NAME` takes all of these options. `--config FILE` reads them from a TOML file whose keys
are the options' names without dashes in front; an option on the command line wins over the file. An
option that may be repeated is a list in the file. A child interface (`ipoibu child add`) has its
parent's values, except where an option says otherwise.

A table `[child.P_KEY]` of the file, such as `[child.0x8001]`, makes a child that comes up with the
interface. Its keys are the options of `ipoibu child add`, which are marked below, and `name`: the
child's name, where it is not the parent's with the P_Key (ib0.8001). `ipoibu config check FILE`
lists the faults of a file ([service.md](../use/service.md)).
"""

CLASSES: Final = {
    "endpoint": "EndpointConfig",
    "mesh": "MeshOptions",
    "dhcp": "DhcpConfig",
    "ethernet": "EthernetConfig",
}
COMMANDS: Final = {"lab": "`ipoibu lab` (for every host)", "child": "`ipoibu child add`"}


def page() -> str:
    """The whole file."""
    return "\n".join([INTRODUCTION, *(_section(option) for option in OPTIONS)])


def _section(option: Option) -> str:
    return (
        f"## `--{option.name} {option.metavar}`\n\n"
        f"{_paragraph(_sentence(option.help))}\n\n"
        f"```toml\n{option.name} = {_toml(option)}\n```\n\n"
        f"{_paragraph(' '.join(_facts(option)))}\n"
    )


def _facts(option: Option) -> list[str]:
    facts = []
    if option.several:
        facts.append("May be repeated.")
    commands = [COMMANDS[command] for command in option.commands if command != "up"]
    if commands:
        facts.append(f"Also an option of {' and '.join(commands)}.")
    if not option.is_inherited:
        facts.append("A child does not inherit it.")
    part, _, name = option.field.rpartition(".")
    facts.append(f"In Python: `{CLASSES[part]}.{name}`." if part else "Not for embedding.")
    return facts


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _toml(option: Option) -> str:
    value = option.example if option.example.isdigit() else f'"{option.example}"'
    return f"[{value}]" if option.several else value


def _paragraph(text: str) -> str:
    return textwrap.fill(text, COLUMNS, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page, __doc__ or "", sys.argv[1:]))
