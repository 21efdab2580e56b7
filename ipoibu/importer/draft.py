# SPDX-License-Identifier: BSD-2-Clause
"""The settings of one interface in a file of another program, as texts of our options."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from ipoibu.base.addr import PKey
from ipoibu.base.errors import UsageError
from ipoibu.daemon.config.options import BY_NAME

# Why ipoibu leaves a setting of another program out
UNKNOWN: Final = "ipoibu has no such setting"
RESOLVER: Final = "ipoibu sets no name servers: tell resolvectl, or write /etc/resolv.conf"
DHCP_OPTION: Final = "ipoibu's DHCP client has no such setting"
ADVERTISED: Final = (
    "the kernel follows router advertisements as its sysctl accept_ra says; ipoibu does not set it"
)
LINK_LOCAL: Final = "the interface has an IPv6 link-local address wherever its MTU permits IPv6"
START: Final = "`systemctl enable ipoibu@NAME` decides whether the interface starts at boot"
FIREWALL: Final = "assign the interface to its zone in the firewall's own configuration"
BY_NAME_ONLY: Final = "ipoibu finds no port by this: `device` names it"
METRIC: Final = "a route of ipoibu has no metric"
ROUTE_OPTION: Final = "a route of ipoibu has a network and a gateway alone"
SEVERAL_LINKS: Final = "an interface of ipoibu belongs to no bridge, team or VRF"
COMMAND: Final = "`ipoibu import` runs no commands: see whether the interface needs it"

_NUMBER_DIGITS_MAX: Final = 16


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """The place of a setting: the file, the line (from 1; 0 for the whole file) and the key."""

    path: Path
    line: int = 0
    key: str = ""

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line else f"{self.path}"
        return f"{where}: {self.key}" if self.key else where


@dataclass(frozen=True, slots=True, order=True)
class Note:
    """A setting that the result does not have, and the reason."""

    place: Place
    why: str
    is_loss: bool = True  # else it says what else the files have, such as interfaces of Ethernet

    def __str__(self) -> str:
        return " ".join(f"{self.place}: {self.why}".split())


@dataclass(frozen=True, slots=True)
class Setting:
    """The text of one of our options, and where it comes from."""

    option: str
    text: str
    place: Place


@dataclass(slots=True)
class Draft:
    """One interface. `name` is empty if the file names none; `parent` is the parent's name or one of
    its `aliases`, empty for an interface that is no child (a child by `is_child` has one that its file does
    not name); `children` are names of children.

    A bond (`is_bond`) has the names of its `ports` and of the `primary` one, as far as its file has them; a
    port has the name of its bond, `controller`. `joined` are the drafts of a bond's ports. `patterns` are
    those of networkd that match the interface; they begin with "!" to exclude those that match. `sources`
    are the places of several drafts that became this one.
    """

    place: Place
    name: str = ""
    pkey: PKey | None = None
    parent: str = ""
    is_child: bool = False
    aliases: set[str] = field(default_factory=set)
    children: list[str] = field(default_factory=list)
    is_bond: bool = False
    ports: list[str] = field(default_factory=list)
    primary: str = ""
    controller: str = ""
    joined: list[Draft] = field(default_factory=list)
    sources: list[Place] = field(default_factory=list)
    patterns: list[str] = field(default_factory=list)
    settings: list[Setting] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def take(self, option: str, text: str, place: Place) -> bool:
        """Take over a value if the option accepts its text; leave it with the reason otherwise."""
        try:
            BY_NAME[option].read(text)
        except UsageError as error:
            self.leave(place, str(error))
            return False
        self.settings.append(Setting(option, text, place))
        return True

    def take_address(
        self,
        text: str,
        netmask: str,
        place: Place,
        *,
        ipv6_bits: int = 64,
        usual: str = "; see whether that is right",
    ) -> None:
        """Take an address with its length, or else with a netmask or length, or else with that of its class,
        of which a note says what is `usual`."""
        if "/" in text:
            self.take("address", text, place)
            return
        try:
            if ":" in text:
                length = int(netmask or ipv6_bits)
            else:
                length = prefix_length(netmask) if netmask else default_prefix_length(text)
        except ValueError:
            self.leave(place, f"{netmask or text!r} is no length or netmask of an address")
            return
        if self.take("address", f"{text}/{length}", place) and not netmask:
            self.leave(place, f"no prefix length: it is /{length} here{usual}")

    def take_pkey(self, text: str, place: Place) -> None:
        """Take a P_Key, with the bit of full membership, which the kernel's ib_ipoib sets as well."""
        number = whole_number(text)
        if number is None or number > 0xFFFF or number & 0x7FFF == 0:
            self.leave(place, f"{text!r} is no P_Key")
        else:
            self.pkey = PKey(number).full

    def take_mtu(self, text: str, place: Place) -> None:
        """Take an MTU, unless it is the other program's word for "the default"."""
        if text not in ("", "0", "auto"):
            self.take("mtu", text, place)

    def take_dhcp(self, place: Place) -> None:
        """Take an IPv4 address from DHCP."""
        self.take("address", "dhcp", place)

    def take_dhcp6(self, place: Place) -> None:
        """Take an IPv6 address from DHCPv6."""
        self.take("address", "dhcp6", place)

    def take_mode(self, text: str, place: Place) -> None:
        self.take("mode", text.lower(), place)

    def take_route(self, network: str, gateway: str, place: Place) -> bool:
        """Take a route, whose network may have host bits; an empty or zero gateway is none."""
        try:
            network = network if network == "default" else plain_network(network)
        except ValueError:
            self.leave(place, f"{network!r} is no network")
            return False
        has_gateway = gateway not in ("", "0.0.0.0", "::")
        return self.take("route", f"{network},via={gateway}" if has_gateway else network, place)

    def take_client_id(self, text: str, place: Place, *, is_text: bool = False) -> None:
        """Take who a client of DHCP says that it is: the hardware address, a DUID, or bytes. With `is_text`
        any other text stands for its own bytes, as NetworkManager has it."""
        words = dict.fromkeys(("mac", "perm-mac", "ll"), "guid")
        words |= dict.fromkeys(("duid", "ipv6-duid", "iaid+duid"), "duid")
        word = words.get(text.lower(), "")
        if not word and not re.fullmatch(r"[0-9A-Fa-f]{1,2}(:[0-9A-Fa-f]{1,2})+", text):
            if not is_text or text.lower() in ("stable", "none"):
                self.leave(place, f"{text!r} is no client identifier here: see dhcp-client-id")
                return
            text = ":".join(f"{byte:02x}" for byte in b"\0" + text.encode())
        form = word or ":".join(byte.zfill(2) for byte in text.split(":"))
        self.take("dhcp-client-id", form, place)
        if word == "duid":
            self.leave(place, "the DUID is of the port's GUID here, and not of the machine")

    def named(self, name: str) -> Draft:
        """A copy for another interface that the same file describes."""
        notes, settings, children = list(self.notes), list(self.settings), list(self.children)
        return replace(
            self,
            name=name,
            aliases=set(),
            patterns=[],
            notes=notes,
            settings=settings,
            children=children,
        )

    def leave_servers(self, servers: Iterable[str], place: Place) -> None:
        """Leave the name servers, with the command that sets them."""
        if words := " ".join(servers):
            self.leave(place, f"{RESOLVER}: `resolvectl dns {self.name or 'NAME'} {words}`")

    def leave_domains(self, domains: Iterable[str], place: Place) -> None:
        if words := " ".join(domains):
            self.leave(place, f"{RESOLVER}: `resolvectl domain {self.name or 'NAME'} {words}`")

    def leave(self, place: Place, why: str) -> None:
        self.notes.append(Note(place, why))

    def remove(self, options: Iterable[str]) -> None:
        """Forget what was taken for these options."""
        self.settings = [each for each in self.settings if each.option not in set(options)]

    def texts(self, option: str) -> list[str]:
        return [each.text for each in self.settings if each.option == option]


