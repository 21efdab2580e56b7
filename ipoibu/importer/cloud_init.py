# SPDX-License-Identifier: BSD-2-Clause
"""Reads the first version of cloud-init's network configuration; the second one is netplan's."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ipoibu.importer import draft
from ipoibu.importer.bonds import take_bond_option
from ipoibu.importer.draft import Draft, Note, Reading, is_infiniband_name, other, prefix_length
from ipoibu.importer.yaml_nodes import fields_of, items_of, place_of, text_of, texts_of, words_of

_WITHOUT_EFFECT: Final = ("type", "name", "subnets", "keep_configuration", "bond_interfaces")
_DHCP6: Final = ("dhcp6", "ipv6_dhcpv6-stateful")


def read_version_1(path: Path, node: Any) -> Reading:
    """Read the list `config`."""
    reading = Reading()
    others: list[Any] = []
    for item in items_of(node):
        own = fields_of(item)
        kind, name = text_of(own.get("type")), text_of(own.get("name"))
        is_infiniband = kind == "infiniband" or (kind == "physical" and is_infiniband_name(name))
        if is_infiniband or kind == "bond":
            made = Draft(place_of(path, item, ""), name, is_bond=kind == "bond")
            _read(made, own)
            reading.drafts.append(made)
        else:
            others.append(item)
    by_name = {each.name: each for each in reading.drafts}
    for item in others:
        _read_other(path, item, by_name, reading)
    return reading


def _read(made: Draft, own: dict[str, Any]) -> None:
    path = made.place.path
    for item in items_of(own.get("subnets")):
        _read_subnet(made, item)
    made.ports += texts_of(own.get("bond_interfaces"))
    for key, node in own.items():
        place, text = place_of(path, node, key), text_of(node)
        if key == "mtu":
            made.take_mtu(text, place)
        elif key == "mac_address":
            made.leave(place, draft.BY_NAME_ONLY)
        elif key == "accept-ra":
            made.leave(place, draft.ADVERTISED)
        elif key == "params" and made.is_bond:
            for name, value in fields_of(node).items():
                option = place_of(path, value, f"params.{name}")
                take_bond_option(made, name, ",".join(texts_of(value)), option)
        elif key not in _WITHOUT_EFFECT:
            made.leave(place, draft.UNKNOWN)


def _read_subnet(made: Draft, item: Any) -> None:
    own = fields_of(item)
    path, kind = made.place.path, text_of(own.get("type"))
    place = place_of(path, own.get("type", item), "subnets.type")
    if kind in ("dhcp", "dhcp4"):
        made.take_dhcp(place)
    elif kind in _DHCP6:
        made.take_dhcp6(place)
    elif kind in ("ipv6_slaac", "ipv6_dhcpv6-stateless"):
        made.leave(place, draft.ADVERTISED)
    elif kind not in ("static", "static6", "manual"):
        made.leave(place, draft.UNKNOWN)
    for key, node in own.items():
        place, text = place_of(path, node, f"subnets.{key}"), text_of(node)
        if key == "address":
            netmask = text_of(own.get("netmask"))
            made.take_address(text, netmask, place)
        elif key == "gateway":
            made.take_route("default", text, place)
        elif key == "dns_nameservers":
            made.leave_servers(" ".join(texts_of(node)).split(), place)
        elif key == "dns_search":
            made.leave_domains(" ".join(texts_of(node)).split(), place)
        elif key == "routes":
            for route in items_of(node):
                _read_route(made, route, "subnets.routes")
        elif key == "control":
            if text != "auto":
                made.leave(place, draft.START)
        elif key not in ("type", "netmask", "broadcast", "ipv4", "ipv6"):
            made.leave(place, draft.UNKNOWN)


def _read_route(made: Draft, item: Any, key: str) -> None:
    own = fields_of(item)
    network = next(
        (text_of(own[name]) for name in ("destination", "network", "address") if name in own), ""
    )
    netmask = text_of(own.get("netmask", own.get("prefix")))
    place = place_of(made.place.path, item, key)
    if netmask and "/" not in network:
        try:
            network += f"/{netmask if ':' in network else prefix_length(netmask)}"
        except ValueError:
            made.leave(place, f"{netmask!r} is no netmask")
            return
    gateway = text_of(own.get("gateway"))
    network = "default" if network in ("0.0.0.0/0", "::/0") and gateway else network
    made.take_route(network, gateway, place)
    for name, value in own.items():
        if name not in (
            "destination",
            "network",
            "address",
            "netmask",
            "prefix",
            "gateway",
            "type",
        ):
            why = draft.METRIC if name == "metric" else draft.ROUTE_OPTION
            made.leave(place_of(made.place.path, value, f"{key}.{name}"), why)


def _read_other(path: Path, item: Any, by_name: dict[str, Draft], reading: Reading) -> None:
    """Servers and routes, which belong to an interface or to the host; other interfaces."""
    own = fields_of(item)
    kind, place = text_of(own.get("type")), place_of(path, item, text_of(own.get("type")))
    if kind not in ("nameserver", "route"):
        name = text_of(own.get("name"))
        why = f"{name or 'an entry'} of type {kind}, not infiniband"
        reading.notes.append(other(place, why, words_of(item)))
        return
    interface = text_of(own.get("interface"))
    only = next(iter(by_name.values())) if len(by_name) == 1 else None
    made = by_name.get(interface) if interface else only
    if made is None:
        if not interface:
            reading.notes.append(Note(place, f"a {kind} of no interface: add it by hand"))
    elif kind == "nameserver":
        made.leave_servers(texts_of(own.get("address")), place)
        made.leave_domains(texts_of(own.get("search")), place)
    else:
        _read_route(made, item, kind)
