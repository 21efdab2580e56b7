# SPDX-License-Identifier: BSD-2-Clause
"""Addresses that another host has: the interface gives them up, and tries again later."""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from typing import Final

from ipoibu.base.addr import IpAddress
from ipoibu.base.errors import IpoibuError
from ipoibu.base.limits import ADDRESSES_MAX, DUPLICATE_RETRY_MAX_S, DUPLICATE_RETRY_MIN_S
from ipoibu.host.kernel_interface import KernelInterface
from ipoibu.proto.machine.backoff import Backoff

_log: Final = logging.getLogger(__name__)


class Duplicates:
    """The duplicate addresses of one interface; every method runs on the loop's thread.

    The interface sets its own addresses again after `DUPLICATE_RETRY_MIN_S`, then after waits that
    double, and when its link comes up. It does not set an address that another program had set, but
    counts its refusals, too, to thin the log, for `ADDRESSES_MAX` addresses in all.
    """

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._name = name
        self._loop = loop
        self._backoffs: dict[IpAddress, Backoff] = {}
        self._timers: dict[IpAddress, asyncio.TimerHandle] = {}

    def note_lost(self, address: IpAddress, holder: KernelInterface) -> None:
        """Give `address` up: detection found that it belongs to another host."""
        backoff = self._backoffs.setdefault(
            address, Backoff(DUPLICATE_RETRY_MIN_S, DUPLICATE_RETRY_MAX_S)
        )
        wait_s = backoff.next_s()
        is_ours = False
        try:
            is_ours = holder.drop(address)
        except IpoibuError as error:
            _log.error("%s: %s", self._name, error)
        if backoff.refusals.add():
            _log.error(
                "%s: another host has the address %s: %s%s%s",
                self._name,
                address,
                holder.duplicate_action,
                f" and tries again in {wait_s:.0f} s" if is_ours else "",
                backoff.refusals.times,
            )
        if is_ours:
            self._cancel(address)
            self._timers[address] = self._loop.call_later(wait_s, self._retry, address, holder)
        self._make_room()

    def won(self, address: IpAddress) -> bool:
        """Keep `address`: detection found no other owner; return whether there was one before."""
        self._cancel(address)
        if self._backoffs.pop(address, None) is None:
            return False
        _log.warning("%s: the interface has the address %s again", self._name, address)
        return True

    def retry_all(self, holder: KernelInterface) -> None:
        """Try every address again: the link that came up may have other hosts on it."""
        for address in list(self._timers):
            self._cancel(address)
            self._retry(address, holder)

    def close(self) -> None:
        for address in list(self._timers):
            self._cancel(address)

    def _retry(self, address: IpAddress, holder: KernelInterface) -> None:
        self._timers.pop(address, None)
        try:
            holder.retry(address)
        except IpoibuError as error:
            _log.error("%s: %s", self._name, error)

    def _make_room(self) -> None:
        """Forget the oldest addresses of other programs above the cap."""
        excess = max(0, len(self._backoffs) - ADDRESSES_MAX)
        others = (address for address in self._backoffs if address not in self._timers)
        for address in list(islice(others, excess)):
            del self._backoffs[address]

    def _cancel(self, address: IpAddress) -> None:
        timer = self._timers.pop(address, None)
        if timer is not None:
            timer.cancel()
