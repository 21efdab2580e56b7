# SPDX-License-Identifier: BSD-2-Clause
"""The link of a real port: the built-in HCA's, or that of an RDMA device.

Each queue pair of the tester but `GSI` and `RC` is a UD queue pair of the port. The port's link has the
parameters that the subnet administrator says, where there is one, or those of the options.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from ipoibu.base.addr import DEFAULT_PKEY, HWADDR_LEN, Gid, HwAddr, PKey, Qpn
from ipoibu.base.errors import LinkError, UsageError
from ipoibu.base.ib import Destination, PartitionParams, RcAttributes
from ipoibu.base.limits import (
    CONFORM_MEET_LOOK_S,
    CONFORM_MEET_S,
    ENCAP_LEN,
    RDMACM_ACK_TIMEOUT_CODE,
    RDMACM_RETRIES,
    RDMACM_RNR_RETRIES,
)
from ipoibu.conform.link import CannotSend, Heard, Link, LinkParams, QueuePair
from ipoibu.fabric.base import Fabric, MeshOptions, Port
from ipoibu.fabric.cm.gsi import GsiPort
from ipoibu.fabric.device import open_port
from ipoibu.fabric.raw_link import open_raw_link
from ipoibu.fabric.raw_queue_pair import RawConnection, RawQueuePair, wait

LINK_QUEUE_PAIRS: Final = QueuePair.MINE, QueuePair.OTHER, QueuePair.WATCHER
_MAD_BYTES: Final = 256
_GSI_QPN: Final = Qpn(1)
_OTHER_QKEY: Final = 0x00000001  # the bit that differs: not bit 31, a controlled key's
_OTHER_PKEY: Final = 0x0001


class PortLink(Link):
    """Opens the port `device`; the other arguments are those of `ipoibu up`, and `mtu_bytes` is the IP MTU.

    With `peers` the link has no multicast: each of the link's queue pairs is a host of its own, which meets
    the peers and listens at a TCP port of its own, the first one at that of `peers`.

    `NoSuchDevice`, `NotPermitted`, `LinkError`, `UsageError`: the port or its link does not open.
    """

    def __init__(
        self,
        device: str,
        port: int = 1,
        *,
        pkey: PKey = DEFAULT_PKEY,
        qkey: int | None = None,
        mtu_bytes: int | None = None,
        partitions: Path | None = None,
        peers: MeshOptions | None = None,
    ) -> None:
        self._undo = ExitStack()
        self._peers = peers
        self._gsi: GsiPort | None = None
        self._connection: RawConnection | None = None
        self._joined: set[Gid] = set()
        self._heard: deque[Heard] = deque()
        self._queue_pairs: dict[QueuePair, RawQueuePair] = {}
        self._lacking: dict[QueuePair, str] = {}  # why there is no such queue pair
        try:
            self._port: Final = self._open(device, port)
            self._link: Final = open_raw_link(
                self._port, pkey=pkey, qkey=qkey, mtu_bytes=mtu_bytes, partitions=partitions
            )
            self._open_queue_pairs()
            if peers is not None:
                self._meet()
        except BaseException:
            self.close()
            raise

    def _open(self, device: str, number: int) -> Port:
        port = open_port(device, number, mesh=self._peers)
        self._undo.callback(port.close)
        if self._peers is None and not port.capabilities.multicast:
            raise UsageError(
                f"{device}: IPv4 ({port.info.gid.ip}) carries no multicast: name a peer of the link, or have"
                " the device use an IPv6 address"
            )
        if self._peers is not None and port.sa is not None:
            raise UsageError(f"{device}: peers are for links without a subnet administrator")
        return port

    def _open_queue_pairs(self) -> None:
        params = self._link.params
        for name in LINK_QUEUE_PAIRS:
            self._open_queue_pair(name, params)
        wrong_qkey = replace(params, qkey=params.qkey ^ _OTHER_QKEY)
        self._open_queue_pair(QueuePair.WRONG_QKEY, wrong_qkey)
        try:
            other = self._other_pkey()
            wrong_pkey = replace(params, pkey=other.full, is_limited=not other.is_full)
            self._open_queue_pair(QueuePair.WRONG_PKEY, wrong_pkey)
        except LinkError as error:
            self._lacking[QueuePair.WRONG_PKEY] = str(error)

    def _open_queue_pair(self, name: QueuePair, params: PartitionParams) -> None:
        has_connections = name is QueuePair.MINE and self._port.capabilities.rc
        fabric = (
            self._port.open_connected(params) if has_connections else self._port.open_ud(params)
        )
        if self._peers is not None and name in LINK_QUEUE_PAIRS:
            fabric = self._among_peers(fabric, self._peers, LINK_QUEUE_PAIRS.index(name))
        queue_pair = RawQueuePair(fabric, has_connections=has_connections)
        self._undo.callback(queue_pair.close)
        self._queue_pairs[name] = queue_pair

    def _among_peers(self, fabric: Fabric, peers: MeshOptions, number: int) -> Fabric:
        """Return the fabric with copies to the peers in place of multicast."""
        from ipoibu.fabric.unicast.fabric import UnicastFabric  # few links need it
        from ipoibu.fabric.unicast.reception import Receptions

        params = self._link.params
        try:
            return UnicastFabric.open(
                fabric,
                self._port.info,
                params,
                replace(peers, port=peers.listen_port + number),
                Receptions(),
                mtu_bytes=params.mtu_bytes - ENCAP_LEN,
                underlay=self._port.underlay,
            )
        except BaseException:
            fabric.close()
            raise

    def _meet(self) -> None:
        """Wait until each queue pair of the link has met a peer beside our own queue pairs."""
        waiting = [self._queue_pairs[name].fabric for name in LINK_QUEUE_PAIRS]
        end = self.now() + CONFORM_MEET_S
        while waiting := [fabric for fabric in waiting if not self._has_met(fabric)]:
            if self.now() >= end:
                raise LinkError(f"{self._port.info.device}: no peer of the link answers")
            time.sleep(CONFORM_MEET_LOOK_S)

    def _has_met(self, fabric: Fabric) -> bool:
        own = [self.address(name) for name in LINK_QUEUE_PAIRS]
        live = (it["peer"] for it in fabric.peers() if it["state"] == "live")
        return any(HwAddr.parse(peer).pack() not in own for peer in live)

    def _other_pkey(self) -> PKey:
        """Return the key of another partition: one in the port's table, where an SA fills that."""
        ours = self._link.params.pkey.full
        keys = () if self._port.sa is None else self._port.sa.info.pkeys
        others = [key for key in keys if key.full != ours and key & 0x7FFF]
        if others:
            return max(others)  # the full key of a partition of which the table has both
        other = PKey(ours ^ _OTHER_PKEY)
        return other if other & 0x7FFF else PKey(ours ^ 2 * _OTHER_PKEY)

    @property
    def params(self) -> LinkParams:
        params = self._link.params
        return LinkParams(params.pkey, params.qkey, params.mtu_bytes - ENCAP_LEN, params.scope)

    @property
    def description(self) -> str:
        info, params = self._port.info, self._link.params
        below = f" on {info.netdev}" if info.netdev is not None else ""
        return (
            f"{info.device}/{info.port} ({info.link_layer}{below}), GID {info.gid}, P_Key {params.pkey}, "
            f"Q_Key {params.qkey:#x}, MTU {params.mtu_bytes - ENCAP_LEN}"
        )

    def now(self) -> float:
        return time.monotonic()

    def address(self, queue_pair: QueuePair) -> bytes:
        return HwAddr(self._raw(queue_pair).qpn, self._port.info.gid).pack()

    def _raw(self, queue_pair: QueuePair) -> RawQueuePair:
        if queue_pair not in self._queue_pairs:
            why = self._lacking.get(queue_pair, f"{queue_pair.name} has no hardware address")
            raise CannotSend(why)
        return self._queue_pairs[queue_pair]

    # Datagrams

    def send(self, queue_pair: QueuePair, to: bytes, frame: bytes) -> None:
        peer = _hwaddr(to)
        if queue_pair is QueuePair.GSI:
            self._send_gsi(peer.gid, frame)
            return
        raw = self._raw(queue_pair)
        if len(frame) > raw.mtu_bytes:
            raise CannotSend(f"a datagram has at most {raw.mtu_bytes} bytes, not {len(frame)}")
        try:
            raw.send(self._destination(peer.gid, peer.qpn), frame)
        except OSError as error:
            raise CannotSend(f"{self._port.info.device}: {error.strerror}") from error

    def _destination(self, gid: Gid, qpn: Qpn) -> Destination:
        try:
            return self._link.destination(gid, qpn)
        except LinkError as error:
            raise CannotSend(str(error)) from error

    def _send_gsi(self, gid: Gid, frame: bytes) -> None:
        if len(frame) != _MAD_BYTES:
            raise CannotSend(f"a management datagram has {_MAD_BYTES} bytes, not {len(frame)}")
        gsi = self._open_gsi()
        if not gsi.send(self._destination(gid, _GSI_QPN), self._link.params.pkey, frame):
            raise CannotSend(f"{self._port.info.device}: queue pair 1 does not take the datagram")

    def _open_gsi(self) -> GsiPort:
        """Open queue pair 1 at the first use: on some ports the kernel has it."""
        if self._gsi is None:
            try:
                self._gsi = self._port.open_gsi()
            except LinkError as error:
                raise CannotSend(str(error)) from error
            self._undo.callback(self._gsi.close)
        return self._gsi

    def receive(self, until_s: float) -> Heard | None:
        while not self._heard:
            self._heard.extend(self._arrivals())
            if self._heard:
                break
            if self.now() >= until_s:
                return None
            self._wait(until_s)
        return self._heard.popleft()

    def _wait(self, until_s: float) -> None:
        readable = []
        if self._gsi is not None:
            self._gsi.arm()
            readable.append(self._gsi.fd)
            if (wait_ms := self._gsi.wait_ms()) is not None:
                until_s = min(until_s, self.now() + wait_ms / 1000)
        wait(self._queue_pairs.values(), until_s, readable)

    def _arrivals(self) -> Iterator[Heard]:
        """Yield at most one arrival of each queue pair, so that none of them starves."""
        for name, raw in self._queue_pairs.items():
            got = raw.receive()
            if got is not None and not self._is_own(got.sgid, got.qpn):
                sgid, dgid = (None if gid is None else gid.raw for gid in (got.sgid, got.dgid))
                yield Heard(self.now(), name, got.frame, got.qpn, sgid, dgid)
        message = self._queue_pairs[QueuePair.MINE].receive_message()
        connection = self._connection
        if message is not None and connection is not None and message[1] == connection.qpn:
            yield Heard(self.now(), QueuePair.RC, message[0])
        if self._gsi is not None and (mad := self._gsi.receive()) is not None:
            source, raw_mad = mad
            sgid = None if source.gid is None else source.gid.raw
            yield Heard(self.now(), QueuePair.GSI, raw_mad, source.qpn, sgid)

    def _is_own(self, sgid: Gid | None, qpn: Qpn) -> bool:
        """Return whether it is the echo of our own datagram to a group (E8)."""
        return sgid == self._port.info.gid and qpn in [
            raw.qpn for raw in self._queue_pairs.values()
        ]

    # Groups

    def join(self, mgid: bytes) -> None:
        group = Gid(mgid)
        if group in self._joined:
            return
        try:
            self._link.join(group, self._queue_pairs[QueuePair.MINE].fabric)
        except LinkError as error:
            raise CannotSend(str(error)) from error
        self._joined.add(group)

    def leave(self, mgid: bytes) -> None:
        group = Gid(mgid)
        if group not in self._joined:
            return
        self._joined.discard(group)
        try:
            self._link.leave(group, self._queue_pairs[QueuePair.MINE].fabric)
        except LinkError as error:
            raise CannotSend(str(error)) from error

    # Connections

    def open_connection(self) -> int:
        self.close_connection()
        try:
            self._connection = self._queue_pairs[QueuePair.MINE].open_connection()
        except LinkError as error:
            raise CannotSend(str(error)) from error
        return self._connection.qpn

    def connect(self, to: bytes, qpn: int, path_mtu: int, receive_psn: int, send_psn: int) -> None:
        attributes = RcAttributes(
            self._destination(_hwaddr(to).gid, Qpn(qpn)),
            path_mtu,
            receive_psn,
            send_psn,
            RDMACM_ACK_TIMEOUT_CODE,
            RDMACM_RETRIES,
            RDMACM_RNR_RETRIES,
        )
        try:
            self._connected().program(attributes)
        except LinkError as error:
            raise CannotSend(str(error)) from error

    def send_message(self, message: bytes) -> None:
        try:
            self._connected().send(message)
        except OSError as error:
            raise CannotSend(f"{self._port.info.device}: {error.strerror}") from error

    def _connected(self) -> RawConnection:
        if self._connection is None:
            raise CannotSend("there is no connection")
        return self._connection

    def close_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        self._undo.close()  # in the opposite order; the port leaves the groups


def _hwaddr(raw: bytes) -> HwAddr:
    if len(raw) != HWADDR_LEN:
        raise ValueError(f"a hardware address has {HWADDR_LEN} bytes, not {len(raw)}")
    return HwAddr.unpack(raw)
