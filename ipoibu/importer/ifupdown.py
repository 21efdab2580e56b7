# SPDX-License-Identifier: BSD-2-Clause
"""Reads interfaces(5) of ifupdown and its successors, with the files that it includes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from ipoibu.base.errors import UsageError
from ipoibu.daemon.config.config_file import read_text
from ipoibu.importer import draft
from ipoibu.importer.bonds import take_bond_option
from ipoibu.importer.commands import take_command
from ipoibu.importer.draft import Draft, Note, Place, Reading, is_infiniband_name, other

DIRECTORY: Final = Path("/etc/network")
BEGINNING: Final = re.compile(
    r"^\s*(auto|allow-\S+|iface|mapping|source(-directory)?)\s+\S", re.MULTILINE
)

_FILES_MAX: Final = 256
_DEPTH_MAX: Final = 8

_WITHOUT_EFFECT: Final = re.compile(
    r"netmask|broadcast|network|scope|pointopoint|inherits|bond[-_](master|slaves)|slaves|preferred-lifetime"
    r"|accept_ra|autoconf|dad-interval|ipv6-addrgen|request_prefix"
)
_REASONS: Final = (
    (r"metric", draft.METRIC),
    (r"hwaddress", draft.BY_NAME_ONLY),
    (r"lease(hours|time)|vendor|udhcpc_opts|ll-.*|enable-dhcpv6|dhcp-.*", draft.DHCP_OPTION),
    (r"bridge[-_].*|vrf(-.*)?|team-.*", draft.SEVERAL_LINKS),
)


@dataclass(slots=True)
class _Stanza:
    """`iface NAME FAMILY METHOD`, and its options in order."""

    place: Place
    name: str
    family: str
    method: str
    inherits: str = ""
    options: list[tuple[str, str, Place]] = field(default_factory=list)

    def values(self, pattern: str) -> list[str]:
        return [value for key, value, _ in self.options if re.fullmatch(pattern, key)]


class _Files:
    """The stanzas of a file and of those that it includes."""

    def __init__(self) -> None:
        self.stanzas: list[_Stanza] = []
        self.started: set[str] = set()
        self.notes: list[Note] = []
        self._read: set[Path] = set()

    def read(self, path: Path, depth: int = 0) -> None:
        if path.resolve() in self._read or len(self._read) >= _FILES_MAX:
            return
        self._read.add(path.resolve())
        stanza: _Stanza | None = None
        is_other = False  # within a stanza of another kind
        for line, text in _lines(path):
            word, _, rest = text.partition(" ")
            place, rest = Place(path, line, word), rest.strip()
            if word in ("source", "source-directory"):
                stanza, is_other = None, False
                self._include(path, rest, place, depth, is_directory=word != "source")
            elif word == "auto" or word.startswith("allow-"):
                stanza, is_other = None, False
                self.started.update(rest.split())
            elif word == "iface":
                stanza = self._begin(rest.split(), Place(path, line))
            elif word in ("mapping", "template", "rename"):
                stanza, is_other = None, True
                self.notes.append(Note(place, draft.UNKNOWN))
            elif word in ("no-auto-down", "no-scripts"):
                stanza, is_other = None, False
            elif stanza is not None:
                stanza.options.append((word, rest, place))
            elif not is_other:
                self.notes.append(Note(place, draft.UNKNOWN))

    def starts(self, name: str) -> bool:
        """Return whether the interface starts at boot, or when it appears."""
        patterns = (text.removeprefix("/") for text in self.started)
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    def _begin(self, words: list[str], place: Place) -> _Stanza:
        """`NAME [FAMILY METHOD] [inherits OTHER]`"""
        name, *rest = words or [""]
        inherits = ""
        if "inherits" in rest:
            at = rest.index("inherits")
            inherits = " ".join(rest[at + 1 : at + 2])
            rest = rest[:at]
        family, method, *_ = [*rest, "inet", "static"] if len(rest) < 2 else rest
        made = _Stanza(place, name, family, method, inherits)
        self.stanzas.append(made)
        return made

    def _include(
        self, path: Path, pattern: str, place: Place, depth: int, *, is_directory: bool
    ) -> None:
        """Read the files that a pattern names. /etc/network is where this file is, also of a copy."""
        relative = Path(pattern)
        if relative.is_absolute() and relative.is_relative_to(DIRECTORY):
            relative = relative.relative_to(DIRECTORY)
        base = path.parent.parent if path.parent.name == "interfaces.d" else path.parent
        parts = f"{relative}/*" if is_directory else str(relative)
        if relative.is_absolute():
            base, parts = Path("/"), parts.lstrip("/")
        if depth >= _DEPTH_MAX:
            self.notes.append(Note(place, "files include each other"))
            return
        try:
            found = sorted(base.glob(parts))
        except (ValueError, NotImplementedError, OSError):
            found = []
        for each in found:
            if not each.is_file() or (is_directory and not re.fullmatch(r"[\w-]+", each.name)):
                continue
            try:
                self.read(each, depth + 1)
            except UsageError as error:
                self.notes.append(Note(place, str(error)))


def read_interfaces(path: Path) -> Reading:
    """Read a file of ifupdown; `UsageError` if it is not readable."""
    files = _Files()
    files.read(path)
    reading = Reading(notes=files.notes)
    by_name = {stanza.name: stanza for stanza in files.stanzas}
    ports = {port for each in files.stanzas for port in _ports(each)}
    masters = {value for each in files.stanzas for value in each.values(r"bond[-_]master")}
    foreign: set[str] = set()
    for stanza in files.stanzas:
        name = stanza.name.partition(":")[0]
        keys = " ".join(key for key, _, _ in stanza.options)
        is_port = bool(re.search(r"\bbond[-_]master\b", keys))
        has_ports = bool(re.search(r"\b(bond[-_](slaves|mode)|slaves)\b", keys))
        is_bond = not is_port and (has_ports or name in masters)
        if not (is_infiniband_name(name) or name in ports or is_bond or _is_infiniband(stanza)):
            if name != "lo" and name not in foreign:
                foreign.add(name)
                words = [word for _, value, _ in stanza.options for word in value.split()]
                why = f"{name}: no InfiniBand interface"
                reading.notes.append(other(stanza.place, why, words))
            continue
        made = Draft(stanza.place, name, is_bond=is_bond)
        made.ports += _ports(stanza) if is_bond else []
        children: list[Draft] = []
        is_started = files.starts(name) or files.starts(stanza.name) or made.is_bond
        if not is_started and name not in ports:
            made.leave(stanza.place, draft.START)
        _read(made, children, stanza, by_name)
        reading.drafts += [made, *children]
    return reading


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines with their numbers, without comments; a backslash at the end joins two."""
    start, joined = 0, ""
    for number, raw in enumerate(read_text(path).split("\n"), 1):
        start = start if joined else number
        text = raw.strip()
        if text.startswith("#") and not joined:
            continue
        if text.endswith("\\"):
            joined += f"{text[:-1]} "
            continue
        if whole := re.sub(r"\s+", " ", joined + text).strip():
            yield start, whole
        joined = ""


