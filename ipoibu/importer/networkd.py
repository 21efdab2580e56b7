# SPDX-License-Identifier: BSD-2-Clause
"""Reads systemd-networkd's files of IPoIB interfaces: systemd.network(5), systemd.netdev(5)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import Final

from ipoibu.importer import draft
from ipoibu.importer.bonds import take_bond_option
from ipoibu.importer.draft import Draft, Note, Place, Reading, is_infiniband_name, other, switch
from ipoibu.importer.ini import Entry, read_entries

_SUFFIXES: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SECONDS: Final = {"": 1000, "s": 1000, "sec": 1000, "ms": 1, "msec": 1, "min": 60_000}
_GLOB: Final = re.compile(r"[*?\[!]")

_WITHOUT_EFFECT: Final = re.compile(
    r"NetDev\.(Name|Kind|Description)|Match\.(Name|Type|Kind|OriginalName)|Network\.(Description|IPoIB|"
    r"ConfigureWithoutCarrier|IgnoreCarrierLoss|KeepConfiguration|ActiveSlave)"
    r"|Link\.(RequiredForOnline|RequiredFamilyForOnline|Name|NamePolicy|AlternativeName(sPolicy)?"
    r"|MACAddressPolicy|Description|Alias|WakeOnLan)|IPoIB\.IgnoreUserspaceMulticastGroups"
)

_REASONS: Final = (
    (r"Network\.(DNS.+|LLMNR|MulticastDNS)", draft.RESOLVER),
    (r"Network\.NTP", "ipoibu sets no time servers"),
    (r"(DHCP.*|IPv6AcceptRA)\..*", draft.DHCP_OPTION),
    (r"Network\.(Bridge|VRF|VLAN|MACVLAN)", draft.SEVERAL_LINKS),
    (r"(Match\..*|NetDev\.MACAddress|Link\.MACAddress)", draft.BY_NAME_ONLY),
    (r"Link\.(ActivationPolicy|Unmanaged)", draft.START),
    (r"Route\.Metric", draft.METRIC),
    (r"Route\..*", draft.ROUTE_OPTION),
)


def read_networkd(path: Path, known: Collection[str] = ()) -> Reading:
    """Read a `.network`, `.netdev` or `.link` file with its drop-ins; `UsageError` if one is not readable.

    A `.network` or `.link` file is ours if it is one of an InfiniBand interface, or of one of the names
    `known`.
    """
    files = [path, *sorted(path.with_name(f"{path.name}.d").glob("*.conf"))]
    entries: list[Entry] = []
    notes: list[Note] = []
    for count, file in enumerate(files):
        more, faults = read_entries(file, continued=True)
        entries += [_numbered(each, count) for each in more]
        notes += faults
    made = Draft(Place(path), notes=notes)
    values = {(each.section, each.key): each.value for each in entries}
    names: list[str] = []
    if path.suffix == ".netdev":
        kind = values.get(("NetDev", "Kind"), "unknown")
        if kind not in ("ipoib", "bond"):
            return Reading(notes=[other(Place(path), f"a device of the kind {kind}, not ipoib")])
        made.is_bond = kind == "bond"
        made.name = values.get(("NetDev", "Name"), "")
    else:
        names = _match(made, entries)
        if not set(names) & set(known) and not _is_infiniband(made, names, values):
            why = "matches no InfiniBand interface: neither Type=infiniband nor a Name such as ib0"
            return Reading(notes=[other(Place(path), why)])
        made.name = next(iter(names), "")
    _read(made, entries)
    if path.suffix == ".link" and (new := values.get(("Link", "Name"), "")):
        made.aliases, made.name, names, made.patterns = {*names}, new, [], []
    return Reading([made, *(made.named(name) for name in names[1:])])


def place_patterns(reading: Reading, known: Collection[str] = ()) -> None:
    """Give each file that matches by patterns its interfaces among those of the other files and the names
    `known`; where there is none, it is one for an interface of its own."""
    for file in [each for each in reading.drafts if each.patterns]:
        named = [each for each in reading.drafts if each.name and each is not file]
        taken = {each.name for each in named if each.place.path.suffix == file.place.path.suffix}
        names = dict.fromkeys([*(each.name for each in named if not each.is_bond), *known])
        matched = [
            name
            for name in names
            if _matches(name, file.patterns) and name not in taken and name not in file.children
        ]
        if file.name:
            reading.drafts += [file.named(name) for name in matched]
        elif matched:
            file.name, *more = matched
            reading.drafts += [file.named(name) for name in more]
        elif file.place.path.suffix == ".link":
            reading.drafts.remove(file)
            reading.defaults += file.settings
            reading.notes += file.notes
        else:
            wanted = (f"ib{number}" for number in range(len(names) + 1))
            file.name = next((it for it in wanted if it not in names), "")
            text = " ".join(file.patterns)
            file.leave(
                file.place, f"{text}: a file of ipoibu is for one interface, here {file.name}"
            )
        file.patterns = []


def _matches(name: str, patterns: list[str]) -> bool:
    """Systemd's rule: a list that begins with ! excludes what it matches."""
    plain = [pattern.removeprefix("!") for pattern in patterns]
    is_match = any(fnmatchcase(name, pattern) for pattern in plain)
    return is_match != patterns[0].startswith("!")


