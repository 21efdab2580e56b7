# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu neigh`: the neighbours of interfaces, in the format of `ip neigh`, and changes to them.

`ip neigh` has no effect on a TUN, so the changes have the words of `ip neigh`, which people know.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from ipoibu.cli.view import Answers, add_view
from ipoibu.errors import UsageError

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser

USAGE: Final = """ipoibu neigh [-j] [--watch [SECONDS]] [NAME]
       ipoibu neigh add|replace IP lladdr HWADDR dev NAME [nud permanent]
       ipoibu neigh del IP dev NAME
       ipoibu neigh flush dev NAME [nud permanent]"""
_CHANGES: Final = ("add", "replace", "del", "flush")
_KEYWORDS: Final = {
    "add": ("lladdr", "dev", "nud"),
    "replace": ("lladdr", "dev", "nud"),
    "del": ("dev",),
    "flush": ("dev", "nud"),
}


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = add_view(commands, "neigh", "show and change neighbours", text, data)
    parser.usage = USAGE
    parser.epilog = (
        "`add` and `replace` set permanent entries, which no message and no time changes; `flush` keeps"
        " them without `nud permanent`."
    )
    parser.add_argument(
        "words", metavar="WORD", nargs="*", help="a change, in the words of `ip neigh`"
    )
    show = parser.get_default("run")

    def run(options: argparse.Namespace) -> int:
        if options.name in _CHANGES:
            _change(options.name, options.words)
            return 0
        if options.words:
            raise UsageError(
                f"neigh {options.name}: unexpected {options.words[0]!r}; changes are {', '.join(_CHANGES)}"
            )
        return int(show(options))

    parser.set_defaults(run=run)


def _change(action: str, words: list[str]) -> None:
    from ipoibu.addr import HwAddr
    from ipoibu.daemon.client import Client
    from ipoibu.daemon.parsers import parse_ip

    rest = list(words)
    ip = "" if action == "flush" else str(parse_ip(rest.pop(0) if rest else ""))
    given = _keywords(action, rest)
    if given.get("nud", "permanent") != "permanent":
        raise UsageError(f"neigh {action}: nud {given['nud']!r}: only permanent entries can be set")
    with_hwaddr = action in ("add", "replace")
    for keyword in ("dev", "lladdr") if with_hwaddr else ("dev",):
        if keyword not in given:
            raise UsageError(f"neigh {action}: {keyword!r} is missing")
    if with_hwaddr:
        hwaddr = str(HwAddr.parse(given["lladdr"]))
    with Client(given["dev"]) as client:
        if with_hwaddr:
            client.request("neigh-set", ip=ip, lladdr=hwaddr, replaces=action == "replace")
        elif action == "del":
            client.request("neigh-del", ip=ip)
        else:
            client.request("neigh-flush", permanent="nud" in given)


def _keywords(action: str, words: list[str]) -> dict[str, str]:
    """Read pairs of a keyword and its value."""
    given: dict[str, str] = {}
    for keyword, value in zip(words[::2], [*words[1::2], ""], strict=False):
        if keyword not in _KEYWORDS[action]:
            expected = ", ".join(_KEYWORDS[action])
            raise UsageError(f"neigh {action}: {keyword!r} is none of {expected}")
        if not value or keyword in given:
            raise UsageError(f"neigh {action}: {keyword!r} needs one value")
        given[keyword] = value
    return given


def data(answers: Answers) -> list[dict[str, Any]]:
    return [{"dev": name, **entry} for name, entries in answers for entry in entries]


def text(answers: Answers) -> str:
    return "\n".join(_entry(entry) for entry in data(answers))


def _entry(entry: dict[str, Any]) -> str:
    fields = [f"{entry['ip']} dev {entry['dev']}"]
    if entry["hwaddr"] is not None:
        fields.append(f"lladdr {entry['hwaddr']}")
    if entry["underlay"] is not None:
        fields.append(f"underlay {entry['underlay']}")
    if entry["router"]:
        fields.append("router")
    fields.append(f"{entry['state'].upper()} age {entry['age_s']:.1f}s")
    if entry["pending"]:
        fields.append(f"pending {entry['pending']}")
    return " ".join(fields)