def reason(key: str, reasons: Iterable[tuple[str, str]]) -> str:
    """Return why a setting stays behind, by the first pattern that its key matches."""
    return next((why for pattern, why in reasons if re.fullmatch(pattern, key)), UNKNOWN)


def other(place: Place, why: str, words: Iterable[str] = ()) -> Note:
    """What belongs to no interface of ours; it is lost if one of its `words` is the name of one."""
    used = sorted({word for word in words if is_infiniband_name(word)})
    if used:
        return Note(place, f"{why}: {SEVERAL_LINKS} ({', '.join(used)})")
    return Note(place, why, is_loss=False)


@dataclass(slots=True)
class Reading:
    """The contents of files: interfaces, the settings of all interfaces that have none of their own, and what
    belongs to no interface."""

    drafts: list[Draft] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    defaults: list[Setting] = field(default_factory=list)

    def add(self, other: Reading) -> None:
        self.drafts += other.drafts
        self.notes += other.notes
        self.defaults += other.defaults


def is_infiniband_name(name: str) -> bool:
    """Return whether the name alone says InfiniBand: ib0, ibp1s0, mlx5_ib0, mlx5_ib0.8001."""
    return bool(re.match(r"ib|mlx\d*_?ib|mthca|hfi\d", name))


def whole_number(text: str) -> int | None:
    """Read a number as C does: 0x8001, decimal, or octal with a leading 0; None for anything else."""
    if not text.isascii() or not text[:1].isdigit() or len(text) > _NUMBER_DIGITS_MAX:
        return None
    try:
        return int(text, 8) if text.isdigit() and len(text) > 1 and text[0] == "0" else int(text, 0)
    except ValueError:
        return None


def plain_network(text: str) -> str:
    """Return the network in CIDR form without host bits; `ValueError` if the text is none."""
    return str(ipaddress.ip_network(text, strict=False))


def prefix_length(netmask: str) -> int:
    """Read a length, or a netmask with dots; `ValueError` for anything else."""
    return ipaddress.ip_network(f"0.0.0.0/{netmask}").prefixlen


def default_prefix_length(address: str) -> int:
    """The length that the class of an IPv4 address implies, as ipcalc and NetworkManager have it."""
    first = int(address.partition(".")[0])
    return 8 if first < 128 else 16 if first < 192 else 24


def switch(text: str) -> bool | None:
    """Read a boolean of any of the programs; None for anything else."""
    words: dict[str, bool] = dict.fromkeys(("1", "yes", "y", "true", "t", "on"), True)
    words |= dict.fromkeys(("0", "no", "n", "false", "f", "off"), False)
    return words.get(text.lower())