def _numbered(entry: Entry, file: int) -> Entry:
    """Keep the sections of several files apart."""
    return Entry(entry.section, (file << 16) + entry.number, entry.key, entry.value, entry.place)


def _is_infiniband(made: Draft, names: list[str], values: Mapping[tuple[str, str], str]) -> bool:
    sections = {section for section, _ in values}
    types = (*values.get(("Match", "Type"), "").split(), *values.get(("Match", "Kind"), "").split())
    has_child = bool(values.get(("Network", "IPoIB")))
    all_names = (*names, *made.patterns, values.get(("Link", "Name"), ""))
    return (
        bool({"infiniband", "ipoib"} & set(types))
        or has_child
        or "IPoIB" in sections
        or any(is_infiniband_name(name) for name in all_names)
    )


def _match(made: Draft, entries: list[Entry]) -> list[str]:
    """The names that the file matches; its patterns become those of the draft."""
    words: list[str] = []
    for entry in entries:
        if entry.section == "Match" and entry.key in ("Name", "OriginalName"):
            words = [*words, *entry.value.split()] if entry.value else []
    if not words or words[0].startswith("!"):
        made.patterns = words or ["*"]
        return []
    made.patterns = [word for word in words if _GLOB.search(word)]
    return list(dict.fromkeys(word for word in words if not _GLOB.search(word)))


def _read(made: Draft, entries: list[Entry]) -> None:
    for _, group in groupby(entries, key=lambda each: each.number):
        section = list(group)
        if section[0].section == "Address":
            _read_address_section(made, section)
        elif section[0].section == "Route":
            _read_route_section(made, section)
        else:
            for entry in section:
                _read_entry(made, entry)


def _read_entry(made: Draft, entry: Entry) -> None:
    name = f"{entry.section}.{entry.key}"
    if name == "Network.Address" and not entry.value:
        made.remove(["address"])
    elif name == "Network.Gateway" and not entry.value:
        made.remove(["route"])
    elif entry.section == "Bond" and made.is_bond:
        _read_bond_option(made, entry)
    elif name in _KEYS:
        _KEYS[name](made, entry)
    elif not _WITHOUT_EFFECT.fullmatch(name):
        _leave(made, entry)


def _leave(made: Draft, entry: Entry) -> None:
    name = f"{entry.section}.{entry.key}"
    made.leave(entry.place, draft.reason(name, _REASONS))


def _read_address(made: Draft, entry: Entry) -> None:
    """An address. Without a length networkd 252 takes that of the class, later versions all bits."""
    usual = ", as of networkd 252; later versions have all bits"
    made.take_address(entry.value, "", entry.place, ipv6_bits=128, usual=usual)


def _read_gateway(made: Draft, entry: Entry) -> None:
    if entry.value == "_ipv6ra":
        made.leave(entry.place, draft.ADVERTISED)
    elif entry.value != "_dhcp4":  # the lease's routes come with it
        made.take_route("default", entry.value, entry.place)


def _read_address_section(made: Draft, section: list[Entry]) -> None:
    for entry in section:
        if entry.key == "Address" and entry.value:
            _read_address(made, entry)
        elif entry.key == "DuplicateAddressDetection":
            _read_detection(made, entry)
        elif entry.value:
            _leave(made, entry)


def _read_detection(made: Draft, entry: Entry) -> None:
    """The policy of one address; ours counts for all of a family."""
    words = {
        "ipv4": ("on", "off"),
        "ipv6": ("off", "on"),
        "both": ("on", "on"),
        "none": ("off", "off"),
    }
    if entry.value.lower() not in words:
        made.leave(entry.place, draft.UNKNOWN)
        return
    ipv4, ipv6 = words[entry.value.lower()]
    is_ipv6 = any(":" in text for text in made.texts("address")[-1:])
    made.take("dad-ipv6" if is_ipv6 else "dad-ipv4", ipv6 if is_ipv6 else ipv4, entry.place)


