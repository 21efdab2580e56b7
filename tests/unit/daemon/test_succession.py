# SPDX-License-Identifier: BSD-2-Clause
"""What an interface notes for the next process of the service, and takes over from the last one."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from ipoibu.base.addr import HwAddr, PKey, Qpn
from ipoibu.daemon.config.interface_config import InterfaceConfig
from ipoibu.daemon.handover import succession
from ipoibu.daemon.handover.keeper import Keeper, KeptInterface
from ipoibu.daemon.handover.succession import Succession
from ipoibu.endpoint.config import EndpointConfig
from ipoibu.endpoint.handover import HandedNeighbour, Handover
from ipoibu.host.kernel_interface import Leased
from ipoibu.wire.dhcp_lease import Lease

OWN: Final = HwAddr.parse("00:2b:35:bb:fe:80:00:00:00:00:00:00:00:00:00:ff:fe:00:00:01")
PEER: Final = HwAddr.parse("00:2b:35:bc:fe:80:00:00:00:00:00:00:00:00:00:ff:fe:00:00:02")
ADDRESS: Final = ipaddress.ip_interface("fd00::1/64")
LEASE: Final = Lease(
    ipaddress.IPv4Interface("10.0.0.7/24"), ipaddress.IPv4Address("10.0.0.9"), 600, 300, 525
)
NAME: Final = "ib0"


class Store(Keeper):
    """A keeper that remembers what it was told, and has what `left` says of an earlier process."""

    def __init__(self, left: KeptInterface | None = None) -> None:
        super().__init__()
        self.left = left
        self.notes: list[KeptInterface] = []
        self.is_forgotten = False

    def tun(self, name: str, **wanted: Any) -> Any:
        assert wanted == {"super_frames": True, "queues": 1, "persistent": False, "tap": False}
        return None if self.left is None else SimpleNamespace(name=name)

    def before(self, name: str) -> KeptInterface | None:
        return self.left

    def keep(self, tun: Any, socket_fd: int | None, interface: KeptInterface) -> None:
        self.note(tun.name, interface)

    def note(self, name: str, interface: KeptInterface) -> None:
        assert name == NAME
        self.notes.append(interface)

    def forget(self, name: str) -> None:
        self.is_forgotten = True


class KernelInterface:
    """The kernel's interface, as far as a succession uses it."""

    def __init__(self) -> None:
        self.spec = SimpleNamespace(addresses=[ADDRESS], routes=[])
        self.removed: list[Any] = []
        self.adopted: list[tuple[Any, list[int]]] = []

    def leased(self) -> tuple[Leased, ...]:
        return (Leased(LEASE.address),)

    def remove_stale(self, *stale: Any) -> None:
        self.removed.append(stale)

    def adopt_leases(self, leased: Any, versions: list[int]) -> None:
        self.adopted.append((leased, versions))


def _neighbours() -> list[dict[str, Any]]:
    return [{"ip": "fd00::2", "hwaddr": str(PEER), "state": "reachable", "age_s": 1.0}]


ENDPOINT: Final = SimpleNamespace(socket_fd=None, hwaddr=OWN, neighbours=_neighbours)


def _run(
    store: Store, test: Callable[[Succession, KernelInterface], Coroutine[Any, Any, None]]
) -> None:
    config = InterfaceConfig(EndpointConfig(NAME, "soft:eth0", pkey=PKey(0x8001)))

    async def main() -> None:
        interface = KernelInterface()
        it = Succession(config, store, asyncio.get_running_loop())
        it.take_tun()
        it.clear_up(cast("Any", interface))
        it.begin(
            cast("Any", SimpleNamespace(name=NAME)), cast("Any", ENDPOINT), cast("Any", interface)
        )
        await test(it, interface)

    asyncio.run(main())


@pytest.fixture(autouse=True)
def _noted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(succession, "NOTE_S", 0.0)


async def _later() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_changes_that_come_together_are_noted_once() -> None:
    store = Store()

    async def test(it: Succession, interface: KernelInterface) -> None:
        assert store.notes == [
            KeptInterface(PKey(0x8001), Qpn(0x2B35BB), (ADDRESS,), leased=interface.leased())
        ]
        it.note_judged(ADDRESS.ip, False)
        it.note_lease(4, LEASE)
        await _later()
        assert [set(note.checked) for note in store.notes[1:]] == [{ADDRESS.ip, LEASE.address.ip}]
        it.note_judged(ADDRESS.ip, True)
        it.note_lease(4, None)
        await _later()
        assert [note.checked for note in store.notes[2:]] == [()]

    _run(store, test)


def test_neighbours_are_noted_at_the_end_and_nothing_after_it() -> None:
    store = Store()

    async def test(it: Succession, interface: KernelInterface) -> None:
        it.note_changed()
        with ThreadPoolExecutor() as executor:
            for _ in range(2):
                await it.leave(executor)
        wanted = (HandedNeighbour(ipaddress.ip_address("fd00::2"), PEER),)
        noted = [note.neighbours for note in store.notes if note.neighbours]
        assert noted == [wanted] == [store.notes[-1].neighbours]
        count = len(store.notes)
        it.note_changed()
        await _later()
        assert len(store.notes) == count

    _run(store, test)


def test_an_interface_that_ends_for_good_leaves_nothing() -> None:
    store = Store()

    async def test(it: Succession, interface: KernelInterface) -> None:
        it.note_changed()
        it.forget()
        with ThreadPoolExecutor() as executor:
            await it.leave(executor)
        await _later()
        assert store.is_forgotten
        assert len(store.notes) == 1

    _run(store, test)


def test_nothing_is_noted_before_the_interface_is_kept() -> None:
    store = Store()

    async def main() -> None:
        config = InterfaceConfig(EndpointConfig(NAME, "soft:eth0"))
        it = Succession(config, store, asyncio.get_running_loop())
        assert it.take_tun() is None
        assert it.kept() == Handover()
        it.note_judged(ADDRESS.ip, False)
        await _later()

    asyncio.run(main())
    assert store.notes == []


def test_what_the_last_process_left_goes_to_the_endpoint_and_the_kernel() -> None:
    """No DHCP client is configured: the interface keeps no lease of any IP version."""
    left = KeptInterface(
        PKey(0x8001),
        Qpn(0x2B35BB),
        (ADDRESS,),
        checked=(ADDRESS.ip,),
        neighbours=(HandedNeighbour(ipaddress.ip_address("fd00::2"), PEER),),
        leased=(Leased(LEASE.address),),
    )

    async def test(it: Succession, interface: KernelInterface) -> None:
        assert it.kept() == Handover(checked=left.checked, neighbours=left.neighbours)
        assert interface.removed == [(left.addresses, left.routes)]
        assert interface.adopted == [(left.leased, [])]

    _run(Store(left), test)
