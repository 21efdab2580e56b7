# SPDX-License-Identifier: BSD-2-Clause
"""A port of an iWARP device, such as `siw0`. It only has connections: a mesh (docs/use/mesh.md)."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from ipoibu.base.addr import MULTICAST_QPN, Gid, HwAddr, Qpn
from ipoibu.base.errors import LinkError, UsageError
from ipoibu.base.ib import IWARP, PartitionParams, PortInfo
from ipoibu.base.limits import ENCAP_LEN, MESH_MTU_MAX, MESH_PEERS_MAX
from ipoibu.fabric.base import Capabilities, MeshOptions
from ipoibu.fabric.mesh.connections import MeshConnections
from ipoibu.fabric.mesh.peer_list import PeerSource
from ipoibu.fabric.peered import PeeredFabric
from ipoibu.fabric.plain import PlainFabric, PlainPort
from ipoibu.fabric.verbs.native import native
from ipoibu.fabric.verbs.objects import VerbsDevice
from ipoibu.fabric.verbs.rc_queues import RcMaker
from ipoibu.proto.mesh.mesh import MeshConfig
from ipoibu.wire.mesh import Greeting
from ipoibu.wire.mgid import broadcast

if TYPE_CHECKING:
    from ipoibu._verbs import VerbsMesh

SEND_DEPTH: Final = 64
INLINE_BYTES: Final = 64
_NETDEVS: Final = Path("/sys/class/net")
_MAC_LEN: Final = 6


class IwarpPort(PlainPort):
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

    def speed_mbps(self) -> int | None:
        return self._device.port_state(self._port).speed_mbps

    def open_ud(self, params: PartitionParams) -> IwarpMesh:
        """Open a mesh that only listens: its peers connect to it."""
        return self.open_mesh(params, MeshOptions())

    def open_mesh(self, params: PartitionParams, options: MeshOptions) -> IwarpMesh:
        if options.key is not None:
            raise UsageError(
                f"{self._place}: a mesh of iWARP has no key: leave --peer-key-file out, and filter the"
                " port"
            )
        mesh = IwarpMesh.open(self._device, self._info, params, options, self._open.discard)
        self._open.add(mesh)
        return mesh

    def close(self) -> None:
        for mesh in list(self._open):
            mesh.close()
        self._device.close()


class IwarpMesh(PeeredFabric, PlainFabric):
    """A fabric of datagrams over connections with every peer."""

    def __init__(
        self,
        qpn: Qpn,
        native: VerbsMesh,
        connections: MeshConnections,
        undo: ExitStack,
        closed: Callable[[IwarpMesh], None],
    ) -> None:
        self._qpn = qpn
        self._native = native
        self._connections = self._directory = connections
        self._undo = undo
        self._closed = closed

    @classmethod
    def open(
        cls,
        device: VerbsDevice,
        info: PortInfo,
        params: PartitionParams,
        options: MeshOptions,
        closed: Callable[[IwarpMesh], None],
    ) -> Self:
        """Listen for peers and look for those that `options` name, or leave nothing open.

        `close` calls `closed` in the end.
        """
        module, limits = native(), device.limits()
        qpn = Qpn(random.SystemRandom().randrange(2, MULTICAST_QPN))
        peers_max = min(MESH_PEERS_MAX, limits.max_cqe // (2 * module.MESH_RECEIVES))
        ours = Greeting(
            HwAddr(qpn, info.gid),
            params.mtu_bytes - ENCAP_LEN,
            module.MESH_WINDOW,
            params.pkey,
            options.listen_port,
        )
        with ExitStack() as undo:
            objects = device.create_mesh(
                min((peers_max + 1) * module.MESH_RECEIVES, limits.max_cqe),
                min(peers_max * SEND_DEPTH, limits.max_cqe),
            )
            undo.callback(objects.close)
            maker = RcMaker(
                device,
                objects,
                min(SEND_DEPTH, limits.max_qp_wr),
                INLINE_BYTES,
                module.MESH_RECEIVES,
            )
            with maker.pattern() as pattern, _translated(info):
                mesh = module.VerbsMesh(
                    pattern,
                    cmd_fd=device.cmd_fd,
                    gid=info.gid.raw,
                    qpn=qpn,
                    mtu_bytes=params.mtu_bytes,
                    peers_max=peers_max,
                    broadcast=broadcast(params.pkey, params.scope).raw,
                )
            undo.callback(mesh.close)
            config = MeshConfig(ours, peers_max)
            connections = MeshConnections(device, info, mesh, maker.create, config)
            undo.callback(connections.close)
            source = PeerSource(options, connections.seeds)
            undo.callback(source.close)
            connections.follow(source)
            source.start()
            return cls(qpn, mesh, connections, undo.pop_all(), closed)

    @property
    def qpn(self) -> Qpn:
        return self._qpn

    @property
    def native(self) -> object:
        return self._native.native

    def attach(self, mgid: Gid, mlid: int = 0) -> None:
        self._connections.note_joined(mgid)

    def detach(self, mgid: Gid) -> None:
        self._connections.note_left(mgid)

    def counters(self) -> dict[str, int]:
        return self._native.counters() | self._connections.counters()

    def close(self) -> None:
        """Disconnect from every peer; the pump has stopped. Safe to repeat."""
        self._undo.close()
        self._closed(self)


@contextmanager
def _translated(info: PortInfo) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        text = os.strerror(error.errno or 0)
        raise LinkError(f"{info.device}/{info.port}: mesh: {text}") from error


def _link_local(mac: bytes) -> Gid:
    """Return fe80::/64 with the modified EUI-64 of the MAC (I2). With a QPN that is random each time, this
    GID makes a hardware address that no host uses twice."""
    eui = bytes((mac[0] ^ 2,)) + mac[1:3] + b"\xff\xfe" + mac[3:]
    return Gid(b"\xfe\x80" + bytes(6) + eui)


def _netdev(mac: bytes, place: str) -> str:
    """Find the net device with that MAC in this network namespace; iWARP's GIDs begin with the MAC."""
    text = mac.hex(":")
    for name in sorted(it.name for it in _NETDEVS.iterdir()):
        try:
            address = (_NETDEVS / name / "address").read_text().strip()
            socket.if_nametoindex(name)
        except OSError:
            continue  # not a net device, or removed meanwhile
        if address == text and text != "00:00:00:00:00:00":
            return name
    raise LinkError(f"{place}: its net device ({text}) is not in this network namespace")
