# SPDX-License-Identifier: BSD-2-Clause
"""From a device's name to an open port: the only place that knows every kind of device."""

from __future__ import annotations

from ipoibu.errors import NoSuchDevice
from ipoibu.fabric.base import Port
from ipoibu.fabric.ib import SoftIbPort
from ipoibu.fabric.name import PREFIX, SEPARATOR
from ipoibu.fabric.soft import SoftPort


def open_port(device: str, port: int = 1) -> Port:
    """Open a port by name; `NoSuchDevice`, `NotPermitted` or `LinkError` says why it is not there."""
    if not device.startswith(PREFIX):
        from ipoibu.fabric.verbs import VerbsPort  # the RDMA libraries, only where one is wanted
        from ipoibu.fabric.verbs_objects import is_iwarp

        if is_iwarp(device):
            from ipoibu.fabric.iwarp import IwarpPort

            return IwarpPort(device, port)
        return VerbsPort(device, port)
    if port != 1:
        raise NoSuchDevice(f"{device}: the built-in HCA has port 1 only, not {port}")
    netdev, at, umad = device.removeprefix(PREFIX).partition(SEPARATOR)
    return SoftIbPort(netdev, umad) if at else SoftPort(netdev)
