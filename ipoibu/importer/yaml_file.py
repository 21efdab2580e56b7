# SPDX-License-Identifier: BSD-2-Clause
"""Finds the descriptions of networks in a YAML file, whatever program it is for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ipoibu.base.errors import UsageError
from ipoibu.importer import playbook
from ipoibu.importer.cloud_init import read_version_1
from ipoibu.importer.draft import Reading
from ipoibu.importer.netplan import read_netplan
from ipoibu.importer.nmstate import read_state
from ipoibu.importer.playbook import read_connections
from ipoibu.importer.yaml_nodes import fields_of, read_documents, text_of, walk

# What a mapping has that is netplan's, or the second version of cloud-init's
_KINDS: Final = frozenset(("ethernets", "bonds", "vlans", "bridges", "wifis"))


def read_yaml(path: Path) -> Reading:
    """Read a file of nmstate, cloud-init or netplan, or a playbook or variables of the role `network`.

    `UsageError` if the file is not readable or not YAML, has no such description, or PyYAML is missing.
    """
    found = [each for document in read_documents(path) for each in _find(path, document)]
    if not found:
        raise UsageError(
            f"{path}: neither {playbook.LIST} nor network_state of the role network, nor a state of nmstate"
            " (interfaces), nor a network of cloud-init (version, config) or netplan (network, ethernets)"
        )
    reading = Reading()
    for each in found:
        reading.add(each)
    return reading


def _find(path: Path, root: Any) -> Iterator[Reading]:
    own = fields_of(root)
    if "interfaces" in own:
        yield read_state(path, root)
    elif _is_network(own):
        yield _read_network(path, root)
    for key, node in walk(root):
        if key == playbook.LIST:
            yield read_connections(path, node)
        elif key in ("network_state", "desiredState", "desired_state"):
            yield read_state(path, node)
        elif key == "network" and (_is_network(fields_of(node)) or "version" in fields_of(node)):
            yield _read_network(path, node)


def _is_network(own: dict[str, Any]) -> bool:
    return bool(_KINDS & own.keys()) or ("version" in own and "config" in own)


def _read_network(path: Path, node: Any) -> Reading:
    own = fields_of(node)
    if "config" in own and text_of(own.get("version")) != "2":
        return read_version_1(path, own["config"])
    return read_netplan(path, node)