def _ports(stanza: _Stanza) -> list[str]:
    """The ports of a bond that the stanza names; of its bond, if it is one itself."""
    found: list[str] = []
    for key, value, _ in stanza.options:
        if re.fullmatch(r"bond[-_]slaves|slaves", key) and value != "none":
            found += value.split()
        elif re.fullmatch(r"bond[-_]master", key):
            found.append(stanza.name)
    return found


def _is_infiniband(stanza: _Stanza) -> bool:
    words = " ".join(value for _, value, _ in stanza.options)
    return bool(re.search(r"ib_ipoib|create_child|type ipoib|echo (connected|datagram)", words))


def _read(made: Draft, children: list[Draft], stanza: _Stanza, by_name: dict[str, _Stanza]) -> None:
    options = list(stanza.options)
    seen = {stanza.name}
    name = stanza.inherits
    while name and name not in seen and name in by_name:
        seen.add(name)
        options += by_name[name].options
        name = by_name[name].inherits
    _read_method(made, stanza)
    netmask = next((value for key, value, _ in options if key == "netmask"), "")
    for key, value, place in options:
        _read_option(made, children, key, value, place, netmask=netmask)


def _read_method(made: Draft, stanza: _Stanza) -> None:
    place = Place(stanza.place.path, stanza.place.line, f"{stanza.family} {stanza.method}")
    if stanza.method == "dhcp" and stanza.family == "inet":
        made.take_dhcp(place)
    elif stanza.method == "dhcp" and stanza.family == "inet6":
        made.take_dhcp6(place)
    elif stanza.method == "auto" and stanza.family == "inet6":
        made.leave(place, draft.ADVERTISED)
    elif stanza.method not in ("static", "manual") or stanza.family not in ("inet", "inet6"):
        made.leave(place, draft.UNKNOWN)


def _read_option(
    made: Draft,
    children: list[Draft],
    key: str,
    value: str,
    place: Place,
    *,
    netmask: str,
) -> None:
    if key == "address":
        made.take_address(value, netmask, place)
    elif key == "gateway":
        made.take_route("default", value, place)
    elif key == "mtu":
        made.take_mtu(value, place)
    elif key in ("pre-up", "up", "post-up", "down", "pre-down", "post-down"):
        take_command(made, children, value, place, is_start=key.endswith("up"))
    elif key in ("dns-nameservers", "dns-nameserver"):
        made.leave_servers(value.split(), place)
    elif key in ("dns-search", "dns-domain"):
        made.leave_domains(value.split(), place)
    elif key == "hostname":
        made.take("dhcp-host-name", value, place)
    elif key in ("client", "client-id", "clientid"):
        made.take_client_id(value, place)
    elif key == "dad-attempts":
        made.take("dad-ipv6", "off" if value == "0" else "on", place)
    elif key in ("mode", "ipoib-mode", "infiniband-mode"):
        made.take_mode(value, place)
    elif key in ("pkey", "ipoib-pkey"):
        made.take_pkey(value, place)
    elif re.fullmatch(r"bond[-_]master", key):
        made.controller = value
    elif re.match(r"bond[-_](?!slaves)", key):
        _read_bond(made, key, value, place)
    elif not _WITHOUT_EFFECT.fullmatch(key):
        made.leave(place, draft.reason(key, _REASONS))


def _read_bond(made: Draft, key: str, value: str, place: Place) -> None:
    """`bond-primary` stands at the bond, or at each port with all of their names."""
    if made.is_bond:
        take_bond_option(made, key, value, place)
    elif not re.fullmatch(r"bond[-_](primary|mode|miimon)", key):
        made.leave(place, draft.UNKNOWN)
