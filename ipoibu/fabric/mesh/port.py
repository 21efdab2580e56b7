# SPDX-License-Identifier: BSD-2-Clause
"""A port of an iWARP device: `siw0`. It has connections only: its link is a mesh (docs/mesh.md)."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from ipoibu.addr import MULTICAST_QPN, Gid, HwAddr, IpAddress, Qpn
from ipoibu.errors import LinkError
from ipoibu.fabric.base import Capabilities, Fabric, MeshOptions, Port
from ipoibu.fabric.mesh.connections import MeshConnections
from ipoibu.fabric.mesh.peer_list import PeerSource
from ipoibu.fabric.verbs.native import native
from ipoibu.fabric.verbs.objects import ConnectedObjects, VerbsDevice
from ipoibu.ib import IWARP, PartitionParams, PortInfo
from ipoibu.limits import ENCAP_LEN, MESH_MTU_MAX, MESH_PEERS_MAX, MESH_PORT
from ipoibu.proto.mesh import MeshConfig
from ipoibu.wire.mesh import Greeting
from ipoibu.wire.mgid import broadcast

SEND_DEPTH: Final = 64
INLINE_BYTES: Final = 64
_NETDEVS: Final = Path("/sys/class/net")
_MAC_LEN: Final = 6


class IwarpPort(Port):
    """A port of an iWARP device, opened by name. `NoSuchDevice`, `NotPermitted` or `LinkError`."""

    def __init__(self, device: str, port: int = 1) -> None:
        native()
        self._device = VerbsDevice(device, is_iwarp=True)
        self._port = port
        self._open: set[IwarpMesh] = set()
        try:
            self._device.port_state(port)
            mac = self._device.gid(port, 0).raw[:_MAC_LEN]
            gid = _link_local(mac)
            self._info = PortInfo(
                device=device,
                port=port,
                gid=gid,
                guid=gid.interface_id,
                active_mtu_bytes=MESH_MTU_MAX + ENCAP_LEN,
                link_layer=IWARP,
                netdev=_netdev(mac, f"{device}/{port}"),
            )
        except BaseException:
            self._device.close()
            raise

    @property
    def info(self) -> PortInfo:
        return self._info

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(mesh=True)

    def active(self) -> bool:
        return self._device.port_state(self._port).active

    def open_ud(self, params: PartitionParams) -> IwarpMesh:
        """A mesh that waits to be found."""
        return self.open_mesh(params, MeshOptions())

    def open_mesh(self, params: PartitionParams, options: MeshOptions) -> IwarpMesh:
        mesh = IwarpMesh(self._device, self._info, params, options, self._open.discard)
        self._open.add(mesh)
        return mesh

    def close(self) -> None:
        for mesh in list(self._open):
            mesh.close()
        self._device.close()


class IwarpMesh(Fabric):
    """A fabric of datagrams over connections with every station."""

    def __init__(
        self,
        device: VerbsDevice,
        info: PortInfo,
        params: PartitionParams,
        options: MeshOptions,
        closed: Callable[[IwarpMesh], None],
    ) -> None:
        module = native()
        self._closed = closed
        self._qpn = Qpn(random.SystemRandom().randrange(2, MULTICAST_QPN))
        self._source: PeerSource | None = None
        receives, limits = module.MESH_RECEIVES, device.limits()
        peers_max = min(MESH_PEERS_MAX, limits.max_cqe // (2 * receives))
        self._objects: ConnectedObjects = device.create_mesh(
            min((peers_max + 1) * receives, limits.max_cqe),
            min(peers_max * SEND_DEPTH, limits.max_cqe),
        )
        try:
            self._inline_bytes = INLINE_BYTES

            def create() -> object:
                depth = min(SEND_DEPTH, limits.max_qp_wr)
                return device.create_rc(self._objects, depth, self._inline_bytes, receives)

            try:
                pattern = create()
            except LinkError:
                self._inline_bytes = 0
                pattern = create()
            try:
                self._native = module.VerbsMesh(
                    pattern,
                    cmd_fd=device.cmd_fd,
                    gid=info.gid.raw,
                    qpn=self._qpn,
                    mtu_bytes=params.mtu_bytes,
                    peers_max=peers_max,
                    broadcast=broadcast(params.pkey, params.scope).raw,
                )
            except OSError as error:
                text = os.strerror(error.errno or 0)
                raise LinkError(f"{info.device}/{info.port}: mesh: {text}") from error
            finally:
                device.destroy(pattern)
            port = options.port or MESH_PORT
            ours = Greeting(
                HwAddr(self._qpn, info.gid),
                params.mtu_bytes - ENCAP_LEN,
                module.MESH_WINDOW,
                params.pkey,
                port,
            )
            self._connections = MeshConnections(
                device, info, self._native, create, MeshConfig(ours, peers_max)
            )
            try:
                self._source = PeerSource(options, self._connections.seeds)
            except BaseException:
                self._connections.close()
                raise
            self._source.start()
        except BaseException:
            if hasattr(self, "_native"):
                self._native.close()
            self._objects.close()
            raise

    @property
    def qpn(self) -> Qpn:
        return self._qpn

    @property
    def native(self) -> object:
        capsule: object = self._native.native
        return capsule

    def attach(self, mgid: Gid, mlid: int = 0) -> None:
        self._connections.joined(mgid)

    def detach(self, mgid: Gid) -> None:
        self._connections.left(mgid)

    def announce(self, addresses: Iterable[IpAddress]) -> None:
        self._connections.announce(addresses)

    def listen(self, learned: Callable[[HwAddr, tuple[IpAddress, ...]], None]) -> None:
        self._connections.listen(learned)

    def peers(self) -> list[dict[str, Any]]:
        return self._connections.snapshot()

    def counters(self) -> dict[str, int]:
        counters: dict[str, int] = self._native.counters()
        return counters | self._connections.counters()

    def close(self) -> None:
        """Part with every peer; the pump does not run any more. Safe to repeat."""
        if self._source is None:
            return
        self._source.close()
        self._source = None
        self._connections.close()
        self._native.close()
        self._objects.close()
        self._closed(self)


def _link_local(mac: bytes) -> Gid:
    """fe80::/64 and the modified EUI-64 of the MAC (I2): the station's GID, with its QPN never used twice."""
    eui = bytes((mac[0] ^ 2,)) + mac[1:3] + b"\xff\xfe" + mac[3:]
    return Gid(b"\xfe\x80" + bytes(6) + eui)


def _netdev(mac: bytes, place: str) -> str:
    """The net device of this network namespace with that MAC; iWARP's GIDs begin with it."""
    text = mac.hex(":")
    for name in sorted(it.name for it in _NETDEVS.iterdir()):
        try:
            found = (_NETDEVS / name / "address").read_text().strip()
            socket.if_nametoindex(name)
        except OSError:
            continue  # no net device, or gone meanwhile
        if found == text and text != "00:00:00:00:00:00":
            return name
    raise LinkError(f"{place}: its net device ({text}) is not in this network namespace")
