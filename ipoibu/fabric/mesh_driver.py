# SPDX-License-Identifier: BSD-2-Clause
"""Carries out what the machine of a mesh decides: connections by librdmacm, queue pairs by pyverbs."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import select
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final

from ipoibu.addr import Qpn
from ipoibu.errors import IpoibuError, LinkError
from ipoibu.fabric.rdmacm import CmEvent, CmEventType, CmId, EventChannel, SocketAddress
from ipoibu.fabric.seeds import Seeds, SeedWatch
from ipoibu.fabric.verbs_objects import ConnectedObjects, VerbsDevice
from ipoibu.limits import MESH_PEERS_MAX, MESH_STALL_S, RDMACM_RESOLVE_S
from ipoibu.proto.effects import Log
from ipoibu.proto.mesh import (
    Accept,
    Close,
    Connect,
    Effect,
    Establish,
    Mesh,
    PeerInfo,
    Refuse,
    Tell,
)
from ipoibu.wire.mesh import Hello, MeshAddress

_log = logging.getLogger(__name__)

SEND_DEPTH: Final = 128  # of one queue pair; ext/verbs/mesh_state.h
_ROUND: Final = 64  # events handled before timers have a turn
_CHECK_S: Final = 1.0
_RESOLVE_MS: Final = int(RDMACM_RESOLVE_S * 1000)
_EVERYWHERE: Final = (IPv4Address("0.0.0.0"), IPv6Address("::"))


@dataclass(slots=True)
class _End:
    """Our end of a connection: rdma_cm's, then the queue pair's, with its number in the mesh."""

    id: CmId
    qp: Any = None
    peer: int | None = None


class MeshDriver:
    """The connections of one interface, on a thread of its own from `start` to `close`."""

    def __init__(
        self,
        device: VerbsDevice,
        objects: ConnectedObjects,
        native: Any,
        hello: Hello,
        seeds: Seeds,
        *,
        port: int,
        recv_depth: int,
    ) -> None:
        self._device, self._port, self._objects = device, port, objects
        self._native, self._hello, self._recv_depth = native, hello, recv_depth
        self._mesh = Mesh(hello, random.Random())
        self._ends: dict[int, _End] = {}
        self._handles: dict[CmId, int] = {}
        self._peers: dict[int, int] = {}  # number in the mesh: handle
        self._counts: Counter[str] = Counter()
        self._infos: list[PeerInfo] = []
        self._news: list[frozenset[MeshAddress]] = []
        self._lock = threading.Lock()  # of what other threads read and write
        self._closing = False
        self._check_at = 0.0
        self._seeds = SeedWatch(seeds, self._seeds_read)
        self._channel = EventChannel()
        try:
            self._listeners = [self._listen(ip) for ip in _EVERYWHERE]
        except BaseException:
            self._channel.close()
            raise
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="ipoibu-mesh", daemon=True)

    def start(self) -> None:
        """Nobody is connected to before. Safe to repeat."""
        if not self._thread.is_alive():
            self._thread.start()
            self._seeds.start()

    def counters(self) -> Counter[str]:
        with self._lock:
            return self._counts.copy()

    def peers(self) -> list[PeerInfo]:
        with self._lock:
            return list(self._infos)

    def close(self) -> None:
        """End all connections and queue pairs. Safe to repeat."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
        self._seeds.close()
        os.eventfd_write(self._wake_fd, 1)
        if self._thread.is_alive():
            self._thread.join()
        for handle in list(self._ends):
            self._end(handle)
        self._channel.close()
        os.close(self._wake_fd)

    def _listen(self, ip: IPv4Address | IPv6Address) -> CmId:
        listener = self._channel.create()
        try:
            listener.bind(SocketAddress(ip, self._hello.port))
            listener.listen(MESH_PEERS_MAX)
        except OSError as error:
            raise LinkError(
                f"{self._device.name}: TCP port {self._hello.port}: {error.strerror}; "
                "`rdma resource show cm_id` tells whose it is"
            ) from error
        return listener

    def _seeds_read(self, addresses: frozenset[MeshAddress]) -> None:
        with self._lock:
            self._news.append(addresses)
            if not self._closing:
                os.eventfd_write(self._wake_fd, 1)

    # ---- the thread

    def _run(self) -> None:
        poll = select.poll()
        for fd in (self._channel.fileno(), self._native.fileno(), self._wake_fd):
            poll.register(fd, select.POLLIN)
        while not self._closing:
            try:
                wait_s = self._serve()
            except Exception:  # a defect of ours: one event is lost, the mesh stays
                self._counts["mesh_defect"] += 1
                _log.exception("%s: the mesh did not handle an event", self._device.name)
                wait_s = _CHECK_S
            poll.poll(max(0.0, wait_s) * 1000 + 1 if wait_s > 0 else 0)
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake_fd)

    def _serve(self) -> float:
        """A round of what is there; how long to sleep then, in seconds."""
        now = time.monotonic()
        event = None
        for _ in range(_ROUND):
            event = self._channel.event()
            if event is None:
                break
            self._event(now, event)
        note = None
        for _ in range(_ROUND):
            note = self._native.next()
            if note is None:
                break
            self._noted(now, *note)
        with self._lock:
            news, self._news = self._news, []
        for addresses in news:
            self._perform(now, self._mesh.seeds(now, addresses))
        if self._check_at <= now:
            self._check_at = now + _CHECK_S
            self._native.check(MESH_STALL_S)
        deadline = self._mesh.deadline()
        if deadline is not None and deadline <= now:
            self._perform(now, self._mesh.timer(now))
            deadline = self._mesh.deadline()
        with self._lock:
            self._infos = self._mesh.peers(now)
            self._counts.update(self._mesh.counts)
            self._mesh.counts.clear()
        if event is not None or note is not None:
            return 0.0  # there may be more
        return min(self._check_at, deadline or self._check_at) - time.monotonic()

    def _noted(self, now: float, peer: int, note: bytes) -> None:
        handle = self._peers.get(peer)
        if handle is None:
            return
        mesh = self._mesh
        self._perform(now, mesh.heard(now, handle, note) if note else mesh.ended(now, handle))

    def _event(self, now: float, event: CmEvent) -> None:
        if event.type is CmEventType.CONNECT_REQUEST:
            self._requested(now, event)
            return
        handle = self._handles.get(event.id)
        if handle is None:
            return
        mesh = self._mesh
        try:
            match event.type:
                case CmEventType.ADDR_RESOLVED:
                    self._check_device(event.id)
                    event.id.resolve_route(_RESOLVE_MS)
                case CmEventType.ROUTE_RESOLVED:
                    qpn = self._make(self._ends[handle])
                    event.id.connect(
                        qpn, self._hello.pack(), retries=0, rnr_retries=0, has_srq=False
                    )
                case CmEventType.ESTABLISHED:
                    self._perform(now, mesh.established(now, handle, event.private))
                case CmEventType.ADDR_CHANGE | CmEventType.TIMEWAIT_EXIT:
                    pass
                case _:
                    self._perform(now, mesh.ended(now, handle, event.private))
        except (OSError, IpoibuError) as error:
            _log.info("%s: a connection cannot go on: %s", self._device.name, error)
            self._perform(now, mesh.ended(now, handle))

    def _check_device(self, cm_id: CmId) -> None:
        if cm_id.device != self._device.name:
            raise LinkError(f"the way there is by {cm_id.device or 'no RDMA device'}")

    def _requested(self, now: float, event: CmEvent) -> None:
        try:
            self._check_device(event.id)
            source = event.id.target.ip
        except LinkError as error:
            _log.info("%s: a request was refused: %s", self._device.name, error)
            event.id.close()
            return
        handle = self._mesh.handle()
        self._ends[handle] = _End(event.id)
        self._handles[event.id] = handle
        self._perform(now, self._mesh.requested(now, handle, source, event.private))

    # ---- effects

    def _perform(self, now: float, effects: Iterable[Effect]) -> None:
        todo = list(effects)
        while todo:
            effect = todo.pop(0)
            try:
                self._one(effect)
            except (OSError, IpoibuError) as error:
                _log.info("%s: %s", self._device.name, error)
                if not isinstance(effect, Log):
                    todo += self._mesh.ended(now, effect.handle)

    def _one(self, effect: Effect) -> None:
        match effect:
            case Connect(handle, address):
                self._connect(handle, address)
            case Accept(handle):
                end = self._ends[handle]
                qpn = self._make(end)
                end.id.accept(qpn, self._hello.pack(), rnr_retries=0, has_srq=False)
            case Refuse(handle):
                with contextlib.suppress(OSError):
                    self._ends[handle].id.reject(self._hello.pack())
                self._end(handle)
            case Establish(handle, hello, we_began):
                self._native.establish(
                    self._number(handle),
                    gid=hello.hwaddr.gid.raw,
                    qpn=hello.hwaddr.qpn,
                    mtu_bytes=hello.mtu_bytes,
                    window=hello.window,
                    we_began=we_began,
                )
                _log.info("%s: connected to %s", self._device.name, hello.hwaddr.gid)
            case Tell(handle, note):
                if not self._native.tell(self._number(handle), note):
                    self._counts["mesh_untold"] += 1
            case Close(handle):
                self._end(handle)
            case Log(level, text):
                _log.log(level, "%s: %s", self._device.name, text)

    def _number(self, handle: int) -> int:
        peer = self._ends[handle].peer
        assert peer is not None, "it has a queue pair"
        return peer

    def _connect(self, handle: int, address: MeshAddress) -> None:
        cm_id = self._channel.create()
        self._ends[handle] = _End(cm_id)
        self._handles[cm_id] = handle
        ip = address.ip
        scope = 0
        if isinstance(ip, IPv6Address) and ip.scope_id is not None:
            scope = int(ip.scope_id)
        cm_id.resolve_address(SocketAddress(ip, address.port, scope), _RESOLVE_MS)

    def _make(self, end: _End) -> Qpn:
        """A queue pair with its receives posted: iWARP wants them before there is a connection."""
        end.qp = self._device.create_mesh_rc(self._objects, SEND_DEPTH, self._recv_depth)
        self._device.raise_rc(end.qp, self._port, 0)
        end.peer = self._native.add(end.qp)
        self._peers[end.peer] = self._handles[end.id]
        return Qpn(end.qp.qp_num)

    def _end(self, handle: int) -> None:
        """The connection, the queue pair, and then what was posted to it."""
        end = self._ends.pop(handle, None)
        if end is None:
            return
        self._handles.pop(end.id, None)
        if end.peer is not None:
            with contextlib.suppress(OSError):  # it may never have been one
                end.id.disconnect()
        end.id.close()
        if end.qp is not None:
            self._device.destroy(end.qp)
        if end.peer is not None:
            self._peers.pop(end.peer, None)
            self._native.remove(end.peer)
