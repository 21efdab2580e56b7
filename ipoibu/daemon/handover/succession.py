# SPDX-License-Identifier: BSD-2-Clause
"""What one interface takes over from an earlier process, and leaves to the next one by way of the keeper."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Final

from ipoibu.base.addr import IpAddress
from ipoibu.base.errors import Closed, IpoibuError
from ipoibu.daemon.config.interface_config import InterfaceConfig
from ipoibu.daemon.handover.keeper import Keeper, KeptInterface, neighbours_of
from ipoibu.endpoint.contract import EndpointContract
from ipoibu.endpoint.handover import HandedNeighbour, Handover
from ipoibu.host.kernel_interface import KernelInterface
from ipoibu.host.tun import Tun

if TYPE_CHECKING:
    from ipoibu.wire.dhcp6_lease import Lease6
    from ipoibu.wire.dhcp_lease import Lease

NOTE_S: Final = 0.1  # changes that come together are noted once


class Succession:
    """Notes what the next process has to know of an interface, a moment after each change.

    Belongs to the event loop's thread.
    """

    def __init__(
        self, config: InterfaceConfig, keeper: Keeper, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.before: KeptInterface | None = None
        """What an earlier process has left, if the TUN is that one's."""
        self._config = config
        self._keeper = keeper
        self._loop = loop
        self._endpoint: EndpointContract | None = None
        self._interface: KernelInterface | None = None
        self._checked: set[IpAddress] = set()  # addresses that no other host has
        self._leased: dict[int, IpAddress] = {}  # by DHCP, by IP version
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    # What the earlier process has left

    def take_tun(self) -> Tun | None:
        """Return the TUN that an earlier process has left, if it fits the configuration."""
        config = self._config
        tun = self._keeper.tun(
            config.name,
            super_frames=config.offload,
            queues=config.endpoint.queues,
            persistent=config.tun == "attach",
            tap=config.endpoint.ethernet is not None,
        )
        if tun is not None:
            self.before = self._keeper.before(config.name)
        return tun

    def kept(self) -> Handover:
        """Return what the earlier process has left to the endpoint."""
        before = self.before
        if before is None:
            return Handover()
        return Handover(checked=before.checked, neighbours=before.neighbours)

    def clear_up(self, interface: KernelInterface) -> None:
        """Remove the addresses and routes that the configuration has no more, and leave leases to the
        clients that run on."""
        if self.before is None:
            return
        interface.remove_stale(self.before.addresses, self.before.routes)
        endpoint = self._config.endpoint
        clients = ((4, endpoint.dhcp), (6, endpoint.dhcp6))
        versions = [version for version, client in clients if client is not None]
        interface.adopt_leases(self.before.leased, versions)

    # What the next process gets

    def begin(self, tun: Tun, endpoint: EndpointContract, interface: KernelInterface) -> None:
        """Leave the interface to the next process from now on."""
        self._endpoint = endpoint
        self._interface = interface
        self._keeper.keep(tun, endpoint.socket_fd, self._state(endpoint, interface))

    def follow(self, interface: KernelInterface) -> None:
        """The interface has moved to another network namespace, where no next process looks for it."""
        self._interface = interface
        self._keeper.forget(self._config.name)

    def note_judged(self, address: IpAddress, is_duplicate: bool) -> None:
        """Duplicate detection has ended for the address."""
        if is_duplicate:
            self._checked.discard(address)
        else:
            self._checked.add(address)
        self.note_changed()

    def note_lease(self, version: int, lease: Lease | Lease6 | None) -> None:
        """The DHCP client for this IP version has a lease, whose address it has checked for duplicates, or
        has one no more."""
        before = self._leased.pop(version, None)
        if before is not None:
            self._checked.discard(before)
        if lease is not None:
            self._leased[version] = lease.address.ip
            self._checked.add(lease.address.ip)
        self.note_changed()

    def note_changed(self) -> None:
        """Note the interface soon."""
        if self._timer is None and not self._is_over:
            self._timer = self._loop.call_later(NOTE_S, self._note)

    async def leave(self, executor: Executor) -> None:
        """Note the neighbours, too, for a process that goes on soon; nothing is noted after this, nor if
        `forget` came before."""
        endpoint, interface = self._endpoint, self._interface
        if endpoint is not None and interface is not None and not self._is_over:
            with contextlib.suppress(IpoibuError):
                shown = await self._loop.run_in_executor(executor, endpoint.neighbours)
                state = self._state(endpoint, interface, neighbours_of(shown))
                self._keeper.note(self._config.name, state)
        self._end()

    def forget(self) -> None:
        """Leave nothing to the next process: the interface ends for good."""
        self._end()
        self._keeper.forget(self._config.name)

    def _end(self) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()  # a timer keeps the data path, and so the TUN, in existence

    def _note(self) -> None:
        self._timer = None
        if self._endpoint is not None and self._interface is not None:
            with contextlib.suppress(Closed):
                self._keeper.note(self._config.name, self._state(self._endpoint, self._interface))

    def _state(
        self,
        endpoint: EndpointContract,
        interface: KernelInterface,
        neighbours: tuple[HandedNeighbour, ...] = (),
    ) -> KeptInterface:
        spec = interface.spec
        return KeptInterface(
            self._config.endpoint.pkey,
            endpoint.hwaddr.qpn,
            tuple(spec.addresses),
            tuple(spec.routes),
            tuple(self._checked),
            neighbours,
            interface.leased(),
        )
