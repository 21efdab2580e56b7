# SPDX-License-Identifier: BSD-2-Clause
"""Reads ifcfg-ib0 and ifroute-ib0 of SUSE's wicked and netconfig: ifcfg(5), ifroute(5)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ipoibu.daemon.config.config_file import read_text
from ipoibu.importer import draft
from ipoibu.importer.bonds import take_bond_options
from ipoibu.importer.draft import Draft, Note, Place, Reading, is_infiniband_name, other, switch
from ipoibu.importer.shell_variables import Variable

PREFIX: Final = "ifcfg-"
ROUTES: Final = "ifroute-"
COMMON_ROUTES: Final = "routes"
DIRECTORY: Final = "/etc/sysconfig/network"

_OWN: Final = re.compile(
    r"STARTMODE|IPOIB(_\w+)?|IPADDR_\w+|PREFIXLEN\w*|ETHERDEVICE|INTERFACETYPE|LLADDR|USERCONTROL"
    r"|BONDING_SLAVE_?\d+|BONDING_MODULE_OPTS|DHCLIENT_\w+"
)
_WITHOUT_EFFECT: Final = re.compile(
    r"NAME|IPOIB|USERCONTROL|NETMASK\w*|PREFIXLEN\w*|BROADCAST\w*|NETWORK\w*|IPOIB_UMCAST|DEVICE|INTERFACETYPE"
    r"|LINK_REQUIRED|TYPE|BONDING_MASTER|FORCE_INTERFACES|IFPLUGD_PRIORITY|SCOPE\w*|REMOTE_IPADDR\w*"
)
_REASONS: Final = (
    (r"DHCLIENT.*|WRITE_HOSTNAME_TO_HOSTS", draft.DHCP_OPTION),
    (r"ZONE|FIREWALL", draft.FIREWALL),
    (r"LLADDR|ETHTOOL_OPTIONS", draft.BY_NAME_ONLY),
    (r"BRIDGE.*|TEAM.*|MASTER_DEVICE|OVS_.*", draft.SEVERAL_LINKS),
    (r"(PRE|POST)_(UP|DOWN)_SCRIPT", draft.COMMAND),
)


def is_suse(path: Path, values: Mapping[str, str]) -> bool:
    """Tell SUSE's file from Red Hat's, which has the same name, by its variables or its directory."""
    at_home = str(path.resolve()).startswith(f"{DIRECTORY}/")
    return at_home or any(
        _OWN.fullmatch(name) or (re.match(r"IPADDR", name) and "/" in value)
        for name, value in values.items()
    )


def read_suse(path: Path, variables: Mapping[str, Variable], notes: list[Note]) -> Reading:
    """Read the variables of a file, whose name says the interface, and the routes beside it."""
    name = path.name.removeprefix(PREFIX)
    values = {key: each.value for key, each in variables.items()}
    kind = (values.get("INTERFACETYPE") or values.get("TYPE", "")).lower()
    is_bond = bool(switch(values.get("BONDING_MASTER", "no")))
    has_mode = any(key.startswith("IPOIB") for key in values)
    if not (kind == "infiniband" or is_infiniband_name(name) or has_mode or is_bond):
        why = f"an interface of type {kind or 'unknown'}, not InfiniBand"
        words = f"{values.get('ETHERDEVICE', '')} {values.get('BRIDGE_PORTS', '')}".split()
        return Reading(notes=[other(Place(path), why, words)])
    made = Draft(Place(path), name, notes=notes, is_bond=is_bond)
    if child := re.fullmatch(r".+\.([0-9a-fA-F]{1,4})", name):  # wicked's rule: hexadecimal
        made.take_pkey(f"0x{child[1]}", Place(path))
    for variable in variables.values():
        if variable.value:
            _read(made, variable, values)
    routes = path.with_name(ROUTES + name)
    if routes.exists():
        _read_routes(made, routes, is_own=True)
    routes = path.with_name(COMMON_ROUTES)
    if routes.exists():
        _read_routes(made, routes, is_own=False)
    return Reading([made])


def _read(made: Draft, variable: Variable, values: Mapping[str, str]) -> None:
    name, value, place = variable.name, variable.value, variable.place
    if match := re.fullmatch(r"IPADDR(\w*)", name):
        suffix = match[1]
        length = values.get(f"PREFIXLEN{suffix}") or values.get(f"NETMASK{suffix}", "")
        made.take_address(value, length, place)
    elif re.fullmatch(r"GATEWAY\w*", name):
        made.take_route("default", value, place)
    elif name == "IPOIB_MODE":
        made.take_mode(value, place)
    elif name == "MTU":
        made.take_mtu(value, place)
    elif name == "BOOTPROTO":
        _read_protocol(made, value.lower(), place)
    elif name == "STARTMODE":
        if value.lower() in ("manual", "off"):
            made.leave(place, draft.START)
    elif name == "IPOIB_PKEY":
        made.take_pkey(value if value.lower().startswith("0x") else f"0x{value}", place)
    elif name in ("IPOIB_DEVICE", "ETHERDEVICE"):
        made.parent = value
    elif re.fullmatch(r"BONDING_SLAVE_?\d+", name):
        made.ports.append(value)
    elif name in ("BONDING_MODULE_OPTS", "BONDING_OPTS"):
        take_bond_options(made, value, place)
    elif name == "DHCLIENT_CLIENT_ID":
        made.take_client_id(value, place)
    elif name == "DHCLIENT_HOSTNAME_OPTION":
        _read_host_name(made, variable)
    elif not _WITHOUT_EFFECT.fullmatch(name):
        made.leave(place, draft.reason(name, _REASONS))


def _read_host_name(made: Draft, variable: Variable) -> None:
    if variable.value.upper() != "AUTO":
        made.take("dhcp-host-name", variable.value, variable.place)


def _read_protocol(made: Draft, value: str, place: Place) -> None:
    for word in value.split("+"):
        if word in ("dhcp", "dhcp4"):
            made.take_dhcp(place)
        if word in ("dhcp", "dhcp6"):
            made.take_dhcp6(place)
        if word == "autoip":
            made.leave(place, "ipoibu has no addresses of 169.254.0.0/16 by itself")
        elif word not in ("static", "none", "dhcp", "dhcp4", "dhcp6"):
            made.leave(place, draft.UNKNOWN)


def _read_routes(made: Draft, path: Path, *, is_own: bool) -> None:
    """DESTINATION GATEWAY NETMASK INTERFACE, each of which may be `-`. A file that is not `is_own` has the
    routes of all interfaces, of which one without a name is that of its gateway."""
    for number, line in enumerate(read_text(path).split("\n"), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        network, gateway, netmask, interface, *more = [*words, *"---"[len(words) - 1 :]]
        place = Place(path, number)
        is_ours = is_own or _reaches(made, gateway)
        if interface != made.name and not (interface == "-" and is_ours):
            continue
        if netmask != "-" and "/" not in network:
            network += f"/{netmask.lstrip('/')}"
        made.take_route(network, "" if gateway == "-" else gateway, place)
        if more and more != ["-"]:
            made.leave(place, draft.ROUTE_OPTION)


def _reaches(made: Draft, gateway: str) -> bool:
    """Return whether a network of the interface has the gateway."""
    try:
        address = ipaddress.ip_address(gateway)
    except ValueError:
        return False
    networks = (text for text in made.texts("address") if "/" in text)
    return any(address in ipaddress.ip_interface(text).network for text in networks)
