# SPDX-License-Identifier: BSD-2-Clause
"""Receives the hosts that dial us, until they have greeted us: at one TCP port for all interfaces of a
device's port.

The P_Key of a greeting chooses the interface. So a child interface shares its parent's TCP port.
"""

from __future__ import annotations

import errno
import functools
import itertools
import logging
import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ipoibu.base.errors import BadFrame, UsageError
from ipoibu.base.limits import CM_ROUND, DEAF_S, MESH_ANSWER_S, UNICAST_GREETING_MAX
from ipoibu.fabric.effect_loop import wait_ms
from ipoibu.fabric.mesh.peer_key import PeerKey
from ipoibu.fabric.unicast.rendezvous import Rendezvous
from ipoibu.fabric.unicast.stream import ROOM, Stream, listener
from ipoibu.fabric.worker import Worker
from ipoibu.proto.machine.ratelimit import should_log
from ipoibu.wire import mesh
from ipoibu.wire.mesh_key import Denial
from ipoibu.wire.mesh_stream import FrameKind

_log = logging.getLogger(__name__)

Frames = list[tuple[FrameKind, bytes]]

_DENIALS: Final = {
    Denial.KEY_WANTED: "%s: the host at %s shows no key: refused; give it --peer-key-file",
    Denial.KEY_UNKNOWN: "%s: the host at %s has a key, and we have none: refused; give --peer-key-file",
    Denial.KEY_WRONG: "%s: the host at %s has another key: refused; compare the files of"
    " --peer-key-file",
}
_BY_REASON: Final = {
    "mesh_key_missing": Denial.KEY_WANTED,
    "mesh_nonce": Denial.KEY_WRONG,
    "mesh_key_wrong": Denial.KEY_WRONG,
}


@dataclass(slots=True, eq=False)
class _Guest:
    """A stream of a host that has not greeted us yet."""

    stream: Stream
    deadline: float


