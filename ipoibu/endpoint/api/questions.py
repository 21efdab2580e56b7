# SPDX-License-Identifier: BSD-2-Clause
"""Questions that an endpoint answers after a while: is a host there, is the interface usable."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ipoibu.base.addr import HwAddr, IpAddress
from ipoibu.base.errors import Closed
from ipoibu.endpoint.api.arguments import seconds_of, target_of
from ipoibu.endpoint.api.life import Life
from ipoibu.endpoint.interface.interface import Interface
from ipoibu.endpoint.interface.readiness import wait_usable
from ipoibu.fabric.loop_thread import submit

_Answer = TypeVar("_Answer")


class Questions(Life):
    """The part of `Endpoint` that waits for answers, on a thread or on the caller's event loop.

    `Closed` if another thread closes the endpoint meanwhile.
    """

    def ping(self, target: IpAddress | HwAddr | str, timeout: float = 1.0) -> dict[str, Any]:
        """Ask a host on the link once by ARP or neighbour discovery, and wait `timeout` seconds at most.

        The target is an IP address or a hardware address, each as an object or as text. The keys of the
        answer: ip, hwaddr, method ("arp" or "nd"), rtt_ms, and reason: why there was no answer, None if
        there was one. Of a hardware address without a known neighbour the method asks for the link-local
        address.
        """
        asked = target_of(target)
        seconds_of(timeout, "timeout")
        return self._wait(lambda it: it.shell.pinger.ping(asked, timeout))

    async def aping(self, target: IpAddress | HwAddr | str, timeout: float = 1.0) -> dict[str, Any]:
        """Ask a host on the link once, as `ping` does, on the caller's event loop."""
        asked = target_of(target)
        seconds_of(timeout, "timeout")
        return await self._await(lambda it: it.shell.pinger.ping(asked, timeout))

    def wait_up(self, timeout: float | None = None) -> bool:
        """Wait until the link is up, every own address has been checked for duplicates or is optimistic, and
        there is a lease if the endpoint is to get one by DHCP, and one by DHCPv6 likewise.

        Return False if that takes longer than `timeout` seconds; None waits for ever.
        """
        seconds_of(timeout, "timeout")
        return self._wait(lambda it: wait_usable(it.engine, it.transitions, timeout))

    async def await_up(self, timeout: float | None = None) -> bool:
        """Wait until the link is up, as `wait_up` does, on the caller's event loop."""
        seconds_of(timeout, "timeout")
        return await self._await(lambda it: wait_usable(it.engine, it.transitions, timeout))

    async def aprogress(self) -> None:
        """Return once the engine's thread and every thread of the data path have made progress, for a
        watchdog; a link that has no queue pair at the moment counts as progress."""
        await self._await(lambda it: it.shell.heartbeat.beat(it.shell.living_pump))

    def _wait(self, work: Callable[[Interface], Coroutine[Any, Any, _Answer]]) -> _Answer:
        self._check_thread()
        try:
            return self._begin(work).result()
        except concurrent.futures.CancelledError:
            raise self._closed() from None

    async def _await(self, work: Callable[[Interface], Coroutine[Any, Any, _Answer]]) -> _Answer:
        future = self._begin(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            raise self._closed() from None

    def _begin(
        self, work: Callable[[Interface], Coroutine[Any, Any, _Answer]]
    ) -> concurrent.futures.Future[_Answer]:
        with self._life:
            interface = self._opened()
            return submit(interface.loop, lambda: interface.answer(work(interface)))

    def _closed(self) -> Closed:
        return Closed(f"{self.config.name}: the endpoint closed meanwhile")
