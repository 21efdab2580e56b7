#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Write the manual pages ipoibu(1), ipoibu.toml(5) and ipoibu(7) into a directory.

docs/make/man_pages.py DIRECTORY

The first comes from the parser of the command line, the second from the table of options, the third
from README.md and docs/use/service.md.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import roff
from command_line import Command, Item, commands

from ipoibu.cli.parser import build
from ipoibu.daemon.config.options import OPTIONS, Option

ROOT: Final = Path(__file__).parents[2]
SEE_ALSO: Final = (
    "ipoibu(1)",
    "ipoibu.toml(5)",
    "ipoibu(7)",
    "systemctl(1)",
    "ip(8)",
    "tcpdump(8)",
)

# The sections of the pages that make ipoibu(7)
CHAPTERS: Final = (
    ("README.md", "Why"),
    ("README.md", "A first look"),
    ("README.md", "Features"),
    ("docs/use/service.md", "The service"),
    ("docs/use/service.md", "Limits"),
)


def pages() -> dict[str, str]:
    """The text of each page by its file's name."""
    made = {
        "ipoibu.1": ("IP over InfiniBand in user space", _commands()),
        "ipoibu.toml.5": ("configuration of an IPoIB interface", _options()),
        "ipoibu.7": ("IP over InfiniBand as a data path in user space", _overview()),
    }
    return {name: _page(name, summary, list(body)) for name, (summary, body) in made.items()}


def _page(file: str, summary: str, body: list[str]) -> str:
    name, _, number = file.rpartition(".")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    others = [each for each in SEE_ALSO if each != f"{name}({number})"]
    lines = [
        f'.TH {name.upper()} {number} "" "ipoibu {version}"',
        ".nh",
        ".ad l",
        roff.section("Name"),
        f"{roff.escape(name)} \\- {roff.escape(summary)}",
        *body,
        roff.section("See also"),
        ", ".join(f"{roff.bold(each[:-3])}{each[-3:]}" for each in others),
    ]
    return "\n".join(lines) + "\n"


def _commands() -> Iterator[str]:
    parser = build()
    yield roff.section("Synopsis")
    yield f"{roff.bold('ipoibu')} {roff.italic('COMMAND')} [{roff.italic('ARGUMENT')} ...]"
    yield roff.section("Description")
    yield roff.escape(
        "ipoibu makes IP over InfiniBand interfaces in user space, and shows and changes those that run."
    )
    yield "ipoibu(7) introduces it."
    yield roff.section("Commands")
    for command in list(commands(parser))[1:]:
        yield from _command(command)
    yield roff.section("Exit status")
    for code, meaning in re.findall(r"(\d) ([^,.]+)", parser.epilog or ""):
        yield from roff.item(code, f"{meaning[:1].upper()}{meaning[1:]}.")
    yield roff.section("Environment")
    yield from roff.item(
        roff.bold("IPOIBU_RUNTIME_DIR"), "The directory of the control sockets of interfaces."
    )
    yield from roff.item(
        roff.bold("IPOIBU_TRACEBACK"), "With 1, an error also shows where it comes from."
    )
    yield roff.section("Files")
    yield from roff.item(
        roff.italic("/etc/ipoibu/NAME.toml"),
        "The configuration that the service `ipoibu@NAME` reads: ipoibu.toml(5).",
    )
    yield from roff.item(roff.italic("/run/ipoibu"), "The control sockets of root's interfaces.")


def _command(command: Command) -> Iterator[str]:
    """A command with its options and arguments."""
    yield roff.subsection(command.name)
    yield f"{roff.bold(command.name)} {roff.escape(command.usage)}"
    for text in command.texts:
        yield ".PP"
        yield roff.inline(text)
    for item in command.items:
        yield from roff.item(_head(item), item.text)


def _head(item: Item) -> str:
    """The option with its value, or the name of the argument."""
    names = ", ".join(roff.bold(name) for name in item.names)
    return " ".join(part for part in (names, roff.italic(item.value) if item.value else "") if part)


def _options() -> Iterator[str]:
    yield roff.section("Synopsis")
    yield roff.italic("/etc/ipoibu/NAME.toml")
    yield roff.section("Description")
    yield from roff.markdown(
        "A TOML file with the configuration of one interface. `ipoibu up NAME --config FILE` and the"
        " service `ipoibu@NAME` read it. Its keys are the options of `ipoibu up` without dashes in front;"
        " an option on the command line wins over the file. An option that may be repeated is a list.\n\n"
        "A table `[child.P_KEY]` makes a child in another partition that comes up with the interface."
        " It has its parent's values, except where an option says otherwise; its key `name` is its name,"
        " where that is not the parent's with the P_Key (ib0.8001). `ipoibu config check FILE` lists the"
        " faults of a file."
    )
    yield roff.section("Options")
    for option in OPTIONS:
        yield from roff.item(
            f"{roff.bold(option.name)} = {roff.italic(option.metavar)}", _text(option)
        )
    yield roff.section("Example")
    service = (ROOT / "docs/use/service.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```toml\n(.*?)^```", service, re.MULTILINE | re.DOTALL)
    yield from roff.literal(example.rstrip("\n").split("\n"))


def _text(option: Option) -> str:
    facts = [f"{option.help[:1].upper()}{option.help[1:]}."]
    if option.several:
        facts.append("A list.")
    if "child" in option.commands:
        facts.append("Also for a child.")
    elif not option.is_inherited:
        facts.append("A child does not inherit it.")
    return " ".join([*facts, f"Example: `{option.example}`"])


def _overview() -> Iterator[str]:
    yield roff.section("Description")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    yield from roff.markdown(readme.partition("\n## ")[0].partition("\n")[2])
    for file, title in CHAPTERS:
        content = (ROOT / file).read_text(encoding="utf-8")
        (chapter,) = re.findall(rf"^## {title}\n.*?(?=^## |\Z)", content, re.MULTILINE | re.DOTALL)
        yield from roff.markdown(chapter.replace(".venv/bin/", ""))
    yield roff.section("Documentation")
    yield ".PP"
    yield "The pages named here are in /usr/share/doc/ipoibu or in the source."


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    directory = Path(arguments[0])
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (directory / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
