# SPDX-License-Identifier: BSD-2-Clause
"""The data path of an interface: a queue pair, and the pump between it and the packet device.

An interface has one data path at a time. The packet device outlives it: a heavy flush makes another data
path over the same device (`ipoibu/endpoint/interface/heavy_flush.py`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Self

from ipoibu import _core
from ipoibu.base.addr import RC_FLAG, HwAddr, Qpn
from ipoibu.base.errors import LinkError, UsageError
from ipoibu.base.ib import PartitionParams
from ipoibu.base.limits import (
    ADDRESS_HANDLES_MAX,
    CONNECTED_FRAMES,
    CONNECTED_MTU,
    ENCAP_LEN,
    FRAMES_MAX,
    FRAMES_MIN,
    GROUPS_MAX,
    NEIGH_MAX,
    ROUTE_ANSWERS_MAX,
    ROUTES_MAX,
    SUPERFRAME_BYTES_MAX,
    TX_QUEUE_CAPTURE_RING_BYTES,
    TX_QUEUE_EVENT_RING_BYTES,
)
from ipoibu.base.trains import tcp_frames
from ipoibu.endpoint.config import EndpointConfig
from ipoibu.endpoint.datapath.connections import Connections
from ipoibu.endpoint.datapath.tx_queues import TxQueues
from ipoibu.fabric.base import Fabric, TxQueue
from ipoibu.fabric.shared_port import SharedPort
from ipoibu.proto.groups.link_params import ip_mtu
from ipoibu.proto.machine.transition import Observer

if TYPE_CHECKING:
    from ipoibu.endpoint.rails.rails import Rails
    from ipoibu.endpoint.subnet.ports import Ports
    from ipoibu.fabric.rails import RailsFabric
    from ipoibu.proto.rc.connection import RcConfig

_log = logging.getLogger(__name__)

HostDevice = _core.TunPacketDevice | _core.CDevice  # in place of the application's queue
PacketDevice = HostDevice | _core.QueueDevice
Pump = _core.Pump | TxQueues
# All offloads: a peer may send us super-frames.
_SUPERFRAMES = frozenset(("tso4", "tso6", "uso4", "uso6"))


@dataclass(frozen=True, slots=True)
class DataPath:
    """Everything that belongs to one queue pair. The engine's thread calls it; any thread may call `open`
    and read fields.

    `mtu_bytes` is the interface's IP MTU, `datagram_mtu_bytes` the longest packet that goes by datagram.
    """

    config: EndpointConfig
    port: SharedPort
    device: PacketDevice
    params: PartitionParams
    datagram_mtu_bytes: int
    mtu_bytes: int
    fabric: Fabric
    pump: Pump
    guest_qpns: tuple[Qpn, ...] = ()  # queue pairs for guests behind a TAP
    joined: RailsFabric | None = None  # with queue pairs on all rails: inside of `fabric`

    @classmethod
    def open(
        cls,
        config: EndpointConfig,
        port: SharedPort,
        device: PacketDevice,
        params: PartitionParams,
        ports: Ports,
    ) -> Self:
        """Make the queue pair and its pump, which does not run yet; `port` is that of `ports` which
        carries the traffic, and each of them gets a queue pair where that is possible.

        Where the device may not pin the memory of all frames, both are made again with half as many.
        `LinkError` if the device refuses, `UsageError` for an MTU that does not fit the link.
        """
        frames = config.frames
        while True:
            try:
                return cls._open(config, port, device, params, ports, frames=frames)
            except OSError as error:
                if error.errno != errno.ENOMEM or frames // 2 < FRAMES_MIN:
                    raise _pump_error(port.info.device, error) from error
            frames //= 2
            text = "%s: no more memory may be locked: %d frames in place of %d; ulimit -l unlimited"
            _log.warning(text, config.name, frames, config.frames)

    @classmethod
    def _open(
        cls,
        config: EndpointConfig,
        port: SharedPort,
        device: PacketDevice,
        params: PartitionParams,
        ports: Ports,
        *,
        frames: int,
    ) -> Self:
        """Try to open a data path with so many frames; `OSError` if there is no pump."""
        is_connected = config.is_connected
        datagram_mtu_bytes, mtu_bytes = mtus_of(config, params)
        _check_queues(config, port, device)
        fabric, joined = _open_fabric(config, port, params, datagram_mtu_bytes, ports)
        pumps: list[_core.Pump] = []
        try:
            tx_queues: Sequence[TxQueue] = ()
            if config.faults is not None and joined is None:
                from ipoibu.fabric.faults import FaultyUd  # for tests

                fabric = FaultyUd(fabric, config.faults)
            if config.queues > 1:
                tx_queues = fabric.open_tx_queues(config.queues - 1)
            guest_qpns = _open_guest_queue_pairs(config, fabric)
            halved = FRAMES_MAX.bit_length() - frames.bit_length()
            make = partial(
                _core.Pump,
                frames_halved=halved,
                mtu=datagram_mtu_bytes,
                device_mtu=mtu_bytes,
                tcp_packet_bytes=_tcp_packet_bytes(device, port, mtu_bytes),
                neigh_max=NEIGH_MAX + GROUPS_MAX,
                route_max=ROUTES_MAX,
                route_answer_max=ROUTE_ANSWERS_MAX,
                ah_max=ADDRESS_HANDLES_MAX,
                busy_poll_us=config.busy_poll_us,
                resolution_parts=config.queues,
            )
            connected_frames = CONNECTED_FRAMES >> halved if is_connected else 0
            if joined is not None:  # each rail's connections have as many
                connected_frames *= sum(port is not None for port in joined.ports)
            pumps.append(make(fabric, device, connected_frames=connected_frames))
            for tx_queue, queue in zip(tx_queues, device.others, strict=True):
                pumps.append(
                    make(
                        tx_queue,
                        queue,
                        rx_frames=0,
                        event_bytes=TX_QUEUE_EVENT_RING_BYTES,
                        capture_bytes=TX_QUEUE_CAPTURE_RING_BYTES,
                    )
                )
            pump = pumps[0] if len(pumps) == 1 else TxQueues(pumps)
            if is_connected:
                # The CM reads the socket of the built-in HCA, in which packets of a restart may wait: the
                # queue pair that takes them, and its buffers, come first.
                for each in (port,) if joined is None else joined.ports:
                    if each is not None:
                        each.cm()
        except BaseException:
            fabric.close()
            for opened in pumps:
                opened.close()
            raise
        return cls(
            config,
            port,
            device,
            params,
            datagram_mtu_bytes,
            mtu_bytes,
            fabric,
            pump,
            guest_qpns,
            joined,
        )

    def can_move(self, rails: Rails) -> bool:
        """Return whether this data path has a queue pair on the active rail, and on all whose device is
        there."""
        joined = self.joined
        return joined is not None and joined.ports == rails.ports and joined.has(rails.active)

    def follow(self, rails: Rails, now: float) -> Self:
        """Carry the traffic by the rails that are up and the active one, if that `can_move`; return the data
        path with the port of the active rail."""
        assert self.joined is not None, "`can_move`"
        self.joined.follow(rails.active, rails.up(now))
        return self if self.port is rails.port else replace(self, port=rails.port)

    @property
    def hwaddr(self) -> HwAddr:
        """Our 20-byte address; the GID of an open port may change."""
        flags = RC_FLAG if _accepts(self.config, self.port) else 0
        return HwAddr(self.fabric.qpn, self.port.info.gid, flags)

    @property
    def event_fd(self) -> int | None:
        """A descriptor that is readable while the port has events for `Port.active`; None where only
        polling shows them."""
        return self.fabric.event_fd

    def connect(
        self, loop: asyncio.AbstractEventLoop, counts: Counter[str], observe: Observer
    ) -> Connections:
        """Make the connections of this data path, as its sending mode has them."""
        if not self.config.is_connected:
            return Connections(self.fabric)
        from ipoibu.endpoint.datapath.rc_shell import RcShell  # only connected mode needs it

        assert isinstance(self.pump, _core.Pump), "one queue: _check_queues"
        return RcShell(
            loop,
            self.pump,
            self.fabric,
            self.port.cm(),
            config=self.rc_config(),
            counts=counts,
            observe=observe,
        )

    def rc_config(self) -> RcConfig:
        """Return the values of connections over the port."""
        from ipoibu.proto.rc.connection import Profile, RcConfig  # only connected mode needs them

        takes_superframes = sys.byteorder == "little" and set(self.device.offload) >= _SUPERFRAMES
        return RcConfig(
            hwaddr=replace(self.hwaddr, flags=0),
            datagram_mtu_bytes=self.datagram_mtu_bytes,
            path_mtu_bytes=self.port.info.active_mtu_bytes,
            packet_bytes=self.port.info.datagram_bytes or 0,
            receive_mtu_bytes=self.mtu_bytes + ENCAP_LEN,
            superframe_bytes=SUPERFRAME_BYTES_MAX if takes_superframes else 0,
            forms=self.port.cm().forms,
            profile=Profile(self.config.cm_profile),
            pkey=self.params.own_pkey,
            idle_s=self.config.connection_idle_s,
        )

    def close(self) -> None:
        """Destroy the queue pair and free the pump, which the caller has stopped. Safe to repeat."""
        self.fabric.close()
        self.pump.close()


def mtus_of(config: EndpointConfig, params: PartitionParams) -> tuple[int, int]:
    """The IP MTU of datagrams, and that of the interface; `UsageError` if the link does not carry it."""
    if not config.is_connected:
        mtu_bytes = ip_mtu(params, config.mtu, ipv6=False)
        return mtu_bytes, mtu_bytes
    mtu_bytes = config.mtu or CONNECTED_MTU
    return min(ip_mtu(params, None, ipv6=False), mtu_bytes), mtu_bytes


def _tcp_packet_bytes(device: PacketDevice, port: SharedPort, mtu_bytes: int) -> int:
    """The longest packet of TCP that the kernel shall make for an interface of ours, whose frames it limits
    (`ipoibu.host.kernel_interface`), too; 0: any."""
    if not isinstance(device, _core.TunPacketDevice) or not device.owned:
        return 0
    frames = tcp_frames(mtu_bytes, port.info.train_bytes)
    return 0 if frames is None else frames.packet_bytes


def _accepts(config: EndpointConfig, port: SharedPort) -> bool:
    """Return whether peers may connect to us."""
    return config.is_connected and port.cm().accepts


def queues_of(device: PacketDevice) -> int:
    return 1 + len(device.others)


def _check_queues(config: EndpointConfig, port: SharedPort, device: PacketDevice) -> None:
    if config.queues != queues_of(device):
        raise UsageError(
            f"{config.name}: {config.queues} queues need a TUN that has as many, not {queues_of(device)}"
        )
    if config.queues > 1 and not port.capabilities.tx_queues:
        raise UsageError(
            f"{port.info.device}: this device has one queue only (on iWARP, one thread owns a connection)"
        )


def _open_fabric(
    config: EndpointConfig,
    port: SharedPort,
    params: PartitionParams,
    datagram_mtu_bytes: int,
    ports: Ports,
) -> tuple[Fabric, RailsFabric | None]:
    """The second fabric is the first one, if it has several rails."""
    joined = ports.open_joined(config, port, params)
    if joined is not None:
        return joined, joined
    return _open_single(config, port, params, datagram_mtu_bytes), None


def _open_single(
    config: EndpointConfig, port: SharedPort, params: PartitionParams, datagram_mtu_bytes: int
) -> Fabric:
    if config.mesh is None:
        if not port.capabilities.multicast:
            raise UsageError(
                f"{port.info.device}: IPv4 ({port.info.gid.ip}) carries no multicast: name another host of"
                " the link with --peer, on every host, or have the device use an IPv6 address"
            )
        return _open_datagrams(config, port, params)
    if port.capabilities.mesh:
        return port.open_mesh(params, config.mesh)
    if port.sa is not None:
        raise UsageError(
            f"{port.info.device}/{port.info.port}: peers are for links without a subnet administrator;"
            " here an administrator knows the groups: leave --peer out"
        )
    from ipoibu.fabric.unicast.fabric import UnicastFabric  # few links need it

    inner = _open_datagrams(config, port, params)
    try:
        return UnicastFabric.open(
            inner,
            port.info,
            params,
            config.mesh,
            port.receptions,
            mtu_bytes=datagram_mtu_bytes,
            takes_connections=_accepts(config, port),
            underlay=port.underlay,
        )
    except BaseException:
        inner.close()
        raise


def _open_datagrams(config: EndpointConfig, port: SharedPort, params: PartitionParams) -> Fabric:
    if config.is_connected:
        return port.open_connected(params)
    return port.open_ud(params)


def _open_guest_queue_pairs(config: EndpointConfig, fabric: Fabric) -> tuple[Qpn, ...]:
    """In connected mode the guests share: a connection belongs to the interface's hardware address, and to
    another one peers would send by datagram."""
    if config.ethernet is None or config.is_connected:
        return ()
    return tuple(fabric.open_guest_queue_pairs(config.ethernet.queue_pairs))


def _pump_error(device: str, error: OSError) -> LinkError:
    what = os.strerror(error.errno or 0)
    if error.errno == errno.ENOMEM:  # an RDMA device pins the packet frames
        what += (
            f"; {FRAMES_MIN} packet frames need 2 MiB of locked memory: ulimit -l unlimited"
            " (a service: LimitMEMLOCK=infinity)"
        )
    return LinkError(f"{device}: cannot start the data path: {what}")
