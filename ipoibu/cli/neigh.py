# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu neigh`: the neighbours of interfaces, in the format of `ip neigh`, and changes to them.

`ip neigh` has no effect on a TUN, so the changes have the words of `ip neigh`, which people know.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from ipoibu.base.errors import UsageError
from ipoibu.cli.view import Answers, add_view, viewer

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser

USAGE: Final = """ipoibu neigh [-j] [--watch [SECONDS]] [NAME]
       ipoibu neigh add|replace IP lladdr HWADDR dev NAME [nud permanent]
       ipoibu neigh del IP dev NAME
       ipoibu neigh flush dev NAME [nud permanent]
       ipoibu neigh add|del proxy IP|NET|routes dev NAME
       ipoibu neigh [-j] show [proxy] [[dev] NAME]"""
_CHANGES: Final = ("add", "replace", "del", "flush")
_KEYWORDS: Final = {
    "add": ("lladdr", "dev", "nud"),
    "replace": ("lladdr", "dev", "nud"),
    "del": ("dev",),
    "flush": ("dev", "nud"),
    "proxy": ("dev",),
    "show": ("dev",),
}


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = add_view(commands, "neigh", "show and change neighbours", text, data)
    parser.usage = USAGE
    parser.epilog = (
        "`add` and `replace` set permanent entries, which no message and no time changes; `flush` keeps"
        " them without `nud permanent`. `add proxy` has the interface answer for the hosts of a network"
        " that the kernel routes to another interface, as the option --proxy does."
    )
    parser.add_argument(
        "words", metavar="WORD", nargs="*", help="a change, in the words of `ip neigh`"
    )
    show = parser.get_default("run")
    show_proxies = viewer("proxies", proxy_text, data)

    def run(options: argparse.Namespace) -> int:
        if options.name in _CHANGES:
            _change(options.name, options.words)
            return 0
        if options.name == "show":
            if options.words[:1] == ["proxy"]:
                return int(show_proxies(_shown(options, options.words[1:])))
            return int(show(_shown(options, options.words)))
        if options.words:
            raise UsageError(
                f"neigh {options.name}: unexpected {options.words[0]!r}; changes are {', '.join(_CHANGES)}"
            )
        return int(show(options))

    parser.set_defaults(run=run)


def _shown(options: argparse.Namespace, words: list[str]) -> argparse.Namespace:
    """The options of `ipoibu neigh NAME`, for `show dev NAME` or `show NAME`."""
    if len(words) == 1 and words != ["dev"]:
        words = ["dev", *words]
    name = _keywords("show", words).get("dev")
    return argparse.Namespace(**{**vars(options), "name": name, "words": []})


def _change_proxy(action: str, words: list[str]) -> None:
    from ipoibu.daemon.config.parsers import parse_proxy
    from ipoibu.daemon.control.client import Client

    text, *rest = words or [""]
    parse_proxy(text)
    given = _keywords("proxy", rest)
    if "dev" not in given:
        raise UsageError(f"neigh {action} proxy: 'dev' is missing")
    with Client(given["dev"]) as client:
        client.request(f"proxy-{action}", proxy=text)


def _change(action: str, words: list[str]) -> None:
    if words[:1] == ["proxy"] and action in ("add", "del"):
        _change_proxy(action, words[1:])
        return
    from ipoibu.base.addr import HwAddr
    from ipoibu.daemon.config.parsers import parse_ip
    from ipoibu.daemon.control.client import Client

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


def proxy_text(answers: Answers) -> str:
    return "\n".join(
        f"{entry['proxy']} dev {entry['dev']} proxy {entry['origin']}" for entry in data(answers)
    )


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
