# SPDX-License-Identifier: BSD-2-Clause
"""A queue pair for a program that sends single datagrams and messages itself, such as a tester.

Nothing of an interface is here: no pump, no engine, no tables. The program waits on the descriptors of all
its queue pairs with `wait`.
"""

from __future__ import annotations

import errno
import select
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ipoibu._core import RawFace
from ipoibu.base.addr import GID_LEN, Gid, Qpn
from ipoibu.base.closing import Closing
from ipoibu.base.ib import Destination, RcAttributes
from ipoibu.base.limits import (
    RAW_MESSAGES,
    RAW_RECEIVES,
    RAW_SEND_S,
    RAW_SENDS,
    SUPERFRAME_BYTES_MAX,
)
from ipoibu.fabric.base import Fabric

_SGID: Final = 8  # where the GIDs begin in a GRH (E4)
_DGID: Final = _SGID + GID_LEN


@dataclass(frozen=True, slots=True)
class RawDatagram:
    """A received datagram: the frame begins with the encapsulation header. Without a GRH it has no GIDs."""

    frame: bytes
    qpn: Qpn
    sgid: Gid | None
    dgid: Gid | None


class RawQueuePair(Closing):
    """The UD queue pair of a fabric and, with `has_connections`, its connections. One thread uses it.

    `OSError`: the device refuses, or the queue pair is broken; EMSGSIZE: the datagram exceeds the MTU.
    """

    def __init__(self, fabric: Fabric, *, has_connections: bool = False) -> None:
        """Take over the fabric, which `close` closes; after an error it is closed."""
        self.fabric: Final = fabric
        self._connections: set[RawConnection] = set()
        try:
            self.face: Final = RawFace(
                fabric,
                sends=RAW_SENDS,
                receives=RAW_RECEIVES,
                messages=RAW_MESSAGES if has_connections else 0,
                message_bytes=SUPERFRAME_BYTES_MAX if has_connections else 0,
            )
        except BaseException:
            fabric.close()
            raise
        self._has_connections = has_connections
        self._is_open = True

    @property
    def qpn(self) -> Qpn:
        return self.fabric.qpn

    @property
    def mtu_bytes(self) -> int:
        """The longest datagram, with its encapsulation header."""
        return self.face.mtu_bytes

    def send(self, destination: Destination, frame: bytes) -> None:
        """Send a datagram; wait for room if others are under way."""
        end = time.monotonic() + RAW_SEND_S
        while not self.face.send(destination, frame):
            self.await_room(end)

    def receive(self) -> RawDatagram | None:
        """Return the next datagram, or None; does not wait."""
        got = self.face.receive()
        if got is None:
            return None
        frame, qpn, grh = got
        if grh is None:
            return RawDatagram(frame, Qpn(qpn), None, None)
        sgid, dgid = Gid(grh[_SGID:_DGID]), Gid(grh[_DGID:])
        return RawDatagram(frame, Qpn(qpn), sgid, dgid)

    def open_connection(self) -> RawConnection:
        """Open a connection's queue pair, in INIT; `LinkError`: the device cannot."""
        connection = RawConnection(self)
        self._connections.add(connection)
        return connection

    def forget(self, connection: RawConnection) -> None:
        """This connection is closed."""
        self._connections.discard(connection)

    def receive_message(self) -> tuple[bytes, Qpn] | None:
        """Return the next message, and the number of our queue pair to which it came; None if there is none.
        Does not wait."""
        if not self._has_connections or not self._connections:
            return None
        got = self.face.receive_message()
        return None if got is None else (got[0], Qpn(got[1]))

    def await_room(self, end_s: float) -> None:
        """Wait until a send may have ended; `TimeoutError` after `end_s`, a time of `time.monotonic`."""
        if time.monotonic() >= end_s:
            raise TimeoutError(errno.ETIMEDOUT, "the queue pair ends no sends")
        wait([self], end_s)
        self.face.poll()

    def close(self) -> None:
        """Destroy the queue pairs. Safe to repeat."""
        if not self._is_open:
            return
        self._is_open = False
        for connection in list(self._connections):
            connection.close()
        self.fabric.close()
        self.face.close()


class RawConnection(Closing):
    """The queue pair of one connection. `RawQueuePair.open_connection` makes it."""

    def __init__(self, owner: RawQueuePair) -> None:
        self._owner, self._face = owner, owner.face
        self._rc = owner.fabric.open_connection()
        self._is_open = True
        try:
            self._face.add(self._rc)
        except BaseException:
            self._rc.close()
            raise

    @property
    def qpn(self) -> Qpn:
        return self._rc.qpn

    def program(self, attributes: RcAttributes) -> None:
        """Make the queue pair ready to receive and to send; `LinkError`."""
        self._rc.program(attributes)

    def send(self, message: bytes) -> None:
        """Send a message; wait for room if others are under way. `OSError`."""
        end = time.monotonic() + RAW_SEND_S
        while not self._face.send_message(self._rc, message):
            self._owner.await_room(end)

    def close(self) -> None:
        """Destroy the queue pair, without a word to the peer. Safe to repeat."""
        if not self._is_open:
            return
        self._is_open = False
        self._owner.forget(self)
        self._rc.stop()  # its sends fail
        end = time.monotonic() + RAW_SEND_S
        while self._face.has_sends(self._rc) and time.monotonic() < end:
            wait([self._owner], end)
        self._face.remove(self._rc)
        self._rc.close()
        self._face.forget(self._rc)


def wait(queue_pairs: Iterable[RawQueuePair], end_s: float, readable: Iterable[int] = ()) -> None:
    """Return when one of the queue pairs may have a completion, a further descriptor is readable, or `end_s`
    has come, a time of `time.monotonic`. The caller then looks at all of them."""
    poll = select.poll()
    for fd in readable:
        poll.register(fd, select.POLLIN)
    may_have = False
    for queue_pair in queue_pairs:
        face = queue_pair.face
        may_have |= face.arm()
        poll.register(face.fd, select.POLLIN)
        if (deadline_ns := face.deadline_ns) is not None:
            end_s = min(end_s, deadline_ns / 1e9)
    if not may_have:
        poll.poll(max(0.0, end_s - time.monotonic()) * 1000)
