# SPDX-License-Identifier: BSD-2-Clause
"""Reads netplan's YAML, which is also the second version of cloud-init's network configuration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from ipoibu.importer import draft
from ipoibu.importer.bonds import take_bond_option
from ipoibu.importer.draft import Draft, Reading, is_infiniband_name, other, switch
from ipoibu.importer.yaml_nodes import fields_of, items_of, place_of, text_of, texts_of, words_of

_WITHOUT_EFFECT: Final = re.compile(
    r"match|set-name|renderer|optional(-addresses)?|critical|ignore-carrier|networkmanager|wakeonlan"
    r"|ipv6-address-generation"
)
_REASONS: Final = (
    (r"dhcp[46]-overrides\..*|accept-ra|ipv6-privacy", draft.DHCP_OPTION),
    (r"macaddress|match\..*", draft.BY_NAME_ONLY),
    (r"routes\.metric", draft.METRIC),
    (r"routes\..*", draft.ROUTE_OPTION),
    (r"activation-mode", draft.START),
)


def read_netplan(path: Path, node: Any) -> Reading:
    """Read the InfiniBand interfaces of a mapping with `ethernets` and `bonds`."""
    reading = Reading()
    for kind, interfaces in fields_of(node).items():
        if kind in ("version", "renderer"):
            continue
        for name, value in fields_of(interfaces).items():
            made = Draft(place_of(path, value, f"{kind}.{name}"), name)
            if kind == "bonds" or (kind == "ethernets" and _is_infiniband(made, value)):
                made.is_bond = kind == "bonds"
                for key, each in fields_of(value).items():
                    _read(made, key, each)
                reading.drafts.append(made)
            else:
                why = "no InfiniBand interface: neither infiniband-mode nor a name such as ib0"
                words = words_of(value) if kind != "ethernets" else []
                reading.notes.append(other(made.place, why, words))
    return reading


def _is_infiniband(made: Draft, node: Any) -> bool:
    """Find the interface's name, and whether it is one of InfiniBand."""
    own = fields_of(node)
    match = fields_of(own.get("match"))
    key, made.name = (
        made.name,
        text_of(own.get("set-name")) or text_of(match.get("name")) or made.name,
    )
    made.aliases = {key} - {made.name}
    for name, value in match.items():
        if name != "name":
            made.leave(place_of(made.place.path, value, f"match.{name}"), draft.BY_NAME_ONLY)
    names = (key, made.name, text_of(match.get("name")))
    if re.search(r"[*?\[]", made.name):
        made.leave(made.place, f"a file of ipoibu is for one interface, not for {made.name}")
        made.name = key if is_infiniband_name(key) else ""
    return "infiniband-mode" in own or any(is_infiniband_name(name) for name in names)


def _read(made: Draft, key: str, node: Any) -> None:
    place, text = place_of(made.place.path, node, key), text_of(node)
    if key == "addresses":
        _read_addresses(made, node)
    elif key in ("dhcp4", "dhcp6"):
        _read_dhcp(made, key, node)
    elif key in ("gateway4", "gateway6"):
        made.take_route("default", text, place)
    elif key == "routes":
        _read_routes(made, node)
    elif key == "nameservers":
        own = fields_of(node)
        made.leave_servers(texts_of(own.get("addresses")), place)
        made.leave_domains(texts_of(own.get("search")), place)
    elif key == "mtu":
        made.take_mtu(text, place)
    elif key == "infiniband-mode":
        made.take_mode(text, place)
    elif key == "dhcp-identifier":
        made.take_client_id(text, place)
    elif key == "interfaces" and made.is_bond:
        made.ports += texts_of(node)
    elif key == "parameters" and made.is_bond:
        _read_bond(made, node)
    elif key == "link-local":
        _read_link_local(made, key, node)
    elif key == "accept-ra":
        made.leave(place, draft.ADVERTISED)
    elif key in ("dhcp4-overrides", "dhcp6-overrides"):
        _read_overrides(made, key, node)
    else:
        _leave(made, node, key)


def _read_dhcp(made: Draft, key: str, node: Any) -> None:
    if switch(text_of(node)):
        take = made.take_dhcp if key == "dhcp4" else made.take_dhcp6
        take(place_of(made.place.path, node, key))


def _read_link_local(made: Draft, key: str, node: Any) -> None:
    if "ipv6" not in texts_of(node):
        made.leave(place_of(made.place.path, node, key), draft.LINK_LOCAL)


def _read_bond(made: Draft, node: Any) -> None:
    for name, value in fields_of(node).items():
        option = place_of(made.place.path, value, f"parameters.{name}")
        take_bond_option(made, name, ",".join(texts_of(value)), option)


def _read_overrides(made: Draft, key: str, node: Any) -> None:
    for name, value in fields_of(node).items():
        if name == "hostname":
            made.take("dhcp-host-name", text_of(value), place_of(made.place.path, node, key))
        else:
            _leave(made, value, f"{key}.{name}")


def _read_addresses(made: Draft, node: Any) -> None:
    for item in items_of(node):
        _read_address(made, item)


def _read_address(made: Draft, item: Any) -> None:
    """CIDR, or a mapping of one address to its options."""
    own = fields_of(item)
    for text in own or [text_of(item)]:
        made.take("address", text, place_of(made.place.path, item, "addresses"))
    for options in own.values():
        for name, value in fields_of(options).items():
            made.leave(place_of(made.place.path, value, f"addresses.{name}"), draft.UNKNOWN)


def _read_routes(made: Draft, node: Any) -> None:
    for item in items_of(node):
        _read_route(made, item)


def _read_route(made: Draft, item: Any) -> None:
    own = fields_of(item)
    network, gateway = text_of(own.get("to")), text_of(own.get("via"))
    if network in ("0.0.0.0/0", "::/0", "0/0") and gateway:
        network = "default"
    if not made.take_route(network, gateway, place_of(made.place.path, item, "routes")):
        return
    for name, value in own.items():
        if name not in ("to", "via"):
            _leave(made, value, f"routes.{name}")


def _leave(made: Draft, node: Any, key: str) -> None:
    if not _WITHOUT_EFFECT.fullmatch(key):
        made.leave(place_of(made.place.path, node, key), draft.reason(key, _REASONS))
