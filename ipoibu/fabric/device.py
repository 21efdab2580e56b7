# SPDX-License-Identifier: BSD-2-Clause
"""Opens a port by the device's name. No other module knows all kinds of devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ipoibu.base.device_name import DeviceKind, GidKind, SoftName, parse_soft
from ipoibu.base.errors import NoSuchDevice
from ipoibu.fabric.base import KeptPort, MeshOptions, Port
from ipoibu.fabric.soft.port import SoftPort

if TYPE_CHECKING:
    from ipoibu.fabric.unicast.underlay import RouteUnderlay


def open_port(
    device: str,
    port: int = 1,
    kept: KeptPort | None = None,
    mesh: MeshOptions | None = None,
    beside: Sequence[str] = (),
) -> Port:
    """Open a port by name, or raise `NoSuchDevice`, `NotPermitted` or `LinkError` with the reason.

    The built-in HCA goes on with `kept`, and uses the address of the net device that suits the peers. The
    devices of `beside` are the interface's rails: where a route to a peer leads over one of them, each rail
    has a route of its own to this peer.
    """
    return OPENERS[DeviceKind.of(device)](device, port, kept, mesh, beside)


def _open_rdma(
    device: str, port: int, kept: KeptPort | None, mesh: MeshOptions | None, beside: Sequence[str]
) -> Port:
    # The RDMA libraries are optional: only RDMA devices import them.
    from ipoibu.fabric.verbs.objects import is_iwarp
    from ipoibu.fabric.verbs.port import VerbsPort

    if is_iwarp(device):
        from ipoibu.fabric.mesh.port import IwarpPort

        return IwarpPort(device, port)
    return VerbsPort(device, port)


def _open_soft(
    device: str, port: int, kept: KeptPort | None, mesh: MeshOptions | None, beside: Sequence[str]
) -> Port:
    if port != 1:
        raise NoSuchDevice(f"{device}: the built-in HCA has port 1 only, not {port}")
    name = parse_soft(device)
    if not name.umad:
        return SoftPort(device, kept, _underlay(name, mesh, beside))
    from ipoibu.fabric.soft.ib_port import SoftIbPort

    return SoftIbPort(name.netdev, name.umad, kept)


def _underlay(
    name: SoftName, mesh: MeshOptions | None, beside: Sequence[str]
) -> RouteUnderlay | None:
    """What chooses the address, unless the user does; None for a link with multicast."""
    if mesh is None or name.kind is not GidKind.ANY:
        return None
    from ipoibu.fabric.unicast.underlay import RouteUnderlay  # few links name their peers

    try:
        others = [parse_soft(it).netdev for it in beside if DeviceKind.of(it) is DeviceKind.SOFT]
        return RouteUnderlay(name.netdev, mesh, [it for it in others if it != name.netdev])
    except OSError:  # there is no such device, which its HCA says
        return None


Open = Callable[[str, int, KeptPort | None, MeshOptions | None, Sequence[str]], Port]

OPENERS: Final[dict[DeviceKind, Open]] = {
    DeviceKind.SOFT: _open_soft,
    DeviceKind.RDMA: _open_rdma,
}