def _read_route_section(made: Draft, section: list[Entry]) -> None:
    values = {each.key: each.value for each in section if each.value}
    gateway = values.get("Gateway", "")
    network = values.get("Destination", "default")
    if gateway.startswith("_"):
        made.leave(
            section[0].place, draft.ADVERTISED if gateway == "_ipv6ra" else draft.DHCP_OPTION
        )
    elif network != "default" or gateway:
        place = next(each.place for each in section if each.key in ("Destination", "Gateway"))
        made.take_route(network, gateway, place)
    for entry in section:
        if entry.key not in ("Destination", "Gateway") and entry.value:
            _leave(made, entry)


def _read_dhcp(made: Draft, entry: Entry) -> None:
    value = entry.value.lower()
    if switch(value) or value == "ipv4":
        made.take_dhcp(entry.place)
    if switch(value) or value == "ipv6":
        made.take_dhcp6(entry.place)
    if switch(value) is None and value not in ("", "ipv4", "ipv6"):
        made.leave(entry.place, draft.UNKNOWN)


def _read_router_advertisements(made: Draft, entry: Entry) -> None:
    made.leave(entry.place, draft.ADVERTISED)


def _read_link_local(made: Draft, entry: Entry) -> None:
    if entry.value not in ("ipv6", "yes"):
        made.leave(entry.place, draft.LINK_LOCAL)


def _read_mtu(made: Draft, entry: Entry) -> None:
    """Bytes, or with a suffix of powers of 1024."""
    match = re.fullmatch(r"(\d{1,9})([KMG]?)", entry.value)
    bytes_ = str(int(match[1]) * _SUFFIXES[match[2]]) if match else entry.value
    made.take_mtu(bytes_, entry.place)


def _read_bond_option(made: Draft, entry: Entry) -> None:
    value = entry.value
    if entry.key.endswith("DelaySec") and (match := re.fullmatch(r"(\d{1,9})\s*([a-z]*)", value)):
        value = str(int(match[1]) * _SECONDS.get(match[2], 1000))
    take_bond_option(made, entry.key, value, entry.place)


def _read_bond(made: Draft, entry: Entry) -> None:
    made.controller = entry.value


def _read_primary(made: Draft, entry: Entry) -> None:
    if switch(entry.value):
        made.primary = made.name


def _read_client_id(made: Draft, entry: Entry) -> None:
    made.take_client_id(entry.value, entry.place)


def _read_host_name(made: Draft, entry: Entry) -> None:
    made.take("dhcp-host-name", entry.value, entry.place)


def _read_pkey(made: Draft, entry: Entry) -> None:
    if entry.value:
        made.take_pkey(entry.value, entry.place)


def _read_child(made: Draft, entry: Entry) -> None:
    made.children += entry.value.split()


def _read_all_multicast(made: Draft, entry: Entry) -> None:
    value = switch(entry.value)
    made.take(
        "allmulticast", entry.value if value is None else "on" if value else "off", entry.place
    )


_KEYS: Final[Mapping[str, Callable[[Draft, Entry], None]]] = {
    "NetDev.MTUBytes": _read_mtu,
    "IPoIB.PartitionKey": _read_pkey,
    "IPoIB.Mode": lambda made, entry: made.take_mode(entry.value, entry.place),
    "Link.MTUBytes": _read_mtu,
    "Link.AllMulticast": _read_all_multicast,
    "Network.Address": _read_address,
    "Network.Gateway": _read_gateway,
    "Network.DHCP": _read_dhcp,
    "Network.IPv6AcceptRA": _read_router_advertisements,
    "Network.LinkLocalAddressing": _read_link_local,
    "Network.IPoIB": _read_child,
    "Network.Bond": _read_bond,
    "Network.PrimarySlave": _read_primary,
    "Network.DNS": lambda made, entry: made.leave_servers(entry.value.split(), entry.place),
    "Network.Domains": lambda made, entry: made.leave_domains(entry.value.split(), entry.place),
    "DHCP.ClientIdentifier": _read_client_id,  # the section's name in older versions
    "DHCPv4.ClientIdentifier": _read_client_id,
    "DHCPv4.Hostname": _read_host_name,
}
