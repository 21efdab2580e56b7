# SPDX-License-Identifier: BSD-2-Clause
"""Reads NetworkManager's keyfiles of `type=infiniband`: nm-settings-keyfile(5)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ipoibu.importer import draft
from ipoibu.importer.bonds import take_bond_option
from ipoibu.importer.draft import Draft, Place, Reading, other, switch
from ipoibu.importer.ini import Entry, read_entries

TYPE: Final = "infiniband"

# Settings with no effect on the interface, or with the one that ipoibu has anyway
_WITHOUT_EFFECT: Final = re.compile(
    r"connection\.(id|uuid|type|timestamp|permissions|autoconnect-priority|autoconnect-retries"
    r"|read-only|interface-name|slave-type|port-type)"
    r"|ipv[46]\.(may-fail|gateway|method|never-default)|ipv6\.addr-gen-mode|proxy\..*|user\..*"
)

_REASONS: Final = (
    (r"ipv[46]\.(dns-.*|ignore-auto-dns)|connection\.(mdns|llmnr|dns-over-tls)", draft.RESOLVER),
    (r"ipv[46]\.(dhcp-.*|ignore-auto-routes)", draft.DHCP_OPTION),
    (r"connection\.zone", draft.FIREWALL),
    (r"connection\.(master|controller)", draft.SEVERAL_LINKS),
    (r"infiniband\.mac-address|match\..*", draft.BY_NAME_ONLY),
    (r"ipv[46]\.route-metric", draft.METRIC),
)


def read_keyfile(path: Path) -> Reading:
    """Read one file; `UsageError` if it is not readable."""
    entries, notes = read_entries(path, continued=False)
    values = {(each.section, each.key): each.value for each in entries}  # the last one counts
    kind = values.get(("connection", "type"), "")
    if kind not in (TYPE, "bond"):
        why = f"a connection of type {kind or 'unknown'}, not {TYPE}"
        return Reading(notes=[other(Place(path), why, [values.get((kind, "parent"), "")])])
    made = Draft(Place(path), notes=notes, name=values.get(("connection", "interface-name"), ""))
    made.is_bond = kind == "bond"
    port_type = values.get(("connection", "port-type")) or values.get(("connection", "slave-type"))
    if port_type == "bond":
        key = "controller" if ("connection", "controller") in values else "master"
        made.controller = values.get(("connection", key), "")
    made.aliases = {values.get(("connection", name), "") for name in ("uuid", "id")} - {""}
    for entry in entries:
        _read(made, entry)
    for family in ("ipv4", "ipv6"):
        _read_gateway(made, entries, family)
    return Reading([made])


def _read(made: Draft, entry: Entry) -> None:
    is_link = entry.section == "infiniband" or f"{entry.section}.{entry.key}" == "ethernet.mtu"
    if is_link and entry.key in _LINK:
        _LINK[entry.key](made, entry)
        return
    if entry.section in ("ipv4", "ipv6"):
        for pattern, read in _ADDRESSING.items():
            if re.fullmatch(pattern, entry.key):
                read(made, entry)
                return
    if entry.section == "bond" and made.is_bond:
        take_bond_option(made, entry.key, entry.value, entry.place)
        return
    name = f"{entry.section}.{entry.key}"
    if name in ("connection.controller", "connection.master") and made.controller:
        return
    if name == "connection.autoconnect" and switch(entry.value):
        return
    if name == "connection.autoconnect":
        made.leave(entry.place, draft.START)
    elif not _WITHOUT_EFFECT.fullmatch(name):
        made.leave(entry.place, draft.reason(name, _REASONS))


def _read_pkey(made: Draft, entry: Entry) -> None:
    if entry.value not in ("", "-1", "default"):
        made.take_pkey(entry.value, entry.place)


def _read_parent(made: Draft, entry: Entry) -> None:
    made.parent = entry.value


def _read_method(made: Draft, entry: Entry) -> None:
    is_ipv4 = entry.section == "ipv4"
    if made.controller:  # a port of a bond has no addresses
        return
    if entry.value == "auto" and is_ipv4:
        made.take_dhcp(entry.place)
    elif entry.value == "auto":
        made.leave(entry.place, draft.ADVERTISED)
    elif entry.value == "dhcp" and not is_ipv4:
        made.take_dhcp6(entry.place)
    elif entry.value == "disabled" and not is_ipv4:
        made.leave(entry.place, draft.LINK_LOCAL)
    elif entry.value not in ("manual", "ignore", "disabled") and (
        is_ipv4 or entry.value != "link-local"
    ):
        made.leave(entry.place, draft.UNKNOWN)


def _read_address(made: Draft, entry: Entry) -> None:
    """ADDRESS/LENGTH, and in `address1` the default gateway after a comma."""
    address, *more = _parts(entry.value)
    made.take("address", address, entry.place)
    if more[1:]:
        made.leave(entry.place, draft.UNKNOWN)


def _read_route(made: Draft, entry: Entry) -> None:
    """NETWORK/LENGTH[,GATEWAY[,METRIC]]"""
    network, gateway, metric, *_ = [*_parts(entry.value), "", "", ""]
    made.take_route(network, gateway, entry.place)
    if metric not in ("", "0"):
        made.leave(entry.place, draft.METRIC)


def _read_dad(made: Draft, entry: Entry) -> None:
    """Milliseconds of probes: none, or an address that we use once they found no other owner."""
    if entry.section == "ipv4" and entry.value != "-1":
        made.take("dad-ipv4", "off" if entry.value == "0" else "on", entry.place)


def _read_client_id(made: Draft, entry: Entry) -> None:
    if entry.section == "ipv4" and entry.value:
        made.take_client_id(entry.value, entry.place, is_text=True)
    elif entry.value:
        made.leave(entry.place, draft.DHCP_OPTION)


def _read_host_name(made: Draft, entry: Entry) -> None:
    made.take("dhcp-host-name", entry.value, entry.place)


def _read_send_host_name(made: Draft, entry: Entry) -> None:
    if switch(entry.value) is False:
        made.leave(entry.place, draft.DHCP_OPTION)


def _words(entry: Entry) -> list[str]:
    return [word for word in re.split(r"[,;\s]+", entry.value) if word]


def _leave_route_options(made: Draft, entry: Entry) -> None:
    made.leave(entry.place, draft.ROUTE_OPTION)


def _read_gateway(made: Draft, entries: list[Entry], family: str) -> None:
    """The default route: `gateway`, or what follows the first address that has one."""
    own = [each for each in entries if each.section == family]
    never = any(each.key == "never-default" and switch(each.value) for each in own)
    for entry in own:
        if entry.key == "gateway":
            gateway = entry.value
        elif re.fullmatch(r"address(es)?\d+", entry.key):
            gateway = [*_parts(entry.value), ""][1]
        else:
            continue
        if gateway in ("", "0.0.0.0", "::"):
            continue
        if never:
            made.leave(entry.place, "never-default: NetworkManager makes no default route here")
        else:
            made.take_route("default", gateway, entry.place)
        return


def _parts(value: str) -> list[str]:
    """The fields of an address or a route, which commas, semicolons or blanks separate; also before
    the length, in files of NetworkManager 0.9."""
    parts = [part.strip() for part in re.split(r"[,;\s]", value.rstrip(";"))]
    if "/" not in parts[0] and parts[1:] and parts[1].isdigit():
        parts = [f"{parts[0]}/{parts[1]}", *parts[2:]]
    return parts


_LINK: Final[Mapping[str, Callable[[Draft, Entry], None]]] = {
    "mtu": lambda made, entry: made.take_mtu(entry.value, entry.place),
    "transport-mode": lambda made, entry: made.take_mode(entry.value, entry.place),
    "p-key": _read_pkey,
    "parent": _read_parent,
}

_ADDRESSING: Final[Mapping[str, Callable[[Draft, Entry], None]]] = {
    "method": _read_method,
    r"address(es)?\d*": _read_address,
    r"routes?\d+": _read_route,
    r"routes?\d+_options": _leave_route_options,
    "dad-timeout": _read_dad,
    "dns": lambda made, entry: made.leave_servers(_words(entry), entry.place),
    "dns-search": lambda made, entry: made.leave_domains(_words(entry), entry.place),
    "dhcp-client-id": _read_client_id,
    "dhcp-hostname": _read_host_name,
    "dhcp-send-hostname": _read_send_host_name,
}
