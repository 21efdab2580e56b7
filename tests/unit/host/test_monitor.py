# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import errno

import pytest

from ipoibu.host.monitor import Monitor


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

    def close(self) -> None:
        pass


def _monitor(monkeypatch: pytest.MonkeyPatch, *waiting: bytes | OSError) -> Monitor:
    monitor = Monitor(0x0A0B0C0D)
    monitor.close()
    monkeypatch.setattr(monitor, "_socket", Notices(*waiting))
    return monitor


def test_a_notice_about_the_interface_is_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = _monitor(monkeypatch, bytes(20) + bytes.fromhex("0d0c0b0a") + bytes(8))
    assert monitor.changed()
    assert not monitor.changed()


def test_a_notice_about_another_interface_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    other = bytes(20) + bytes.fromhex("0e0c0b0a")
    unaligned = bytes(18) + bytes.fromhex("0d0c0b0a")
    assert not _monitor(monkeypatch, other, unaligned).changed()


def test_an_overrun_is_a_change_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = _monitor(monkeypatch, OSError(errno.ENOBUFS, "overrun"), bytes(32))
    assert monitor.changed()
    assert monitor.overruns == 1
    assert not monitor.changed()


def test_another_error_of_the_socket_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = _monitor(monkeypatch, OSError(errno.EBADF, "closed"))
    with pytest.raises(OSError, match="closed"):
        monitor.changed()
