# SPDX-License-Identifier: BSD-2-Clause
"""An iWARP device as a fabric: `siw0`. It has no datagrams, so this is a mesh (docs/mesh.md)."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any, Final

from ipoibu.addr import Gid, HwAddr, Qpn
from ipoibu.errors import LinkError, UsageError
from ipoibu.fabric.base import MESH_LINK_LAYER, PartitionParams, PortInfo
from ipoibu.fabric.mesh_driver import SEND_DEPTH, MeshDriver
from ipoibu.fabric.seeds import Seeds
from ipoibu.fabric.verbs import native
from ipoibu.fabric.verbs_objects import VerbsDevice
from ipoibu.limits import ENCAP_LEN, MESH_MTU, MESH_PEERS_MAX, MESH_RESERVE, MESH_WINDOW
from ipoibu.proto.mesh import PeerInfo
from ipoibu.wire.mesh import Hello

_SYSFS: Final = Path("/sys/class")
_LINK_LOCAL: Final = bytes.fromhex("fe80000000000000")
_QPN_MAX: Final = 0xFFFFFE  # 0xffffff is multicast's, 0 and 1 are management's


def link_local_gid(mac: bytes) -> Gid:
    """fe80::/64 with the modified EUI-64 of a MAC (RFC 4291, appendix A)."""
    if len(mac) != 6 or mac == bytes(6) or mac[0] & 1:
        raise LinkError(f"{mac.hex(':')} is no station's MAC")
    return Gid(_LINK_LOCAL + bytes((mac[0] ^ 2, *mac[1:3], 0xFF, 0xFE, *mac[3:])))


class MeshPort:
    """A port of an iWARP device, opened by name, for one interface at a time.

    The GID is made of the net device's MAC: that is what an iWARP device has for one.
    """

    def __init__(self, device: str, port: int, seeds: Seeds) -> None:
        native()
        seeds.read()  # what is wrong is said at once
        self._device = VerbsDevice(device, is_iwarp=True)
        self._port, self._seeds = port, seeds
        self._ud: MeshUd | None = None
        try:
            self._device.port_state(port)
            mac = self._mac()
            gid = link_local_gid(mac)
            self.info = PortInfo(
                device=device,
                port=port,
                gid=gid,
                guid=gid.interface_id,
                active_mtu_bytes=MESH_MTU + ENCAP_LEN,
                link_layer=MESH_LINK_LAYER,
                netdev=_netdev(mac),
            )
        except BaseException:
            self._device.close()
            raise

    def _mac(self) -> bytes:
        return self._device.gid(self._port, 0).raw[:6]

    def active(self) -> bool:
        return self._device.port_state(self._port).active

    def open_ud(self, params: PartitionParams) -> MeshUd:
        if self._ud is not None:
            raise UsageError(f"{self.info.device}: a mesh has one interface; use another port's")
        self._ud = MeshUd(self, self._device, params, self._seeds)
        return self._ud

    def forget(self) -> None:
        self._ud = None

    def close(self) -> None:
        if self._ud is not None:
            self._ud.close()
        self._device.close()


class MeshUd:
    """All connections of one interface, which the pump takes for a UD queue pair."""

    def __init__(
        self, port: MeshPort, device: VerbsDevice, params: PartitionParams, seeds: Seeds
    ) -> None:
        self._port = port
        info = port.info
        _verbs: Any = native()
        recv_depth = MESH_WINDOW + MESH_RESERVE
        hello = Hello(
            hwaddr=_hwaddr(info.gid),
            pkey=params.pkey,
            mtu_bytes=params.mtu_bytes,
            window=MESH_WINDOW,
            port=seeds.port,
        )
        limits = device.limits()
        self._objects = device.create_mesh(
            min(2 * recv_depth * MESH_PEERS_MAX, limits.max_cqe),
            min(SEND_DEPTH * MESH_PEERS_MAX, limits.max_cqe),
        )
        self._groups: set[Gid] = set()
        self._native: Any = None
        self._driver: MeshDriver | None = None
        try:
            pattern = device.create_mesh_rc(self._objects, SEND_DEPTH, recv_depth)
            try:
                self._native = _verbs.MeshFabric(
                    pattern,
                    cmd_fd=device.cmd_fd,
                    gid=info.gid.raw,
                    qpn=hello.hwaddr.qpn,
                    mtu_bytes=params.mtu_bytes,
                    window=MESH_WINDOW,
                )
            finally:
                device.destroy(pattern)
            self._driver = MeshDriver(
                device,
                self._objects,
                self._native,
                hello,
                seeds,
                port=info.port,
                recv_depth=recv_depth,
            )
        except BaseException as error:
            self.close()
            if isinstance(error, _verbs.LayoutError):
                raise LinkError(
                    f"{info.device}: this pyverbs keeps its queue pair elsewhere ({error}); "
                    "versions 44 to 59 are known to work"
                ) from error
            if isinstance(error, OSError):
                raise LinkError(f"{info.device}: mesh: {os.strerror(error.errno or 0)}") from error
            raise

    @property
    def qpn(self) -> Qpn:
        return Qpn(self._native.qpn)

    @property
    def native(self) -> object:
        return self._native.native

    def attach(self, mgid: Gid) -> None:
        """Peers send us the group's datagrams from now on. The first of all begins the mesh: from
        then on the pump has given receives."""
        if mgid not in self._groups:
            self._groups.add(mgid)
            self._native.attach(mgid.raw)
        if self._driver is not None:
            self._driver.start()

    def detach(self, mgid: Gid) -> None:
        if mgid in self._groups:
            self._groups.discard(mgid)
            self._native.detach(mgid.raw)

    def counters(self) -> dict[str, int]:
        counters: dict[str, int] = self._native.counters()
        if self._driver is not None:
            counters |= self._driver.counters()
            counters["peers"] = len(self._driver.peers())
        return counters

    def peers(self) -> list[PeerInfo]:
        """The stations that we are connected to."""
        return self._driver.peers() if self._driver is not None else []

    def close(self) -> None:
        """End all connections. Safe to repeat."""
        if self._driver is not None:
            self._driver.close()
        if self._native is not None:
            self._native.close()
        if self._objects is not None:
            self._objects.close()
        self._objects = None  # type: ignore[assignment]
        self._port.forget()


def _hwaddr(gid: Gid) -> HwAddr:
    return HwAddr(Qpn(random.SystemRandom().randrange(2, _QPN_MAX + 1)), gid)


def _netdev(mac: bytes) -> str | None:
    for path in sorted((_SYSFS / "net").glob("*/address")):
        try:
            if path.read_text().strip() == mac.hex(":"):
                return path.parent.name
        except OSError:
            continue
    return None
