# SPDX-License-Identifier: BSD-2-Clause
"""What the tester needs of a link: queue pairs, datagrams as bytes, groups, and a clock.

`port_link.PortLink` is a real port; the tests have a link in memory with a clock of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

MULTICAST_QPN: Final = 0xFFFFFF


class QueuePair(IntEnum):
    """The tester's queue pairs; each but GSI has a hardware address of its own."""

    MINE = 0  # sends what a test sends, unless it says otherwise
    OTHER = 1  # a second address of this host, for "the address has changed"
    WATCHER = 2  # asks whether the peer is alive, and answers for itself in every test
    WRONG_QKEY = 3  # sends with a Q_Key that is not the link's
    WRONG_PKEY = 4  # sends in another partition
    GSI = 5  # queue pair 1: management datagrams of 256 bytes
    RC = 6  # a connection


@dataclass(frozen=True, slots=True)
class Heard:
    """A datagram that came to one of our queue pairs, or a message of a connection.

    `frame` begins with the encapsulation header, and with a management datagram's header on `GSI`.
    `sgid` and `dgid` are None if the datagram had no GRH. `at_s` is `Link.now` of the arrival. `qpn` is the
    sender's queue pair, 0 where it is unknown (RC).
    """

    at_s: float
    queue_pair: QueuePair
    frame: bytes
    qpn: int = 0
    sgid: bytes | None = None
    dgid: bytes | None = None


@dataclass(frozen=True, slots=True)
class LinkParams:
    """The parameters of the broadcast group (RFC 4391 §5); `mtu` is the largest IP packet of a datagram."""

    pkey: int
    qkey: int
    mtu: int
    scope: int


class CannotSend(Exception):
    """This link has no such queue pair, or cannot do what a test asks; the test is not applicable."""


class Link(ABC):
    """One thread uses it. Addresses are 20 bytes (RFC 4391 §9.1.1), GIDs 16."""

    @property
    @abstractmethod
    def params(self) -> LinkParams: ...

    @property
    @abstractmethod
    def description(self) -> str:
        """The device in words, for the report."""

    @abstractmethod
    def now(self) -> float:
        """Seconds of a clock that never steps back."""

    @abstractmethod
    def address(self, queue_pair: QueuePair) -> bytes:
        """Our hardware address with this queue pair, without flags. `CannotSend`: there is none."""

    @abstractmethod
    def send(self, queue_pair: QueuePair, to: bytes, frame: bytes) -> None:
        """Send a datagram to a hardware address, whose GID may be a group's, or with `GSI` to queue pair 1 of
        the host of that GID. A frame over the port's MTU raises `CannotSend`."""

    @abstractmethod
    def receive(self, until_s: float) -> Heard | None:
        """Return the next arrival; None when `now` has reached `until_s`. Groups' datagrams come to MINE."""

    @abstractmethod
    def join(self, mgid: bytes) -> None:
        """Receive a group's datagrams, and become its member for the subnet. Safe to repeat."""

    @abstractmethod
    def leave(self, mgid: bytes) -> None: ...

    @abstractmethod
    def open_connection(self) -> int:
        """Make a queue pair for a connection, in place of the last one; return its number. `CannotSend`:
        the link has no connected mode."""

    @abstractmethod
    def connect(self, to: bytes, qpn: int, path_mtu: int, receive_psn: int, send_psn: int) -> None:
        """Make the queue pair of `open_connection` ready to send to queue pair `qpn` of the host of `to`, and
        to receive. `path_mtu` is in bytes (256 to 4096)."""

    @abstractmethod
    def send_message(self, message: bytes) -> None:
        """Send one message on the connection."""

    @abstractmethod
    def close_connection(self) -> None:
        """Destroy the connection's queue pair without a word to the peer. Safe to repeat."""

    @abstractmethod
    def close(self) -> None:
        """Give the port back. Safe to repeat."""
