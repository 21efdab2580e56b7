# SPDX-License-Identifier: BSD-2-Clause
"""Reads `network_connections` of a playbook or of variables for RHEL's system role `network`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ipoibu.importer import draft
from ipoibu.importer.bonds import take_bond_option
from ipoibu.importer.draft import Draft, Note, Reading, other, switch
from ipoibu.importer.yaml_nodes import fields_of, items_of, place_of, text_of, texts_of, words_of

LIST: Final = "network_connections"

_WITHOUT_EFFECT: Final = frozenset(
    ("name", "type", "interface_name", "persistent_state", "autoconnect_retries", "force_state_change",
     "wait", "check_iface_exists", "ignore_errors", "port_type", "slave_type")
)  # fmt: skip
_REASONS: Final = (
    (r"ip\.dns.*", draft.RESOLVER),
    (r"ip\.(route_metric[46]|route\.metric)", draft.METRIC),
    (r"ip\.route\..*", draft.ROUTE_OPTION),
    (r"zone", draft.FIREWALL),
    (r"mac|match.*", draft.BY_NAME_ONLY),
    (r"master|controller|slave_type|port_type|bridge", draft.SEVERAL_LINKS),
)

# What to say about a switch of `ip` that is on.
_SWITCHES: Final = {
    "auto6": draft.ADVERTISED,
    "ipv6_disabled": draft.LINK_LOCAL,
    "route_append_only": draft.UNKNOWN,
    "rule_append_only": draft.UNKNOWN,
    "auto_gateway": draft.UNKNOWN,
}


def read_connections(path: Path, node: Any) -> Reading:
    """Read a list `network_connections`."""
    reading = Reading()
    if node.id != "sequence":
        reading.notes.append(Note(place_of(path, node, LIST), "a list of connections is expected"))
        return reading
    for item in node.value:
        reading.add(_Connection(path, item).read())
    return reading


class _Connection:
    """One item of the list."""

    def __init__(self, path: Path, item: Any) -> None:
        self._path = path
        self._item = item
        self._made = Draft(place_of(self._path, item, ""))

    def read(self) -> Reading:
        fields = fields_of(self._item)
        if "type" not in fields or text_of(fields.get("persistent_state")) == "absent":
            return Reading()  # a change of a connection that another item describes
        kind = text_of(fields["type"])
        self._made.is_bond = kind == "bond"
        if kind not in ("infiniband", "bond"):
            why = f"a connection of type {kind}, not infiniband"
            return Reading(notes=[other(self._made.place, why, words_of(self._item))])
        self._made.name = text_of(fields.get("interface_name")) or text_of(fields.get("name"))
        self._made.aliases = {text_of(fields.get("name"))} - {""}
        for key, node in fields.items():
            self._read(key, node)
        if self._made.pkey is not None and self._made.parent and "interface_name" not in fields:
            self._made.name = ""  # the role's name for it is the kernel's
        addresses = self._made.texts("address")
        has_ipv4 = any(":" not in text for text in addresses)
        is_port = bool(self._made.controller)
        if not has_ipv4 and not is_port and "dhcp4" not in fields_of(fields.get("ip")):
            self._made.take_dhcp(self._made.place)  # the role's default
        return Reading([self._made])

    def _read(self, key: str, node: Any) -> None:
        made, place, text = self._made, place_of(self._path, node, key), text_of(node)
        if "{{" in text:
            made.leave(place, "a template: write the value that it has")
        elif key == "infiniband":
            for name, value in fields_of(node).items():
                self._read(f"infiniband_{name}", value)
        elif key == "infiniband_transport_mode":
            made.take_mode(text, place)
        elif key == "infiniband_p_key":
            if text not in ("-1", ""):
                made.take_pkey(text, place)
        elif key == "parent":
            made.parent = text
        elif key in ("controller", "master") and self._is_port_of_bond():
            made.controller = text
        elif key == "bond" and made.is_bond:
            self._read_bond(node)
        elif key == "mtu":
            made.take_mtu(text, place)
        elif key == "ip":
            self._read_addressing(node)
        elif key in ("autoconnect", "state"):
            if switch(text) is False or text == "down":
                made.leave(place, draft.START)
        elif key not in _WITHOUT_EFFECT:
            self._leave(node, key)

    def _read_bond(self, node: Any) -> None:
        for name, value in fields_of(node).items():
            place = place_of(self._path, value, f"bond.{name}")
            take_bond_option(self._made, name, text_of(value), place)

    def _is_port_of_bond(self) -> bool:
        own = fields_of(self._item)
        return text_of(own.get("port_type", own.get("slave_type"))) in ("bond", "")

    def _read_addressing(self, node: Any) -> None:
        for name, value in fields_of(node).items():
            self._read_ip(name, value)

    def _read_ip(self, name: str, node: Any) -> None:
        made, key = self._made, f"ip.{name}"
        place, text = place_of(self._path, node, key), text_of(node)
        if name == "address":
            for item in items_of(node):
                self._take_address(item)
        elif name == "route":
            for item in items_of(node):
                self._take_route(item)
        elif "{{" in text:
            made.leave(place, "a template: write the value that it has")
        elif name in ("gateway4", "gateway6"):
            if text:
                made.take_route("default", text, place)
        elif name == "dhcp4":
            if switch(text):
                made.take_dhcp(place)
        elif name in _SWITCHES:
            if switch(text):
                made.leave(place, _SWITCHES[name])
        elif name == "dns":
            made.leave_servers(texts_of(node), place)
        elif name == "dns_search":
            made.leave_domains(texts_of(node), place)
        else:
            self._leave(node, key)

    def _take_address(self, node: Any) -> None:
        """CIDR, or a mapping with `address` and `prefix`."""
        fields = fields_of(node)
        text = text_of(node)
        if fields:
            text = f"{text_of(fields.get('address'))}/{text_of(fields.get('prefix'))}".rstrip("/")
        if "/" not in text:
            text += _default_length(text)
        self._made.take("address", text, place_of(self._path, node, "ip.address"))

    def _take_route(self, node: Any) -> None:
        fields = fields_of(node)
        network = text_of(fields.get("network"))
        prefix = text_of(fields.get("prefix"))
        network += f"/{prefix}" if prefix else _default_length(network)
        gateway = text_of(fields.get("gateway"))
        self._made.take_route(network, gateway, place_of(self._path, node, "ip.route"))
        for name, value in fields.items():
            if name in ("network", "prefix", "gateway") or text_of(value) in ("-1", ""):
                continue
            self._leave(value, f"ip.route.{name}")

    def _leave(self, node: Any, key: str) -> None:
        self._made.leave(place_of(self._path, node, key), draft.reason(key, _REASONS))


def _default_length(address: str) -> str:
    """The length that the role adds to an address or a network without one."""
    return "/64" if ":" in address else "/24"
