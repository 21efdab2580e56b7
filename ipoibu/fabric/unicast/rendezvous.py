# SPDX-License-Identifier: BSD-2-Clause
"""The connections of a unicast link: carries out the effects of `proto.mesh` by TCP.

    dial:    connect, our greeting; the peer's greeting opens the connection, a refusal ends it
    accept:  the peer's greeting, ours; the peer's first control message confirms

A greeting carries the hardware address, and so the GID and queue pair number that datagrams come from. The
core drops datagrams from any other source.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import select
import time
from dataclasses import dataclass
from typing import Final

from ipoibu._core import UnicastLink
from ipoibu.addr import IpAddress
from ipoibu.errors import BadFrame
from ipoibu.fabric.effect_loop import wait_ms
from ipoibu.fabric.mesh.mesh_worker import MeshWorker
from ipoibu.fabric.unicast.stream import Stream, listener
from ipoibu.ib import PortInfo
from ipoibu.limits import CM_ROUND, MESH_ANSWER_S, UNICAST_DEAF_S, UNICAST_GREETING_MAX
from ipoibu.proto.mesh import (
    Accept,
    Dial,
    Handle,
    Hangup,
    MeshConfig,
    MeshEffect,
    Name,
    Refuse,
    SendControl,
)
from ipoibu.wire.mesh import Greeting, Locator
from ipoibu.wire.mesh_stream import FrameKind

_log = logging.getLogger(__name__)

_ROOM: Final = select.EPOLLIN | select.EPOLLOUT


@dataclass(slots=True, eq=False)
class _Guest:
    """A stream of a host that has not greeted us yet."""

    stream: Stream
    deadline: float


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
    """Runs the mesh of a unicast link."""

    def __init__(self, info: PortInfo, core: UnicastLink, config: MeshConfig) -> None:
        """Begin to listen, or raise `LinkError`."""
        super().__init__(core, config, info.netdev)
        self._core, self._info = core, info
        self._wires: dict[Handle, _Wire] = {}
        self._owners: dict[int, _Wire | _Guest] = {}  # by descriptor
        self._guests: dict[_Guest, None] = {}  # the oldest first
        self._deaf_until: float | None = None  # the end of a pause without a free descriptor
        self._listener = listener(config.ours.port, f"{info.device}/{info.port}")
        self._epoll = select.epoll()
        self._epoll.register(self._listener, select.EPOLLIN)
        self._start()

    # ---- the thread

    def _filenos(self) -> tuple[int, ...]:
        return (self._epoll.fileno(),)

    def _serve(self) -> float | None:
        events = self._epoll.poll(0, CM_ROUND)
        for fd, what in events:
            with self._guarded("a connection of the mesh"):
                if fd == self._listener.fileno():
                    self._greet()
                else:
                    self._ready(fd, what)
        now = time.monotonic()
        with self._guarded("a timer of the mesh"):
            self._effects.run_timer(now)
            self._dismiss(now)
            self._listen_again(now)
        if len(events) == CM_ROUND:
            return 0.0
        return self._wait_ms(now)

    def _wait_ms(self, now: float) -> float | None:
        deadlines = [self._mesh.deadline(), self._deaf_until]
        deadlines += [it.deadline for it in itertools.islice(self._guests, 1)]
        return wait_ms(min((it for it in deadlines if it is not None), default=None), now)

    def _disconnect_all(self) -> None:
        """Do nothing: `_release` closes the streams, and no peer has to answer."""

    def _release(self) -> None:
        self._effects.stop()
        for owner in list(self._owners.values()):
            owner.stream.close()
        for handle in self._wires:
            self._core.remove(handle)
        self._wires.clear()
        self._owners.clear()
        self._guests.clear()
        self._listener.close()
        self._epoll.close()

    # ---- hosts that have not greeted us

    def _greet(self) -> None:
        """Accept a connection; above the cap of hosts that have not greeted us, drop the oldest."""
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):  # the listener would stay readable
                self._counts["mesh_full"] += 1
                self._epoll.modify(self._listener, 0)
                self._deaf_until = time.monotonic() + UNICAST_DEAF_S
            return
        sock.setblocking(False)
        if len(self._guests) >= UNICAST_GREETING_MAX:
            self._drop_guest(next(iter(self._guests)))
        try:
            stream = Stream(sock, is_connected=True)
        except OSError:  # the connection has ended
            sock.close()
            return
        guest = _Guest(stream, time.monotonic() + MESH_ANSWER_S)
        self._guests[guest] = None
        self._watch(guest)

    def _listen_again(self, now: float) -> None:
        if self._deaf_until is not None and now >= self._deaf_until:
            self._deaf_until = None
            self._epoll.modify(self._listener, select.EPOLLIN)

    def _dismiss(self, now: float) -> None:
        for guest in list(self._guests):
            if guest.deadline > now:
                return
            self._drop_guest(guest)

    def _drop_guest(self, guest: _Guest) -> None:
        self._counts["mesh_no_answer"] += 1
        del self._guests[guest]
        self._close(guest)

    def _hear_untrusted(self, guest: _Guest) -> None:
        """Read a guest's greeting, and have the mesh judge it."""
        frames = guest.stream.take_untrusted()
        if frames == []:
            return
        del self._guests[guest]
        if frames is None or frames[0][0] is not FrameKind.GREETING:
            if frames is not None:
                self._counts["mesh_greeting"] += 1
            self._close(guest)
            return
        self._ask(guest.stream, guest.stream.source, frames)

    def _ask(
        self, stream: Stream, source: IpAddress, frames: list[tuple[FrameKind, bytes]]
    ) -> None:
        """Have the mesh judge a host that has greeted us; other frames may have followed at once."""
        handle = self._mesh.new_handle()
        wire = self._wires[handle] = self._owners[stream.fileno()] = _Wire(handle, stream, False)
        now = time.monotonic()
        self._effects.perform(self._mesh.requested(now, handle, source, frames[0][1]))
        try:
            self._messages_untrusted(wire, frames[1:])
        except BadFrame as error:
            self._broke(wire, error)

    # ---- connections

    def _ready(self, fd: int, what: int) -> None:
        owner = self._owners.get(fd)
        if owner is None:
            return
        try:
            if what & select.EPOLLOUT and owner.stream.writable():
                self._dialed(owner)
            if what & ~select.EPOLLOUT:
                self._read_untrusted(owner)
            self._watch(owner)
        except (OSError, BadFrame) as error:
            self._broke(owner, error)

    def _dialed(self, owner: _Wire | _Guest) -> None:
        assert isinstance(owner, _Wire), "guests dialed us"
        owner.stream.put(FrameKind.GREETING, self._greeting_to(owner.is_introduced))

    def _read_untrusted(self, owner: _Wire | _Guest) -> None:
        if isinstance(owner, _Guest):
            self._hear_untrusted(owner)
            return
        frames = owner.stream.take_untrusted()
        if frames is None:
            raise OSError(errno.ECONNRESET, "the peer closed the connection")
        self._messages_untrusted(owner, frames)

    def _messages_untrusted(self, wire: _Wire, frames: list[tuple[FrameKind, bytes]]) -> None:
        for kind, body in frames:
            if self._wires.get(wire.handle) is not wire:
                return
            now = time.monotonic()
            if kind is FrameKind.CONTROL and wire.has_greeted:
                self._effects.perform(self._mesh.control(now, wire.handle, body))
            elif kind is FrameKind.CONTROL and not wire.is_ours:
                wire.has_greeted = True
                self._effects.perform(self._mesh.established(now, wire.handle))
                self._hear(wire)
                self._effects.perform(self._mesh.control(now, wire.handle, body))
            elif kind is FrameKind.GREETING and wire.is_ours and not wire.has_greeted:
                wire.has_greeted = True
                self._effects.perform(self._mesh.opened(now, wire.handle, body))
            elif kind is FrameKind.REFUSAL and wire.is_ours and not wire.has_greeted:
                self._counts["mesh_refused"] += 1
                self._lose(wire, body)
            else:
                raise BadFrame("mesh_frame_kind")

    def _broke(self, owner: _Wire | _Guest, error: Exception) -> None:
        if isinstance(error, BadFrame):
            self._counts[error.reason] += 1
        if isinstance(owner, _Guest):
            self._guests.pop(owner, None)
            self._close(owner)
        elif self._wires.get(owner.handle) is owner:
            _log.log(
                logging.DEBUG if owner.has_greeted else logging.INFO,
                "%s: connection %d of the mesh ends: %s",
                self._info.device,
                owner.handle,
                error,
            )
            self._counts["mesh_failed"] += not owner.has_greeted
            self._lose(owner)

    def _lose(self, wire: _Wire, private: bytes = b"") -> None:
        self._part(wire)
        self._effects.perform(self._mesh.ended(time.monotonic(), wire.handle, private))

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
                    if self._wires[handle].is_ours:
                        self._hear(self._wires[handle])
            case SendControl(handle, message):
                self._put(handle, FrameKind.CONTROL, message)

    def _dial(self, handle: Handle, locator: Locator, is_introduced: bool) -> None:
        try:
            stream = Stream.dial(locator, self._scope(locator))
        except OSError as error:
            reason = error.strerror or error
            _log.info("%s: cannot connect to %s: %s", self._info.device, locator, reason)
            self._counts["mesh_failed"] += 1
            self._effects.perform(self._mesh.ended(time.monotonic(), handle))
            return
        wire = self._wires[handle] = _Wire(handle, stream, True, is_introduced)
        self._watch(wire)

    def _hear(self, wire: _Wire) -> None:
        """Have the core accept the peer's datagrams, if the connection still exists.

        A peer that dialed us has confirmed by now, so it accepts ours, and the connection that this one
        may replace has ended.
        """
        if wire.greeting is None or self._wires.get(wire.handle) is not wire:
            return
        hwaddr = wire.greeting.hwaddr
        try:
            self._core.add(wire.handle, hwaddr.gid.raw, hwaddr.qpn)
        except OSError as error:
            self._broke(wire, error)

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

    def _watch(self, owner: _Wire | _Guest) -> None:
        """Register with epoll the events that the stream waits for, unless the stream is closed."""
        fd = owner.stream.fileno()
        if fd < 0:
            return
        wanted = _ROOM if owner.stream.awaits_room else select.EPOLLIN
        if fd in self._owners:
            self._epoll.modify(fd, wanted)
        else:
            self._owners[fd] = owner
            self._epoll.register(fd, wanted)

    def _close(self, owner: _Wire | _Guest) -> None:
        self._owners.pop(owner.stream.fileno(), None)
        owner.stream.close()
