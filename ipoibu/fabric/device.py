# SPDX-License-Identifier: BSD-2-Clause
"""Opens a port by the device's name. No other module knows all kinds of devices."""

from __future__ import annotations

from ipoibu.errors import NoSuchDevice
from ipoibu.fabric.base import KeptPort, Port
from ipoibu.fabric.device_name import PREFIX, parse_soft
from ipoibu.fabric.soft.port import SoftPort


def open_port(device: str, port: int = 1, kept: KeptPort | None = None) -> Port:
    """Open a port by name, or raise `NoSuchDevice`, `NotPermitted` or `LinkError` with the reason.

    The built-in HCA goes on with `kept`.
    """
    if not device.startswith(PREFIX):
        # The RDMA libraries are optional: only RDMA devices import them.
        from ipoibu.fabric.verbs.objects import is_iwarp
        from ipoibu.fabric.verbs.port import VerbsPort

        if is_iwarp(device):
            from ipoibu.fabric.mesh.port import IwarpPort

            return IwarpPort(device, port)
        return VerbsPort(device, port)
    if port != 1:
        raise NoSuchDevice(f"{device}: the built-in HCA has port 1 only, not {port}")
    name = parse_soft(device)
    if not name.umad:
        return SoftPort(device, kept)
    from ipoibu.fabric.soft.ib_port import SoftIbPort

    return SoftIbPort(name.netdev, name.umad, kept)
