# SPDX-License-Identifier: BSD-2-Clause
"""Reads `network_connections` of a playbook or of variables for RHEL's system role `network`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ipoibu.daemon.config_file import read_text
from ipoibu.distribution import install
from ipoibu.errors import UsageError
from ipoibu.migration import draft
from ipoibu.migration.draft import Draft, Note, Place, Reading, switch

if TYPE_CHECKING:
    from yaml.nodes import Node

LIST: Final = "network_connections"
_NODES_MAX: Final = 100_000

_WITHOUT_EFFECT: Final = frozenset(
    ("name", "type", "interface_name", "persistent_state", "autoconnect_retries", "force_state_change",
     "wait", "check_iface_exists", "ignore_errors")
)  # fmt: skip
_REASONS: Final = (
    (r"ip\.dns.*", draft.RESOLVER),
    (r"ip\.(route_metric[46]|route\.metric)", draft.METRIC),
    (r"ip\.route\..*", draft.ROUTE_OPTION),
    (r"zone", draft.FIREWALL),
    (r"mac|match.*", draft.BY_NAME_ONLY),
    (r"master|controller|slave_type|port_type|bond|bridge", draft.SEVERAL_LINKS),
)


def read_playbook(path: Path) -> Reading:
    """Read every `network_connections` of a YAML file.

    `UsageError` if the file is not readable or not YAML, has no such list, or PyYAML is missing.
    """
    try:
        import yaml
    except ImportError as error:
        raise UsageError(
            f"{path}: a playbook needs PyYAML: {install('pyyaml')}, or pip install pyyaml"
        ) from error
    try:
        documents = list(yaml.compose_all(read_text(path), Loader=yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 0
        problem = getattr(error, "problem", None) or "not readable"
        raise UsageError(f"{Place(path, line)}: not a YAML file: {problem}") from error
    lists = [each for document in documents if document for each in _find(document)]
    if not lists:
        raise UsageError(
            f"{path}: no list {LIST} of the role network (netplan's files: run `netplan generate`, and"
            " import the files in /run/systemd/network)"
        )
    reading = Reading()
    for items in lists:
        if items.id != "sequence":
            place = Place(path, items.start_mark.line + 1, LIST)
            reading.notes.append(Note(place, "a list of connections is expected"))
            continue
        for item in items.value:
            reading.add(_Connection(path, item).read())
    return reading


def _find(root: Node) -> Iterator[Any]:
    """The values of every key `network_connections` of a document; aliases count once."""
    waiting: list[Any] = [root]
    seen: set[int] = set()
    while waiting and len(seen) < _NODES_MAX:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.id == "sequence":
            waiting += reversed(node.value)
        elif node.id == "mapping":
            for key, value in node.value:
                if key.value == LIST:
                    yield value
                else:
                    waiting.append(value)


class _Connection:
    """One item of the list."""

    def __init__(self, path: Path, item: Node) -> None:
        self._path = path
        self._item = item
        self._made = Draft(self._place(item, ""))

    def read(self) -> Reading:
        fields = _fields(self._item)
        if "type" not in fields or _text(fields.get("persistent_state")) == "absent":
            return Reading()  # a change of a connection that another item describes
        kind = _text(fields["type"])
        if kind != "infiniband":
            why = f"a connection of type {kind}, not infiniband"
            return Reading(notes=[Note(self._made.place, why)])
        self._made.name = _text(fields.get("interface_name")) or _text(fields.get("name"))
        self._made.aliases = {_text(fields.get("name"))} - {""}
        for key, node in fields.items():
            self._read(key, node)
        addresses = self._made.texts("address")
        has_ipv4 = any(":" not in text for text in addresses)
        if not has_ipv4 and "dhcp4" not in _fields(fields.get("ip")):
            self._made.take_dhcp(self._made.place)  # the role's default
        return Reading([self._made])

    def _read(self, key: str, node: Any) -> None:
        made, place, text = self._made, self._place(node, key), _text(node)
        if "{{" in text:
            made.leave(place, "a template: write the value that it has")
        elif key == "infiniband":
            for name, value in _fields(node).items():
                self._read(f"infiniband_{name}", value)
        elif key == "infiniband_transport_mode":
            made.take_mode(text, place)
        elif key == "infiniband_p_key":
            if text not in ("-1", ""):
                made.take_pkey(text, place)
        elif key == "parent":
            made.parent = text
        elif key == "mtu":
            made.take_mtu(text, place)
        elif key == "ip":
            for name, value in _fields(node).items():
                self._read_ip(name, value)
        elif key in ("autoconnect", "state"):
            if switch(text) is False or text == "down":
                made.leave(place, draft.START)
        elif key not in _WITHOUT_EFFECT:
            self._leave(node, key)

    def _read_ip(self, name: str, node: Any) -> None:
        made, key = self._made, f"ip.{name}"
        place, text = self._place(node, key), _text(node)
        if name == "address":
            for item in _items(node):
                self._take_address(item)
        elif name == "route":
            for item in _items(node):
                self._take_route(item)
        elif "{{" in text:
            made.leave(place, "a template: write the value that it has")
        elif name in ("gateway4", "gateway6"):
            if text:
                made.take_route("default", text, place)
        elif name == "dhcp4":
            if switch(text):
                made.take_dhcp(place)
        elif name == "auto6":
            if switch(text):
                made.leave(place, draft.ADVERTISED)
        elif name == "ipv6_disabled":
            if switch(text):
                made.leave(place, draft.LINK_LOCAL)
        elif name in ("route_append_only", "rule_append_only", "auto_gateway"):
            if switch(text):
                made.leave(place, draft.UNKNOWN)
        else:
            self._leave(node, key)

    def _take_address(self, node: Any) -> None:
        """CIDR, or a mapping with `address` and `prefix`."""
        fields = _fields(node)
        text = _text(node)
        if fields:
            text = f"{_text(fields.get('address'))}/{_text(fields.get('prefix'))}".rstrip("/")
        if "/" not in text:
            text += _default_length(text)
        self._made.take("address", text, self._place(node, "ip.address"))

    def _take_route(self, node: Any) -> None:
        fields = _fields(node)
        network = _text(fields.get("network"))
        prefix = _text(fields.get("prefix"))
        network += f"/{prefix}" if prefix else _default_length(network)
        gateway = _text(fields.get("gateway"))
        self._made.take_route(network, gateway, self._place(node, "ip.route"))
        for name, value in fields.items():
            if name in ("network", "prefix", "gateway") or _text(value) in ("-1", ""):
                continue
            self._leave(value, f"ip.route.{name}")

    def _leave(self, node: Any, key: str) -> None:
        why = next((why for each, why in _REASONS if re.fullmatch(each, key)), draft.UNKNOWN)
        self._made.leave(self._place(node, key), why)

    def _place(self, node: Any, key: str) -> Place:
        return Place(self._path, node.start_mark.line + 1, key)


def _default_length(address: str) -> str:
    """The length that the role adds to an address or a network without one."""
    return "/64" if ":" in address else "/24"


def _fields(node: Any) -> dict[str, Any]:
    """The values of a mapping by key; empty for anything else."""
    if node is None or node.id != "mapping":
        return {}
    return {key.value: value for key, value in node.value if key.id == "scalar"}


def _items(node: Any) -> list[Any]:
    """A list's items; any other value is a list of one."""
    return list(node.value) if node.id == "sequence" else [node]


def _text(node: Any) -> str:
    """The text of a scalar; empty for null, for no value, and for a list or mapping."""
    if node is None or node.id != "scalar" or node.tag.endswith(":null"):
        return ""
    return str(node.value)
