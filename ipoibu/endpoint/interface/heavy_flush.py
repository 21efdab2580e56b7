# SPDX-License-Identifier: BSD-2-Clause
"""The heavy flush: a new queue pair under an interface that lives on, as in the kernel's ipoib.

A queue pair is of no more use when the interface's P_Key has another index or membership, has gone or is
back, when the link has another MTU, Q_Key or the like, or for another sending mode (`Interface.set_mode`).
Addresses, routes, groups and the TUN stay; the queue pair's number, neighbours, paths and connections go
with the queue pair.

1. The port's `SaClient` sees another P_Key table and notifies the interface's `SaSubnet`, which calls
   `Interface.flush`; a broadcast group's record that differs from the link's has the same effect.
2. If the interface's own P_Key moved, `HeavyFlush.demand` has `Interface.sever` take the link down, stop
   the pump and destroy the queue pair.
3. A task joins the link again (`SaSubnet.find_link`), and retries while the P_Key is away or the SA refuses.
4. `Interface.resume` opens another `DataPath` over the same packet device and gives the engine
   its hardware address; the shell writes the routes into the new pump.
5. The link comes up: the engine joins its groups, announces the new hardware address by ARP and ND, and
   resolves neighbours and paths as packets need them.
"""

from __future__ import annotations

import asyncio
import logging

from ipoibu.base.errors import IpoibuError
from ipoibu.base.ib import PartitionParams
from ipoibu.base.limits import GROUP_BACKOFF_MAX_S, GROUP_BACKOFF_MIN_S
from ipoibu.endpoint.interface_contract import InterfaceContract
from ipoibu.endpoint.subnet.retry import rest
from ipoibu.proto.machine.backoff import Backoff

_log = logging.getLogger(__name__)


class HeavyFlush:
    """Carries heavy flushes out, one at a time; every method runs on the interface's loop.

    The link stays down while a join of the link, or the making of a queue pair, fails. The next attempt
    comes after 1, 2 .. 16 s, and at once when the subnet changes.
    """

    def __init__(self, interface: InterfaceContract) -> None:
        self._interface = interface
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    @property
    def is_under_way(self) -> bool:
        return self._task is not None

    def demand(self, why: str) -> None:
        """Begin a flush; if a flush is under way, have it try again at once."""
        if self._task is not None:
            self._changed.set()
            return
        _log.warning("%s: %s: replacing the queue pair", self._interface.place, why)
        self._interface.counts["renewals"] += 1
        self._interface.sever()
        self._task = self._interface.loop.create_task(self._run())

    def restart(self) -> None:
        """Have the flush that is under way begin again, because the interface has another port."""
        assert self._task is not None, "`demand` comes first"
        self._task.cancel()
        self._task = self._interface.loop.create_task(self._run())

    def close(self) -> None:
        """End a flush that is under way, and leave the link."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            self._interface.leave_link()

    async def _run(self) -> None:
        backoff = Backoff(GROUP_BACKOFF_MIN_S, GROUP_BACKOFF_MAX_S)
        while True:
            self._changed.clear()
            try:
                self._resume(await self._interface.find_link())
                break
            except IpoibuError as error:
                self._interface.counts["renewals_refused"] += 1
                if backoff.refusals.add():
                    place, times = self._interface.place, backoff.refusals.times
                    _log.warning("%s: the link stays down: %s%s", place, error, times)
            except Exception as error:  # the process has no memory or threads left
                _log.error("%s: no other queue pair", self._interface.place, exc_info=error)
                self._interface.fail(f"no other queue pair: {type(error).__name__}: {error}")
                break
            await rest(backoff, self._changed)
        self._task = None

    def _resume(self, params: PartitionParams) -> None:
        try:
            self._interface.resume(params)
        except BaseException:
            self._interface.leave_link()
            raise
