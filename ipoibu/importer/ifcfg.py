# SPDX-License-Identifier: BSD-2-Clause
"""Reads ifcfg-ib0, route-ib0 and route6-ib0 of Red Hat's network-scripts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ipoibu.base.addr import PKey
from ipoibu.daemon.config.config_file import read_text
from ipoibu.importer import draft
from ipoibu.importer.bonds import take_bond_options
from ipoibu.importer.commands import take_route_words
from ipoibu.importer.draft import (
    Draft,
    Note,
    Place,
    Reading,
    default_prefix_length,
    is_infiniband_name,
    other,
    prefix_length,
    switch,
)
from ipoibu.importer.shell_variables import Variable, read_variables
from ipoibu.importer.suse import is_suse, read_suse

PREFIX: Final = "ifcfg-"
ROUTES: Final = ("route-", "route6-")
RULES: Final = ("rule-", "rule6-")

_WITHOUT_EFFECT: Final = re.compile(
    r"TYPE|DEVICE|NAME|UUID|USERCTL|NM_CONTROLLED|PKEY|IPV6INIT|IPV[46]_FAILURE_FATAL"
    r"|BROADCAST|NETWORK|MASTER(_UUID)?|SLAVE|BONDING_MASTER|AUTOCONNECT_PRIORITY|PROXY_METHOD|BROWSER_ONLY|IPV6_ADDR_GEN_MODE"
    r"|(PREFIX|NETMASK|GATEWAY)\d*"
)

_REASONS: Final = (
    (r"RES_OPTIONS|PEERDNS|IPV6_PEERDNS|MDNS|LLMNR", draft.RESOLVER),
    (r"DHCP.*|PERSISTENT_DHCLIENT|PEERROUTES|IPV6_PEERROUTES|PEERNTP", draft.DHCP_OPTION),
    (r"ZONE", draft.FIREWALL),
    (r"BRIDGE(_UUID)?|TEAM_MASTER.*|VRF(_UUID)?", draft.SEVERAL_LINKS),
    (r"HWADDR|MACADDR", draft.BY_NAME_ONLY),
    (r"METRIC|IPV[46]_ROUTE_METRIC", draft.METRIC),
)


def read_ifcfg(path: Path) -> Reading:
    """Read one file `ifcfg-NAME` and the routes beside it; `UsageError` if one is not readable."""
    notes: list[Note] = []
    variables = {each.name: each for each in read_variables(path, notes)}
    values = {name: each.value for name, each in variables.items()}
    name = values.get("DEVICE") or path.name.removeprefix(PREFIX)
    kind = values.get("TYPE", "")
    is_bond = _is_bond(name, kind, values)
    if is_suse(path, values):
        return read_suse(path, variables, notes)
    if kind.lower() != "infiniband" and not is_bond and (kind or not is_infiniband_name(name)):
        why = f"an interface of type {kind or 'unknown'}, not InfiniBand"
        return Reading(notes=[other(Place(path), why, [values.get("PHYSDEV", "")])])
    made = Draft(Place(path), name, notes=notes, is_bond=is_bond)
    made.controller = values.get("MASTER") or values.get("MASTER_UUID", "")
    made.aliases = {values.get("UUID", ""), values.get("NAME", "")} - {""}
    if switch(values.get("PKEY", "no")):
        made.parent, made.is_child = values.get("PHYSDEV", ""), True
        if not made.parent and path.name != PREFIX + name and "." not in name:
            made.parent = name  # DEVICE is the parent's
        if made.parent and "DEVICE" not in values and PKey.of_name(name) is None:
            made.aliases.add(name)
            made.name = ""  # the kernel's
        if "PKEY_ID" in variables:
            made.take_pkey(values["PKEY_ID"], variables["PKEY_ID"].place)
    for variable in variables.values():
        _read(made, variable, variables)
    for prefix in ROUTES:
        routes = path.with_name(prefix + path.name.removeprefix(PREFIX))
        if routes.exists():
            _read_routes(made, routes)
    for prefix in RULES:
        rules = path.with_name(prefix + path.name.removeprefix(PREFIX))
        if rules.exists():
            made.leave(Place(rules), "ipoibu makes no routing rules: use `ip rule`")
    return Reading([made])


def _is_bond(name: str, kind: str, values: Mapping[str, str]) -> bool:
    """Tell a bond by its type, its options, or in older files by its name."""
    is_master = bool(switch(values.get("BONDING_MASTER", "no"))) or "BONDING_OPTS" in values
    return kind.lower() == "bond" or is_master or (not kind and name.startswith("bond"))


def _read(made: Draft, variable: Variable, variables: dict[str, Variable]) -> None:
    name, value, place = variable.name, variable.value, variable.place
    if not value or _read_host_setting(made, variable):
        return
    if match := re.fullmatch(r"IPADDR(\d*)", name):
        _read_ipv4(made, variable, match[1], variables)
    elif re.fullmatch(r"GATEWAY\d*|IPV6_DEFAULTGW", name):
        _read_gateway(made, variable, variables)
    elif name in ("IPV6ADDR", "IPV6ADDR_SECONDARIES"):
        _read_ipv6(made, variable)
    elif name == "BONDING_OPTS":
        take_bond_options(made, value, place)
    elif name == "CONNECTED_MODE":
        made.take_mode("connected" if switch(value) else "datagram", place)
    elif name == "MTU":
        made.take_mtu(value, place)
    elif name in ("BOOTPROTO", "DHCPV6C"):
        _read_protocol(made, variable)
    elif name in ("PKEY_ID", "PHYSDEV", "ONBOOT"):
        _read_start(made, variable, variables)
    elif name in ("IPV6_AUTOCONF", "IPV6FORWARDING"):
        made.leave(place, draft.ADVERTISED if name == "IPV6_AUTOCONF" else draft.UNKNOWN)
    elif name in ("DEFROUTE", "IPV6_DEFROUTE"):
        pass  # GATEWAY asks for it
    elif name in ("ARPING_WAIT", "ACD_TIMEOUT"):
        made.take("dad-ipv4", "off" if value == "0" else "on", place)
    elif not _WITHOUT_EFFECT.fullmatch(name):
        made.leave(place, draft.reason(name, _REASONS))


def _read_protocol(made: Draft, variable: Variable) -> None:
    value = variable.value
    if variable.name == "DHCPV6C":
        if switch(value):
            made.take_dhcp6(variable.place)
    elif value.lower() in ("dhcp", "bootp"):
        made.take_dhcp(variable.place)
    elif value.lower() not in ("none", "static"):
        made.leave(variable.place, draft.UNKNOWN)


def _read_start(made: Draft, variable: Variable, variables: dict[str, Variable]) -> None:
    """Say why the interface does not start here, or not as the partition that it names."""
    if variable.name == "ONBOOT":
        if not switch(variable.value):
            made.leave(variable.place, draft.START)
    elif not switch(variables["PKEY"].value if "PKEY" in variables else "no"):
        made.leave(variable.place, "it has no effect without PKEY=yes")


def _read_host_setting(made: Draft, variable: Variable) -> bool:
    """Name servers, and what a client of DHCP says; return whether it was one of them."""
    name, value, place = variable.name, variable.value, variable.place
    if re.fullmatch(r"DNS\d+", name):
        made.leave_servers([value], place)
    elif name in ("DOMAIN", "SEARCH"):
        made.leave_domains(value.split(), place)
    elif name == "DHCP_CLIENT_ID":
        made.take_client_id(value, place, is_text=True)
    elif name == "DHCP_HOSTNAME":
        made.take("dhcp-host-name", value, place)
    else:
        return name == "DHCP_SEND_HOSTNAME" and bool(switch(value))
    return True


def _read_ipv4(
    made: Draft, variable: Variable, number: str, variables: dict[str, Variable]
) -> None:
    """IPADDRn with PREFIXn, or NETMASKn, or else the length of its class."""
    length = variables.get(f"PREFIX{number}") or variables.get(f"NETMASK{number}")
    try:
        if length is None:
            bits = default_prefix_length(variable.value)
        else:
            bits = prefix_length(length.value)
    except ValueError:
        made.leave((length or variable).place, f"{(length or variable).value!r} is no IPv4 prefix")
        return
    made.take("address", f"{variable.value}/{bits}", variable.place)


def _read_ipv6(made: Draft, variable: Variable) -> None:
    for text in variable.value.split():
        made.take("address", text if "/" in text else f"{text}/64", variable.place)


def _read_gateway(made: Draft, variable: Variable, variables: dict[str, Variable]) -> None:
    switch_name = "IPV6_DEFROUTE" if variable.name.startswith("IPV6") else "DEFROUTE"
    if switch_name in variables and switch(variables[switch_name].value) is False:
        made.leave(variable.place, f"{switch_name}=no: the gateway has no effect")
    else:
        made.take_route("default", variable.value.partition("%")[0], variable.place)


def _read_routes(made: Draft, path: Path) -> None:
    """Routes as words of `ip route`, or as ADDRESSn, NETMASKn and GATEWAYn."""
    notes: list[Note] = []
    content = read_text(path)
    if re.search(r"^\s*ADDRESS\d+=", content, re.MULTILINE):
        variables = {each.name: each for each in read_variables(path, notes)}
        made.notes += notes
        _read_numbered_routes(made, variables)
        return
    for number, line in enumerate(content.split("\n"), 1):
        words = line.partition("#")[0].split()
        if words:
            take_route_words(made, words, Place(path, number))


def _read_numbered_routes(made: Draft, variables: dict[str, Variable]) -> None:
    for name, variable in variables.items():
        match = re.fullmatch(r"(ADDRESS|NETMASK|GATEWAY|METRIC|OPTIONS)(\d+)", name)
        if match is None:
            made.leave(variable.place, draft.UNKNOWN)
        elif match[1] == "ADDRESS":
            netmask = variables.get(f"NETMASK{match[2]}")
            gateway = variables.get(f"GATEWAY{match[2]}")
            network = f"{variable.value}/{netmask.value if netmask else 32}"
            made.take_route(network, gateway.value if gateway else "", variable.place)
        elif match[1] in ("METRIC", "OPTIONS"):
            is_metric = match[1] == "METRIC"
            made.leave(variable.place, draft.METRIC if is_metric else draft.ROUTE_OPTION)