class Reception(Worker):
    """Listens at one TCP port. The first of its interfaces has the counters of guests."""

    def __init__(self, port: int, key: PeerKey | None, place: str) -> None:
        """Begin to listen, or raise `LinkError` with `place`."""
        super().__init__("ipoibu-accept")
        self.key = key
        self._place = place
        self._hosts: list[Rendezvous] = []
        self._by_fd: dict[int, _Guest] = {}
        self._guests: dict[_Guest, None] = {}  # the oldest first
        self._deaf_until: float | None = None  # the end of a pause without a free descriptor
        self._listener = listener(port, place)
        self._epoll = select.epoll()
        self._epoll.register(self._listener, select.EPOLLIN)
        self._start()

    def add(self, host: Rendezvous) -> None:
        with self._lock:
            self._hosts.append(host)

    def remove(self, host: Rendezvous) -> bool:
        """Return whether hosts are left."""
        with self._lock:
            self._hosts.remove(host)
            return bool(self._hosts)

    # ---- the thread

    def _filenos(self) -> tuple[int, ...]:
        return (self._epoll.fileno(),)

    def _serve(self) -> float | None:
        if not self._hosts:
            return None  # no interface is here yet, or any more
        events = self._epoll.poll(0, CM_ROUND)
        for fd, what in events:
            with self._guarded("a host that dials us"):
                if fd == self._listener.fileno():
                    self._accept()
                else:
                    self._ready(fd, what)
        now = time.monotonic()
        self._dismiss(now)
        self._listen_again(now)
        if len(events) == CM_ROUND:
            return 0.0
        deadlines = [it.deadline for it in itertools.islice(self._guests, 1)]
        if self._deaf_until is not None:
            deadlines.append(self._deaf_until)
        return wait_ms(min(deadlines, default=None), now)

    def _disconnect_all(self) -> None:
        """Do nothing: `_release` closes the streams, and no guest has to answer."""

    def _release(self) -> None:
        for guest in self._guests:
            guest.stream.close()
        self._guests.clear()
        self._by_fd.clear()
        self._listener.close()
        self._epoll.close()

    # ---- guests

    def _count(self, reason: str) -> int:
        return self._hosts[0].count(reason)

    def _accept(self) -> None:
        """Accept a connection; above the cap of guests, drop the oldest."""
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):  # the listener would stay readable
                self._count("mesh_full")
                self._epoll.modify(self._listener, 0)
                self._deaf_until = time.monotonic() + DEAF_S
            return
        sock.setblocking(False)
        if len(self._guests) >= UNICAST_GREETING_MAX:
            self._count("mesh_no_answer")
            self._close(next(iter(self._guests)))
        try:
            stream = Stream(sock, self.key, is_ours=False)
        except OSError:  # the connection has ended
            sock.close()
            return
        guest = _Guest(stream, time.monotonic() + MESH_ANSWER_S)
        self._guests[guest] = None
        self._by_fd[stream.fileno()] = guest
        self._epoll.register(stream.fileno(), select.EPOLLIN)

    def _listen_again(self, now: float) -> None:
        if self._deaf_until is not None and now >= self._deaf_until:
            self._deaf_until = None
            self._epoll.modify(self._listener, select.EPOLLIN)

    def _dismiss(self, now: float) -> None:
        for guest in list(self._guests):
            if guest.deadline > now:
                return
            self._count("mesh_no_answer")
            self._close(guest)

    def _ready(self, fd: int, what: int) -> None:
        guest = self._by_fd.get(fd)
        if guest is None:
            return
        try:
            if what & select.EPOLLOUT:
                guest.stream.writable()
            if what & ~select.EPOLLOUT:
                self._hear_untrusted(guest)
            if guest in self._guests:
                wanted = ROOM if guest.stream.awaits_room else select.EPOLLIN
                self._epoll.modify(fd, wanted)
        except OSError:
            self._close(guest)
        except BadFrame as error:
            self._refuse(guest, error.reason, _BY_REASON.get(error.reason))

    def _hear_untrusted(self, guest: _Guest) -> None:
        """Read a guest's first frames: its nonce where we have a key, its greeting, or a query."""
        frames = guest.stream.take_untrusted()
        if frames is None:
            self._close(guest)
            return
        if frames and guest.stream.has_key and frames[0][0] is FrameKind.NONCE:
            guest.stream.put_nonce()
            del frames[0]
        if not frames:
            return
        match frames[0][0]:
            case FrameKind.GREETING:
                self._hand_over(guest, frames)
            case FrameKind.QUERY:
                for host in self._hosts:
                    guest.stream.put(FrameKind.REFUSAL, host.greeting)
                self._close(guest)
            case FrameKind.NONCE:  # we have no key
                self._refuse(guest, "mesh_key_missing", Denial.KEY_UNKNOWN)
            case _:
                self._refuse(guest, "mesh_greeting")

    def _refuse(self, guest: _Guest, reason: str, denial: Denial | None = None) -> None:
        count = self._count(reason)
        if denial is not None:
            guest.stream.deny(denial)
            if should_log(count):
                _log.warning(_DENIALS[denial], self._place, guest.stream.place)
        self._close(guest)

    def _hand_over(self, guest: _Guest, frames: Frames) -> None:
        """Hand the stream to the newest interface in the greeting's partition, or else to the first one,
        which refuses it."""
        host = self._hosts[0]
        try:
            greeting = mesh.greeting_untrusted(frames[0][1])
        except BadFrame:
            pass  # the host counts and refuses it
        else:
            in_partition = [it for it in self._hosts if it.pkey.full == greeting.pkey.full]
            host = in_partition[-1] if in_partition else host
        self._epoll.unregister(guest.stream.fileno())
        self._forget(guest)
        host.take(guest.stream, frames)

    def _forget(self, guest: _Guest) -> None:
        self._guests.pop(guest, None)
        self._by_fd.pop(guest.stream.fileno(), None)

    def _close(self, guest: _Guest) -> None:
        self._forget(guest)
        guest.stream.close()


class Receptions:
    """The receptions of a device's port, by TCP port; any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[int, Reception] = {}

    def enter(
        self, port: int, key: PeerKey | None, place: str, host: Rendezvous
    ) -> Callable[[], None]:
        """Receive hosts for `host`, until the caller calls the result; `LinkError`, `UsageError`."""
        with self._lock:
            reception = self._open.get(port)
            if reception is None:
                reception = self._open[port] = Reception(port, key, place)
            elif reception.key != key:
                raise UsageError(
                    f"{place}: TCP port {port} is in use with another key: give all interfaces of the"
                    " device the same --peer-key-file"
                )
            reception.add(host)
        return functools.partial(self._leave, port, host)

    def _leave(self, port: int, host: Rendezvous) -> None:
        with self._lock:
            reception = self._open[port]
            if not reception.remove(host):
                del self._open[port]
                reception.close()
