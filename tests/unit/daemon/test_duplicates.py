# SPDX-License-Identifier: BSD-2-Clause
"""An address that another host has is given up, and tried again later."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable
from unittest.mock import Mock

import pytest

from ipoibu.base.addr import IpAddress
from ipoibu.base.errors import LinkError
from ipoibu.base.limits import ADDRESSES_MAX, DUPLICATE_RETRY_MIN_S
from ipoibu.daemon.interface.duplicates import Duplicates
from ipoibu.host.kernel_interface import KernelInterface

ADDRESS = ipaddress.ip_address("10.0.0.1")


class Holder(KernelInterface):
    def __init__(self, *, is_own: bool = True) -> None:
        self.is_own = is_own
        self.log: list[str] = []

    def drop(self, address: IpAddress) -> bool:
        self.log.append(f"drop {address}")
        return self.is_own

    def retry(self, address: IpAddress) -> None:
        self.log.append(f"retry {address}")


class Clock:
    """Takes the timers of a loop, which the test rings."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[..., object], tuple[object, ...]]] = []
        self.loop = Mock(asyncio.AbstractEventLoop)
        self.loop.call_later.side_effect = self._call_later

    def _call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Mock:
        self.timers.append((delay_s, callback, args))
        return Mock(asyncio.TimerHandle)

    def ring(self) -> float:
        delay_s, callback, args = self.timers.pop()
        callback(*args)
        return delay_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_waits_double_and_the_log_is_thinned(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    duplicates, holder = Duplicates("ib0", clock.loop), Holder()
    waits = []
    for _ in range(4):
        duplicates.note_lost(ADDRESS, holder)
        waits.append(clock.ring())
    assert waits == [DUPLICATE_RETRY_MIN_S * 2**n for n in range(4)]
    assert holder.log == ["drop 10.0.0.1", "retry 10.0.0.1"] * 4
    assert len(caplog.records) == 2
    assert (
        "ib0: another host has the address 10.0.0.1: the interface removes it and tries again in 10 s"
        in caplog.text
    )


def test_an_address_that_is_free_again_is_kept_and_begins_anew(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    duplicates, holder = Duplicates("ib0", clock.loop), Holder()
    assert not duplicates.won(ADDRESS)
    duplicates.note_lost(ADDRESS, holder)
    assert duplicates.won(ADDRESS)
    assert "the interface has the address 10.0.0.1 again" in caplog.text
    duplicates.note_lost(ADDRESS, holder)
    assert clock.ring() == DUPLICATE_RETRY_MIN_S


def test_a_link_that_comes_up_has_every_address_tried_again(clock: Clock) -> None:
    duplicates, holder = Duplicates("ib0", clock.loop), Holder()
    duplicates.note_lost(ADDRESS, holder)
    duplicates.retry_all(holder)
    duplicates.retry_all(holder)
    assert holder.log == ["drop 10.0.0.1", "retry 10.0.0.1"]


def test_an_address_of_another_program_is_not_set_again(clock: Clock) -> None:
    duplicates, holder = Duplicates("ib0", clock.loop), Holder(is_own=False)
    duplicates.note_lost(ADDRESS, holder)
    assert clock.timers == []
    duplicates.retry_all(holder)
    assert holder.log == ["drop 10.0.0.1"]


def test_the_log_is_thinned_for_an_address_of_another_program_too(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    duplicates, holder = Duplicates("ib0", clock.loop), Holder(is_own=False)
    for _ in range(4):
        duplicates.note_lost(ADDRESS, holder)
    assert len(caplog.records) == 2
    assert caplog.messages[-1].endswith("(2 times)")
    assert duplicates.won(ADDRESS)
    duplicates.note_lost(ADDRESS, holder)
    assert caplog.messages[-1].endswith("10.0.0.1: the interface removes it")


def test_the_oldest_addresses_of_other_programs_are_forgotten_at_the_cap(clock: Clock) -> None:
    duplicates, mine, other = Duplicates("ib0", clock.loop), Holder(), Holder(is_own=False)
    duplicates.note_lost(ADDRESS, mine)
    for n in range(1, ADDRESSES_MAX + 2):
        duplicates.note_lost(ADDRESS + n, other)
    assert not duplicates.won(ADDRESS + 1)
    assert not duplicates.won(ADDRESS + 2)
    assert duplicates.won(ADDRESS + 3)
    assert duplicates.won(ADDRESS)


def test_a_kernel_that_refuses_is_logged(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    class Refusing(Holder):
        def drop(self, address: IpAddress) -> bool:
            raise LinkError("refused")

        def retry(self, address: IpAddress) -> None:
            raise LinkError("refused, too")

    duplicates, holder = Duplicates("ib0", clock.loop), Refusing()
    duplicates.note_lost(ADDRESS, holder)
    assert "ib0: refused" in caplog.text
