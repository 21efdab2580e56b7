# SPDX-License-Identifier: BSD-2-Clause
"""Reads a state of nmstate, which is also `network_state` of RHEL's system role `network` and the desired
state of a NodeNetworkConfigurationPolicy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from ipoibu.importer import draft
from ipoibu.importer.bonds import take_bond_option
from ipoibu.importer.draft import Draft, Note, Place, Reading, is_infiniband_name, other, switch
from ipoibu.importer.yaml_nodes import fields_of, items_of, place_of, text_of, texts_of, words_of

_WITHOUT_EFFECT: Final = re.compile(
    r"name|type|profile-name|description|identifier|wait-ip|ipv[46]\.(enabled|auto-(dns|gateway|routes))"
    r"|ipv6\.addr-gen-mode|infiniband\.base-iface|lldp(\..*)?|mptcp(\..*)?"
)
_REASONS: Final = (
    (r"ipv[46]\.(dhcp-.*|auto-.*)", draft.DHCP_OPTION),
    (r"mac-address|copy-mac-from", draft.BY_NAME_ONLY),
    (r"controller", draft.SEVERAL_LINKS),
)


def read_state(path: Path, node: Any) -> Reading:
    """Read the interfaces of a state, and their routes."""
    reading = Reading()
    state = fields_of(node)
    for item in items_of(state.get("interfaces")):
        reading.add(_read_interface(path, item))
    by_name = {each.name: each for each in reading.drafts}
    for key, value in state.items():
        if key == "routes":
            for item in items_of(fields_of(value).get("config")):
                _read_route(path, item, by_name, reading)
        elif key == "dns-resolver":
            _read_resolver(path, value, reading)
        elif key not in ("interfaces", "capture", "description"):
            reading.notes.append(Note(place_of(path, value, key), draft.UNKNOWN))
    return reading


def _read_interface(path: Path, item: Any) -> Reading:
    own = fields_of(item)
    name, kind = text_of(own.get("name")), text_of(own.get("type"))
    made = Draft(place_of(path, item, ""), name, is_bond=kind == "bond")
    if kind not in ("infiniband", "bond") and not (not kind and is_infiniband_name(name)):
        why = f"{name or 'an interface'} of type {kind or 'unknown'}, not infiniband"
        return Reading(notes=[other(made.place, why, words_of(item))])
    if text_of(own.get("state")) == "absent":
        return Reading()
    made.aliases = {text_of(own.get("profile-name"))} - {"", name}
    for key, node in own.items():
        _read(made, key, node)
    return Reading([made])


def _read(made: Draft, key: str, node: Any) -> None:
    place, text = place_of(made.place.path, node, key), text_of(node)
    if key == "infiniband":
        _read_infiniband(made, node)
    elif key in ("link-aggregation", "bond") and made.is_bond:
        _read_bond(made, key, node)
    elif key in ("ipv4", "ipv6"):
        own = fields_of(node)
        if text_of(own.get("enabled")).lower() != "false":
            for name, value in own.items():
                _read_ip(made, key, name, value)
        elif key == "ipv6":
            made.leave(place, draft.LINK_LOCAL)
    elif key == "mtu":
        made.take_mtu(text, place)
    elif key == "state":
        if text != "up":
            made.leave(place, draft.START)
    elif (key == "controller" and not text) or (
        key == "accept-all-mac-addresses" and not switch(text)
    ):
        pass
    else:
        _leave(made, place)


def _read_infiniband(made: Draft, node: Any) -> None:
    for name, value in fields_of(node).items():
        place, text = place_of(made.place.path, value, f"infiniband.{name}"), text_of(value)
        if name == "mode":
            made.take_mode(text, place)
        elif name == "base-iface":
            made.parent = text
        elif name == "pkey":
            if text not in ("", "default"):
                made.take_pkey(text, place)
        else:
            _leave(made, place)


def _read_bond(made: Draft, section: str, node: Any) -> None:
    for name, value in fields_of(node).items():
        if name in ("port", "slaves", "ports"):
            made.ports += texts_of(value)
        elif name == "options":
            for option, each in fields_of(value).items():
                place = place_of(made.place.path, each, f"{section}.options.{option}")
                take_bond_option(made, option, ",".join(texts_of(each)), place)
        elif name == "ports-config":
            made.leave(place_of(made.place.path, value, f"{section}.{name}"), draft.UNKNOWN)
        else:
            place = place_of(made.place.path, value, f"{section}.{name}")
            take_bond_option(made, name, text_of(value), place)


def _read_ip(made: Draft, family: str, name: str, node: Any) -> None:
    key = f"{family}.{name}"
    place, text = place_of(made.place.path, node, key), text_of(node)
    if name == "address":
        for item in items_of(node):
            _read_address(made, item, key)
    elif name == "dhcp":
        if switch(text):
            (made.take_dhcp if family == "ipv4" else made.take_dhcp6)(place)
    elif name == "autoconf":
        if switch(text):
            made.leave(place, draft.ADVERTISED)
    elif key == "ipv4.dhcp-client-id":
        made.take_client_id(text, place)
    elif name == "dhcp-send-hostname" and switch(text) is not False:
        pass
    elif name == "dhcp-custom-hostname":
        made.take("dhcp-host-name", text, place)
    else:
        _leave(made, place)


def _read_address(made: Draft, item: Any, key: str) -> None:
    own = fields_of(item)
    ip, length = text_of(own.get("ip")), text_of(own.get("prefix-length"))
    made.take("address", f"{ip}/{length}", place_of(made.place.path, item, key))
    for name, value in own.items():
        if name not in ("ip", "prefix-length"):
            made.leave(place_of(made.place.path, value, f"{key}.{name}"), draft.UNKNOWN)


def _read_route(path: Path, item: Any, by_name: dict[str, Draft], reading: Reading) -> None:
    own = fields_of(item)
    if text_of(own.get("state")) == "absent":
        return
    name, key = text_of(own.get("next-hop-interface")), "routes.config"
    made = by_name.get(name)
    if made is None:
        why = f"a route of {name or 'no interface'}, which is none of InfiniBand here"
        reading.notes.append(Note(place_of(path, item, key), why))
        return
    gateway = text_of(own.get("next-hop-address"))
    network = text_of(own.get("destination"))
    if network in ("0.0.0.0/0", "::/0") and gateway:
        network = "default"
    made.take_route(network, gateway, place_of(path, item, key))
    for option, value in own.items():
        if option in ("destination", "next-hop-address", "next-hop-interface", "state"):
            continue
        if (option, text_of(value)) in (("table-id", "254"), ("table-id", "0"), ("metric", "-1")):
            continue
        why = draft.METRIC if option == "metric" else draft.ROUTE_OPTION
        made.leave(place_of(path, value, f"{key}.{option}"), why)


def _read_resolver(path: Path, node: Any, reading: Reading) -> None:
    """The servers of the host, which nmstate assigns to an interface itself."""
    made = reading.drafts[0] if reading.drafts else Draft(Place(path))
    config = fields_of(fields_of(node).get("config"))
    for name, value in config.items():
        place = place_of(path, value, f"dns-resolver.config.{name}")
        if name == "server":
            made.leave_servers(texts_of(value), place)
        elif name == "search":
            made.leave_domains(texts_of(value), place)
        elif texts_of(value):
            made.leave(place, draft.RESOLVER)
    if not reading.drafts:
        reading.notes += made.notes


def _leave(made: Draft, place: Place) -> None:
    key = place.key
    if not _WITHOUT_EFFECT.fullmatch(key):
        made.leave(place, draft.reason(key, _REASONS))
