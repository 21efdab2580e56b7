# SPDX-License-Identifier: BSD-2-Clause
"""Understands the commands of shell that people write into configuration files for IPoIB interfaces."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ipoibu.importer import draft
from ipoibu.importer.draft import Draft, Place, plain_network, prefix_length

_QUIET: Final = re.compile(r"\s*(\|\|\s*(true|:)|2?>>?\s*(/dev/null|&1)|&>\s*/dev/null|;)\s*$")
_GUARD: Final = re.compile(r"^(\[\[?\s[^&|;]*?\]\]?|test\s[^&|;]*?)\s*(\|\||&&)\s*")
_SYSFS: Final = re.compile(
    r"(?:/bin/|/usr/bin/)?echo\s+['\"]?(?P<value>[^\s'\">|]+)['\"]?\s*(?:>|\|\s*(?:sudo\s+)?tee(?:\s+-a)?)\s*"
    r"['\"]?/sys/class/net/(?P<name>[^/\s]+)/(?P<file>\w+)['\"]?(?:\s*>\s*/dev/null)?"
)
_WITHOUT_EFFECT: Final = re.compile(
    r"true|:|exit 0|sleep [0-9.]+|(/sbin/|/usr/sbin/)?(modprobe(\s+-\S+)*(\s+(ib_\w+|mlx\w+|rdma_\w+))+"
    r"|ip(\s+-\S+)*\s+link\s+(set\s+(dev\s+)?\S+\s+(up|down)|del(ete)?(\s+dev)?\s+\S+)"
    r"|ifconfig\s+\S+\s+(up|down)|ip(\s+-\S+)*\s+(route|addr(ess)?)\s+(del(ete)?|flush)\s.*|route\s+del\s.*)"
)


def take_command(
    made: Draft, children: list[Draft], text: str, place: Place, *, is_start: bool
) -> None:
    """Take over what a command does to the interface, as far as we know it; add the children that it makes.
    With `is_start` it runs before or after the interface comes up, and else when it ends."""
    command = text
    for _ in range(4):
        command = _GUARD.sub("", _QUIET.sub("", command).strip())
        if wrapped := re.fullmatch(r"(/bin/)?(ba)?sh\s+-c\s+(['\"])(.*)\3", command):
            command = wrapped[4]
    command = re.sub(r"\$(\{IFACE\}|IFACE\b)", made.name, command.strip())
    pieces = re.split(r"\s*(?:&&|;)\s*", command) if not re.search("['\"|]", command) else []
    if len(pieces) > 1:
        for piece in pieces:
            take_command(made, children, piece, place, is_start=is_start)
        return
    if not command:
        return
    if match := _SYSFS.fullmatch(command):
        if is_start:
            _take_sysfs(made, children, match, place)
        return
    if _WITHOUT_EFFECT.fullmatch(command):
        return
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    if is_start and words and not re.search(r"[;&|<>`$]", command):
        name = words[0].rpartition("/")[2]
        rest = [word for word in words[1:] if not word.startswith("-")]
        for (program, *start), take in _COMMANDS.items():
            if name != program or not _begins(rest, start):
                continue
            if take(made, children, rest[len(start) :], place):
                return
    made.leave(place, f"{draft.COMMAND} ({text[:60]})")


def _begins(words: Sequence[str], start: Sequence[str]) -> bool:
    return len(words) >= len(start) and all(
        re.fullmatch(pattern, word) for pattern, word in zip(start, words, strict=False)
    )


def _take_sysfs(made: Draft, children: list[Draft], match: re.Match[str], place: Place) -> None:
    name, file, value = match["name"], match["file"], match["value"]
    if file == "mode" and name in (made.name, *made.ports):
        made.take_mode(value, place)
    elif file == "mtu" and name in (made.name, *made.ports):
        made.take_mtu(value, place)
    elif file == "create_child":
        child = Draft(place, parent=name)
        child.take_pkey(value if value.lower().startswith("0x") else f"0x{value}", place)
        if child.pkey is not None:
            child.name = child.pkey.child_of(name)
            children.append(child)
        made.notes += child.notes
    elif file not in ("umcast", "delete_child"):
        made.leave(place, f"{draft.COMMAND} ({match[0][:60]})")


def _take_route(made: Draft, children: list[Draft], words: Sequence[str], place: Place) -> bool:
    """`ip route add NETWORK via GATEWAY dev NAME`"""
    return take_route_words(made, words, place)


def take_route_words(made: Draft, words: Sequence[str], place: Place) -> bool:
    """Take the words of `ip route add`; return whether they name a network."""
    network, gateway, left = "", "", []
    rest = iter(words)
    for word in rest:
        if word == "via":
            gateway = next(rest, "")
        elif word == "dev":
            next(rest, "")  # this interface
        elif not network and word not in ("to", "unicast"):
            network = word
        elif network:
            left += [word, next(rest, "")]
    if gateway in ("inet", "inet6"):
        made.leave(place, draft.ROUTE_OPTION)
        return True
    if network == "default" and not gateway:
        network = "0.0.0.0/0"
    elif network != "default" and "/" not in network:
        network = _host(network)
    if not made.take_route(network, gateway, place):
        return True
    for name in left[::2]:
        why = draft.METRIC if name in ("metric", "preference") else draft.ROUTE_OPTION
        made.leave(Place(place.path, place.line, name), why)
    return True


def _take_old_route(made: Draft, children: list[Draft], words: Sequence[str], place: Place) -> bool:
    """`route add -net NETWORK netmask MASK gw GATEWAY`, whose options have lost their dashes."""
    network, *rest = words or [""]
    options = dict(zip(rest[::2], rest[1::2], strict=False))
    if set(options) - {"netmask", "gw", "dev", "metric"}:
        return False
    if "netmask" in options:
        try:
            network += f"/{prefix_length(options['netmask'])}"
        except ValueError:
            return False
    elif network != "default" and "/" not in network:
        network = _host(network)
    made.take_route(network, options.get("gw", ""), place)
    if "metric" in options:
        made.leave(place, draft.METRIC)
    return True


def _take_link(made: Draft, children: list[Draft], words: Sequence[str], place: Place) -> bool:
    """`ip link set [dev] NAME mtu N type ipoib mode MODE`"""
    rest = [word for word in words if word not in ("dev", "up")]
    name, *pairs = rest or [""]
    options = dict(zip(pairs[::2], pairs[1::2], strict=False))
    if name not in (made.name, *made.ports) or len(pairs) % 2:
        return False
    if set(options) - {"mtu", "type", "mode", "umcast"} or options.get("type", "ipoib") != "ipoib":
        return False
    if "mtu" in options:
        made.take_mtu(options["mtu"], place)
    if "mode" in options:
        made.take_mode(options["mode"], place)
    return True


def _take_mtu(made: Draft, children: list[Draft], words: Sequence[str], place: Place) -> bool:
    """`ifconfig NAME mtu N`"""
    return _take_link(made, children, words, place)


def _take_address(made: Draft, children: list[Draft], words: Sequence[str], place: Place) -> bool:
    """`ip address add CIDR dev NAME`"""
    if len(words) >= 3 and words[1:3] == ["dev", made.name]:
        made.take("address", words[0], place)
        for word in words[3::2]:
            made.leave(Place(place.path, place.line, word), draft.UNKNOWN)
        return True
    return False


def _take_child(made: Draft, children: list[Draft], words: Sequence[str], place: Place) -> bool:
    """`ip link add link PARENT name NAME type ipoib pkey P_KEY mode MODE`"""
    options = dict(zip(words[::2], words[1::2], strict=False))
    if options.get("type") != "ipoib" or "link" not in options or "name" not in options:
        return False
    child = made
    if options["name"] != made.name:
        child = Draft(place, options["name"])
        children.append(child)
    child.parent = options["link"]
    if "pkey" in options:
        child.take_pkey(options["pkey"], place)
    if "mode" in options:
        child.take_mode(options["mode"], place)
    return True


def _host(text: str) -> str:
    try:
        return plain_network(text)
    except ValueError:
        return text


_Take = Callable[[Draft, list[Draft], Sequence[str], Place], bool]

_COMMANDS: Final[Mapping[tuple[str, ...], _Take]] = {
    ("ip", "r(oute|o)?", "add|replace|append"): _take_route,
    ("ip", "l(ink)?", "set"): _take_link,
    ("ip", "l(ink)?", "add"): _take_child,
    ("ip", "a(ddr(ess)?)?", "add|replace"): _take_address,
    ("ifconfig",): _take_mtu,
    ("route", "add"): _take_old_route,
}
