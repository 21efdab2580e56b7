# SPDX-License-Identifier: BSD-2-Clause
"""From a device's name to an open port: the only place that knows every kind of device."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ipoibu.errors import NoSuchDevice, UsageError
from ipoibu.fabric.base import Port
from ipoibu.fabric.ib import SEPARATOR, SoftIbPort
from ipoibu.fabric.seeds import Seeds
from ipoibu.fabric.soft import PREFIX, SoftPort

_SYSFS: Final = Path("/sys/class/infiniband")
_RNIC: Final = "4:"  # enum ibv_node_type


def is_iwarp(device: str) -> bool:
    """Whether the kernel has it as an iWARP device."""
    try:
        return (_SYSFS / device / "node_type").read_text().startswith(_RNIC)
    except OSError:
        return False


def parse_device(text: str) -> tuple[str, int]:
    """Split `DEV[/PORT]`; the port is 1 unless given. `UsageError` for anything else."""
    device, slash, port = text.partition("/")
    if not device or device == PREFIX or (slash and not port.isdecimal()):
        raise UsageError(f"{text!r} is not a device (expected soft:NETDEV or RDMADEV, then /PORT)")
    return device, int(port) if slash else 1


def open_port(device: str, port: int = 1, seeds: Seeds | None = None) -> Port:
    """Open a port by name; `NoSuchDevice`, `NotPermitted` or `LinkError` says why it is not there.

    `seeds` are the peers of an iWARP mesh; `UsageError` where there is no such device.
    """
    if not device.startswith(PREFIX) and is_iwarp(device):
        from ipoibu.fabric.iwarp import MeshPort

        return MeshPort(device, port, seeds or Seeds())
    if seeds is not None and seeds.any:
        raise UsageError(f"{device}: peers are for iWARP devices; others find theirs by ARP and ND")
    if not device.startswith(PREFIX):
        from ipoibu.fabric.verbs import VerbsPort  # the RDMA libraries, only where one is wanted

        return VerbsPort(device, port)
    if port != 1:
        raise NoSuchDevice(f"{device}: the built-in HCA has port 1 only, not {port}")
    netdev, at, umad = device.removeprefix(PREFIX).partition(SEPARATOR)
    return SoftIbPort(netdev, umad) if at else SoftPort(netdev)
