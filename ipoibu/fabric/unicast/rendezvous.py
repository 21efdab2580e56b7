# SPDX-License-Identifier: BSD-2-Clause
"""The connections of a unicast link: carries out the effects of `proto.mesh` by TCP.

    dial:    connect, our greeting; the peer's greeting opens the connection, a refusal ends it
    accept:  the peer's greeting, ours; the peer's first control message confirms

With a key, both sides exchange nonces before. A greeting carries the hardware address, and so the GID and
queue pair number that datagrams come from. The core drops datagrams from any other source.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import select
import time
from dataclasses import dataclass
from typing import Final

from ipoibu._core import UnicastLink
from ipoibu.base.addr import HwAddr, IpAddress, PKey
from ipoibu.base.errors import BadFrame
from ipoibu.base.ib import PortInfo
from ipoibu.base.limits import CM_ROUND
from ipoibu.fabric.mesh.mesh_worker import MeshWorker
from ipoibu.fabric.mesh.peer_key import PeerKey
from ipoibu.fabric.unicast.router import router_to
from ipoibu.fabric.unicast.stream import ROOM, Stream
from ipoibu.proto.machine.ratelimit import should_log
from ipoibu.proto.mesh.effects import (
    Accept,
    Dial,
    Handle,
    Hangup,
    MeshEffect,
    Met,
    Name,
    Refuse,
    SendControl,
)
from ipoibu.proto.mesh.mesh import MeshConfig
from ipoibu.wire import mesh_key
from ipoibu.wire.mesh import Greeting, Locator
from ipoibu.wire.mesh_key import Denial
from ipoibu.wire.mesh_stream import FrameKind

_log = logging.getLogger(__name__)

_DENIALS: Final = {
    Denial.KEY_WANTED: "that host has a key, and we have none: give --peer-key-file",
    Denial.KEY_UNKNOWN: "we have a key, and that host has none: give it --peer-key-file",
    Denial.KEY_WRONG: "that host has another key: compare the files of --peer-key-file",
}


@dataclass(slots=True, eq=False)
class _Wire:
    """One connection of the mesh, or an attempt at one. `is_ours`: we dialed."""

    handle: Handle
    stream: Stream
    is_ours: bool
    is_introduced: bool = False
    has_greeted: bool = False
    greeting: Greeting | None = None


class Rendezvous(MeshWorker):
    """Runs the mesh of a unicast link. A `Reception` hands it the hosts that have greeted us."""

    def __init__(
        self, info: PortInfo, core: UnicastLink, config: MeshConfig, key: PeerKey | None
    ) -> None:
        super().__init__(core, config, info.netdev)
        self._core, self._info = core, info
        self._key = key
        self._wires: dict[Handle, _Wire] = {}
        self._by_fd: dict[int, _Wire] = {}
        self._epoll = select.epoll()
        self._start()

    # ---- the thread

    def _filenos(self) -> tuple[int, ...]:
        return (self._epoll.fileno(),)

    def _serve(self) -> float | None:
        events = self._epoll.poll(0, CM_ROUND)
        # A connection that takes another one's place begins before that one ends.
        events.sort(key=self._has_greeted)
        for fd, what in events:
            with self._guarded("a connection of the mesh"):
                self._ready(fd, what)
        now = time.monotonic()
        with self._guarded("a timer of the mesh"):
            self._effects.run_timer(now)
        return 0.0 if len(events) == CM_ROUND else self._effects.wait_ms(now)

    def _has_greeted(self, event: tuple[int, int]) -> bool:
        wire = self._by_fd.get(event[0])
        return wire is not None and wire.has_greeted

    def _disconnect_all(self) -> None:
        """Do nothing: `_release` closes the streams, and no peer has to answer."""

    def _release(self) -> None:
        self._effects.stop()
        for handle, wire in self._wires.items():
            wire.stream.close()
            self._core.remove(handle)
        self._wires.clear()
        self._by_fd.clear()
        self._epoll.close()

    # ---- hosts that dial us, on the reception's thread

    @property
    def pkey(self) -> PKey:
        return self._mesh.config.ours.pkey

    @property
    def greeting(self) -> bytes:
        return self._greeting

    def count(self, reason: str) -> int:
        """Count the refusal of a host that has not greeted us, by its reason; return the new count."""
        with self._lock:
            self._counts[reason] += 1
            return self._counts[reason]

    def take(self, stream: Stream, frames: list[tuple[FrameKind, bytes]]) -> None:
        """Have the mesh judge a host whose greeting is the first frame; others may have followed at once."""
        with self._lock, self._guarded("a greeting"):
            if self._closing:
                stream.close()
                return
            handle = self._mesh.new_handle()
            wire = self._wires[handle] = _Wire(handle, stream, False)
            self._watch(wire)
            now = time.monotonic()
            source = stream.source
            self._effects.perform(self._mesh.note_requested(now, handle, source, frames[0][1]))
            try:
                self._messages_untrusted(wire, frames[1:])
            except BadFrame as error:
                self._broke(wire, error)
            self._wake()

    # ---- connections

    def _ready(self, fd: int, what: int) -> None:
        wire = self._by_fd.get(fd)
        if wire is None:
            return
        try:
            if what & select.EPOLLOUT and wire.stream.writable():
                self._note_dialed(wire)
            if what & ~select.EPOLLOUT:
                self._read_untrusted(wire)
            self._watch(wire)
        except (OSError, BadFrame) as error:
            self._broke(wire, error)

    def _note_dialed(self, wire: _Wire) -> None:
        if wire.stream.has_key:
            wire.stream.put_nonce()
        else:
            wire.stream.put(FrameKind.GREETING, self._greeting_to(wire.is_introduced))

    def _read_untrusted(self, wire: _Wire) -> None:
        frames = wire.stream.take_untrusted()
        if frames is None:
            raise OSError(errno.ECONNRESET, "the peer closed the connection")
        self._messages_untrusted(wire, frames)

    def _messages_untrusted(self, wire: _Wire, frames: list[tuple[FrameKind, bytes]]) -> None:
        for kind, body in frames:
            if self._wires.get(wire.handle) is not wire:
                return
            now = time.monotonic()
            if kind is FrameKind.NONCE and wire.is_ours and wire.stream.has_key:
                wire.stream.put(FrameKind.GREETING, self._greeting_to(wire.is_introduced))
            elif kind is FrameKind.CONTROL and wire.has_greeted:
                self._effects.perform(self._mesh.control(now, wire.handle, body))
            elif kind is FrameKind.CONTROL and not wire.is_ours:
                wire.has_greeted = True
                self._effects.perform(self._mesh.note_established(now, wire.handle))
                self._effects.perform(self._mesh.control(now, wire.handle, body))
            elif kind is FrameKind.GREETING and wire.is_ours and not wire.has_greeted:
                wire.has_greeted = True
                self._effects.perform(self._mesh.note_opened(now, wire.handle, body))
            elif kind is FrameKind.REFUSAL and wire.is_ours and not wire.has_greeted:
                self._counts["mesh_refused"] += 1
                self._lose(wire, body)
            elif kind is FrameKind.DENIAL and wire.is_ours and not wire.has_greeted:
                self._note_denied(wire, Denial.read_untrusted(body))
            else:
                raise BadFrame("mesh_frame_kind")

    def _note_denied(self, wire: _Wire, denial: Denial) -> None:
        self._counts["mesh_refused"] += 1
        if should_log(self._counts["mesh_refused"]):
            place, text = self._info.device, _DENIALS[denial]
            _log.warning("%s: the host at %s refuses us: %s", place, wire.stream.place, text)
        self._lose(wire)

    def _broke(self, wire: _Wire, error: Exception) -> None:
        is_key = False
        if isinstance(error, BadFrame):
            self._counts[error.reason] += 1
            is_key = error.reason in mesh_key.REASONS and should_log(self._counts[error.reason])
        if self._wires.get(wire.handle) is not wire:
            return
        if is_key:
            text = "%s: the host at %s did not prove our key: not connected; compare the key files"
            _log.warning(text, self._info.device, wire.stream.place)
        level = logging.DEBUG if wire.has_greeted else logging.INFO
        place = self._info.device
        _log.log(level, "%s: connection %d of the mesh ends: %s", place, wire.handle, error)
        self._counts["mesh_failed"] += not wire.has_greeted
        self._lose(wire)

    def _lose(self, wire: _Wire, private: bytes = b"") -> None:
        self._part(wire)
        self._effects.perform(self._mesh.note_ended(time.monotonic(), wire.handle, private))

    # ---- effects

    def _carry_out(self, effect: MeshEffect) -> None:
        match effect:
            case Dial(handle, locator, is_introduced):
                self._dial(handle, locator, is_introduced)
            case Accept(handle):
                self._put(handle, FrameKind.GREETING, self._greeting)
            case Refuse(handle):
                wire = self._wires[handle]
                with contextlib.suppress(OSError):  # the host is gone
                    wire.stream.put(FrameKind.REFUSAL, self._greeting)
                self._part(wire)
            case Hangup(handle):
                self._part(self._wires[handle])
            case Name(handle, greeting, _):
                if handle in self._wires:
                    self._wires[handle].greeting = greeting
            case Met(handle, former):
                if handle in self._wires:
                    self._hear(self._wires[handle], former)
            case SendControl(handle, message):
                self._put(handle, FrameKind.CONTROL, message)

    def _dial(self, handle: Handle, locator: Locator, is_introduced: bool) -> None:
        try:
            stream = Stream.dial(locator, self._scope(locator), self._key)
        except OSError as error:
            reason = error.strerror or error
            _log.info("%s: cannot connect to %s: %s", self._info.device, locator, reason)
            self._counts["mesh_failed"] += 1
            self._effects.perform(self._mesh.note_ended(time.monotonic(), handle))
            return
        wire = self._wires[handle] = _Wire(handle, stream, True, is_introduced)
        self._watch(wire)

    def _hear(self, wire: _Wire, former: Handle | None) -> None:
        """Have the core accept the peer's datagrams, and send to it, by this connection in place of the
        former one."""
        if wire.greeting is None:
            return
        hwaddr = wire.greeting.hwaddr
        if former is not None:
            self._core.remove(former)
        try:
            self._core.add(wire.handle, hwaddr.gid.raw, hwaddr.qpn)
        except OSError as error:
            self._broke(wire, error)
        else:
            self._warn_of_router(hwaddr, wire.stream.source)

    def _warn_of_router(self, hwaddr: HwAddr, source: IpAddress) -> None:
        """Count and log a peer that our datagrams do not reach: we have met across a router, which
        forwards nothing to link-local addresses."""
        if not self._info.gid.ip.is_link_local or source.is_link_local:
            return
        try:
            router = router_to(source)
        except OSError as error:
            _log.debug("%s: asking for the route to %s: %s", self._info.device, source, error)
            return
        if router is None:
            return
        self._counts["mesh_router"] += 1
        if should_log(self._counts["mesh_router"]):
            text = (
                "%s: peer %s at %s is behind the router %s, which forwards nothing to our link-local GIDs:"
                " start all hosts with --device soft:NETDEV,ipv4, or all with ,ipv6"
            )
            _log.warning(text, self._info.device, hwaddr, source, router)

    def _put(self, handle: Handle, kind: FrameKind, body: bytes) -> None:
        wire = self._wires.get(handle)
        if wire is None:
            return
        try:
            wire.stream.put(kind, body)
            self._watch(wire)
        except OSError as error:
            self._broke(wire, error)

    def _part(self, wire: _Wire) -> None:
        if self._wires.pop(wire.handle, None) is not None:
            self._core.remove(wire.handle)
            self._close(wire)

    # ---- descriptors

    def _watch(self, wire: _Wire) -> None:
        """Register with epoll the events that the stream waits for, unless the stream is closed."""
        fd = wire.stream.fileno()
        if fd < 0:
            return
        wanted = ROOM if wire.stream.awaits_room else select.EPOLLIN
        if fd in self._by_fd:
            self._epoll.modify(fd, wanted)
        else:
            self._by_fd[fd] = wire
            self._epoll.register(fd, wanted)

    def _close(self, wire: _Wire) -> None:
        self._by_fd.pop(wire.stream.fileno(), None)
        wire.stream.close()
