# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import errno
import struct
from typing import Any

import pytest

from ipoibu.host.monitor import Monitor
from ipoibu.host.namespace import Namespace


class Notices:
    """Stands for the monitor's socket: datagrams, errors, then nothing more."""

    def __init__(self, *waiting: bytes | OSError) -> None:
        self._waiting = list(waiting)

    def recv(self, size: int) -> bytes:
        if not self._waiting:
            raise BlockingIOError
        head = self._waiting.pop(0)
        if isinstance(head, OSError):
            raise head
        return head

    def setblocking(self, is_blocking: bool) -> None:
        assert not is_blocking

    def setsockopt(self, *arguments: object) -> None:
        pass

    def bind(self, address: tuple[int, int]) -> None:
        pass

    def close(self) -> None:
        pass


def _monitor(monkeypatch: pytest.MonkeyPatch, *waiting: bytes | OSError) -> Monitor:
    monitor = Monitor()
    monitor.close()
    monkeypatch.setattr(monitor, "_socket", Notices(*waiting))
    return monitor


def _link(index: int) -> bytes:
    return struct.pack("=IHHII", 32, 16, 0, 0, 0) + struct.pack("=BxHi8x", 0, 0, index)


def test_every_message_of_a_datagram_is_a_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = _monitor(monkeypatch, _link(5) + _link(6), _link(7))
    assert [notice.interface for notice in monitor.notices()] == [5, 6, 7]
    assert list(monitor.notices()) == []


def test_a_round_reads_so_many_datagrams_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = _monitor(monkeypatch, _link(5), _link(6), _link(7))
    assert [notice.interface for notice in monitor.notices(2)] == [5, 6]
    assert [notice.interface for notice in monitor.notices(2)] == [7]


def test_an_overrun_is_counted_and_the_socket_is_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel reports only one overrun until the socket is empty, so the waiting notices may have
    gaps."""
    overrun = OSError(errno.ENOBUFS, "overrun")
    monitor = _monitor(monkeypatch, _link(4), overrun, _link(5), _link(6))
    assert [notice.interface for notice in monitor.notices(2)] == [4]
    assert monitor.overruns == 1
    assert list(monitor.notices()) == []


def test_another_error_of_the_socket_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = _monitor(monkeypatch, OSError(errno.EBADF, "closed"))
    with pytest.raises(OSError, match="closed"):
        list(monitor.notices())


class MarkedNotices(Notices):
    """A socket that listens to all namespaces: each datagram has a number, or none."""

    def __init__(self, *waiting: tuple[int | None, bytes]) -> None:
        super().__init__(*(data for _, data in waiting))
        self._numbers = [number for number, _ in waiting]

    def recvmsg(
        self, size: int, room: int
    ) -> tuple[bytes, list[tuple[int, int, bytes]], int, None]:
        data, number = self.recv(size), self._numbers.pop(0)
        mark = [] if number is None else [(270, 8, struct.pack("=i", number))]
        return data, mark, 0, None


class Elsewhere(Namespace):
    def __init__(self, *waiting: tuple[int | None, bytes]) -> None:
        self._waiting = waiting

    def notice_socket(self) -> tuple[Any, int]:
        return MarkedNotices(*self._waiting), 3


def test_only_the_notices_of_the_namespace_count() -> None:
    waiting = [(3, _link(5)), (4, _link(6)), (None, _link(7)), (3, _link(8)), (3, _link(9))]
    monitor = Monitor(namespace=Elsewhere(*waiting))
    assert [notice.interface for notice in monitor.notices(4)] == [5, 8]
    assert [notice.interface for notice in monitor.notices()] == [9]
