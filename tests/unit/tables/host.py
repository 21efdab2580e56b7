# SPDX-License-Identifier: BSD-2-Clause
"""Fillings of the tables of the daemon, the endpoint and the host side."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from ipaddress import ip_network
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock, patch

from ipoibu.base.addr import DEFAULT_PKEY, Gid, IpAddress
from ipoibu.base.limits import (
    ADDRESSES_MAX,
    CAPTURE_PENDING_BYTES,
    CONTROL_CLIENTS_MAX,
    EVENTS_PENDING_MAX,
    GROUPS_MAX,
    METRICS_CLIENTS_MAX,
    PINGS_MAX,
    REROUTED_REFUSALS_MAX,
    ROUTE_ASKED_GATEWAYS_MAX,
    ROUTE_KNOWN_MAX,
    ROUTE_SOURCES_MAX,
    ROUTED_GROUPS_MAX,
)
from ipoibu.base.route import NextHop, Prefixes, Target, prefix_of
from ipoibu.daemon.control.event_streams import _Queue
from ipoibu.daemon.control.server import _Pending
from ipoibu.daemon.interface.duplicates import Duplicates
from ipoibu.daemon.process.client_places import ClientPlaces
from ipoibu.endpoint.datapath.rerouting import Rerouting
from ipoibu.endpoint.interface.pings import Pinger
from ipoibu.endpoint.interface.shell import Shell
from ipoibu.endpoint.subnet.allmulticast import AllMulticast
from ipoibu.host import route_sync
from ipoibu.host.group_sync import GroupSync
from ipoibu.host.kernel_interface import KernelInterface
from ipoibu.host.netsocket import NLM_F_REPLACE
from ipoibu.host.route_message import RT_TABLE_MAIN, RouteEntry, RouteReader
from ipoibu.host.route_query import RouteQuery
from ipoibu.host.route_sync import RouteSync
from ipoibu.host.route_table import RouteTable
from ipoibu.proto.effects import Refuse
from ipoibu.proto.machine.transition import Topic, Transition
from ipoibu.wire.mgid import of_group
from tests.doubles.packets import udp4
from tests.doubles.simulation import TEMPLATE
from tests.unit.tables.filling import FEW, HONEST, Filling, default_cap, group4, host4, host6

INDEX = 7


class UnreadTransitions(Filling):
    def __init__(self) -> None:
        super().__init__()
        self.cap = EVENTS_PENDING_MAX
        self._table = _Queue(Mock(asyncio.AbstractEventLoop))

    def add(self, number: int) -> None:
        self._table.take(Transition(Topic.NEIGHBOUR, host4(number), "", "", ""))

    def __len__(self) -> int:
        return len(self._table._waiting)

    def admits_honest(self) -> bool:
        _, lost = self._table.drain()
        self.add(HONEST)
        return lost == self.cap and len(self) == 1


class ControlClients(Filling):
    """Clients that send no request."""

    most = CONTROL_CLIENTS_MAX

    def __init__(self) -> None:
        super().__init__()
        self.cap = self.most
        self._table: ClientPlaces[int] = ClientPlaces(self.cap, lambda client: None)

    def add(self, number: int) -> None:
        if self._table.enter(number):
            self._table.begin_to_wait(number)

    def __len__(self) -> int:
        return len(self._table)

    def admits_honest(self) -> bool:
        return self._table.enter(HONEST)


class MetricsClients(ControlClients):
    most = METRICS_CLIENTS_MAX


class UnreadCapture(Filling):
    entries_each = 2000

    def __init__(self) -> None:
        super().__init__()
        self.cap = CAPTURE_PENDING_BYTES
        data = bytes(self.entries_each - 16)  # and the header of its record
        self._frame = cast(Any, SimpleNamespace(time_ns=0, wire_len=len(data), data=data))
        loop = SimpleNamespace(call_soon_threadsafe=lambda call: None)
        self._table = _Pending(cast(Any, loop), 65535, cast(Any, None))

    def add(self, number: int) -> None:
        self._table.take([self._frame])

    def __len__(self) -> int:
        return self._table._bytes

    def admits_honest(self) -> bool:
        self._table._records.clear()  # as `flush` does
        self._table._bytes = 0
        self.add(HONEST)
        return len(self) == self.entries_each


class RoutedGroups(Filling):
    """The SA reports groups of members, which a multicast router joins."""

    def __init__(self) -> None:
        super().__init__()
        self.cap = GROUPS_MAX
        sa = SimpleNamespace(join=self._join)
        interface = SimpleNamespace(counts=self.counts, params=TEMPLATE.params)
        self._table = AllMulticast(
            cast(Any, interface), cast(Any, sa), lambda record: None, lambda group: None
        )

    async def _join(self, group: Gid, state: object) -> Gid:
        return group

    def _learn(self, number: int, *, exists: bool) -> None:
        group = of_group(group4(number), DEFAULT_PKEY)
        learning = self._table._learn(group, exists)
        with contextlib.suppress(StopIteration):  # it waits for nothing
            learning.send(None)

    def add(self, number: int) -> None:
        self._learn(number, exists=True)

    def __len__(self) -> int:
        return len(self._table._held)

    def admits_honest(self) -> bool:
        self._learn(0, exists=False)
        self._learn(HONEST, exists=True)
        return len(self) == self.cap


class PingsUnderWay(Filling):
    """Nobody answers."""

    def __init__(self) -> None:
        super().__init__()
        self.cap = PINGS_MAX
        self._loop = asyncio.new_event_loop()
        pings = SimpleNamespace(
            ask=lambda now, ip, known: (), obstacle=lambda ip: None, end=lambda ip: None
        )
        engine = SimpleNamespace(is_up=True, pings=pings)
        self._table = Pinger(self._loop, cast(Any, engine), lambda effects: None, Mock())
        self._tasks: list[asyncio.Task[object]] = []

    def add(self, number: int) -> None:
        task = self._loop.create_task(self._table.ping(host4(number), 60))
        for _ in range(3):
            self._loop.run_until_complete(asyncio.sleep(0))
        if task.done():
            task.exception()  # it was refused: its traceback is no part of the table
        else:
            self._tasks.append(task)

    def __len__(self) -> int:
        return sum(map(len, self._table._waiting.values()))

    def admits_honest(self) -> bool:
        for task in self._tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self.add(HONEST)
        is_waiting = len(self) == 1
        self._tasks[-1].cancel()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self._loop.close()
        return is_waiting


class _Holder(KernelInterface):
    def __init__(self) -> None:
        """It has no kernel behind it."""

    def drop(self, address: IpAddress) -> bool:
        return False

    def retry(self, address: IpAddress) -> None: ...


class DuplicateAddresses(Filling):
    def __init__(self) -> None:
        super().__init__()
        self.cap = ADDRESSES_MAX
        self._table = Duplicates("ib0", Mock(asyncio.AbstractEventLoop))

    def add(self, number: int) -> None:
        self._table.note_lost(host4(number), _Holder())

    def __len__(self) -> int:
        return len(self._table._backoffs)

    def admits_honest(self) -> bool:
        self.add(HONEST)
        return self._table.won(host4(HONEST))


class FlowSources(Filling):
    def __init__(self) -> None:
        super().__init__()
        self.cap = ROUTE_SOURCES_MAX
        self._table = RouteQuery.__new__(RouteQuery)
        self._table._sources = {}
        self._table._find_source = lambda family, source: []  # type: ignore[method-assign]

    def add(self, number: int) -> None:
        self._table._source(4, host4(number).packed)

    def __len__(self) -> int:
        return len(self._table._sources)

    def admits_honest(self) -> bool:
        self.add(HONEST)
        return host4(HONEST).packed in self._table._sources


class AskedGateways(Filling):
    def __init__(self) -> None:
        super().__init__()
        self.cap = ROUTE_ASKED_GATEWAYS_MAX
        self._table = cast(Any, Shell.__new__(Shell))
        self._table._asked, self._table._gateways = set(), Counter()
        self._table._loop = SimpleNamespace(time=lambda: 0.0)
        self._table._engine = SimpleNamespace(note_gateway=lambda now, ip, is_used: ())
        self._table.perform = lambda effects: None

    def add(self, number: int) -> None:
        self._table._note_asked(Target("unicast", (NextHop(host4(number)),)))

    def __len__(self) -> int:
        return len(self._table._asked)

    def admits_honest(self) -> bool:
        self._table._forget_asked()
        self.add(HONEST)
        return host4(HONEST) in self._table._asked


class ReroutedPackets(Filling):
    """A local program sends to dead next hops, and the kernel's routes lead elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.cap = REROUTED_REFUSALS_MAX
        loop = Mock(asyncio.AbstractEventLoop, time=lambda: 0.0)
        self._table = Rerouting(loop, Mock(), lambda effects: None, Mock())
        elsewhere = Target("unicast", (NextHop(host4(HONEST)),))
        self._table.ask_route = lambda packet: elsewhere

    def add(self, number: int) -> None:
        packet = udp4(1, str(host4(number)), bytes(1400))
        self._table.refuse(Refuse(packet, host4(number), bytes(576)))

    def __len__(self) -> int:
        return len(self._table._refusals)

    def admits_honest(self) -> bool:
        """New routes, which the honest packet has, free all."""
        prefixes = Prefixes()
        prefixes.add(prefix_of(ip_network("0.0.0.0/0")))
        self._table._marked = prefixes
        self._table.note_answered(self._table._token)
        self.add(HONEST - 1)
        return len(self) == 1


class KernelRoutes(Filling):
    """A program adds routes to ever new destinations."""

    def __init__(self) -> None:
        super().__init__()
        self._reader = RouteReader(INDEX)
        self._log = SimpleNamespace(warning=self._complain)
        self._sync = RouteSync.__new__(RouteSync)
        self._sync._left_out = 0
        self._sync._stack = cast(
            Any,
            SimpleNamespace(routes_changed=lambda changes: None, routes_left_out=self._leave_out),
        )
        self._make()

    def _make(self) -> None:
        self.cap, self.true_cap = FEW, default_cap(RouteTable, "entries_max")
        self._sync._table = RouteTable(entries_max=FEW)

    def _complain(self, *_: object) -> None:
        self.lines += 1

    def _leave_out(self, count: int) -> None:
        self.counts["routes_left_out"] += count

    def _route(self, number: int) -> tuple[bytes, RouteEntry]:
        return prefix_of(ip_network(host6(number))), self._entry(1)

    def _entry(self, number: int) -> RouteEntry:
        hop = NextHop(host6(number))
        return RouteEntry(10, "unicast", (hop,), RT_TABLE_MAIN, 1024)

    def add(self, number: int) -> None:
        self._sync._table.add(*self._route(number), 0)
        with patch.object(route_sync, "_log", self._log):
            self._sync._publish_routes()

    def __len__(self) -> int:
        return self._sync._table._count

    def admits_honest(self) -> bool:
        """A notice of its end makes room, and the kernel's list has the honest route."""
        for number in range(self.cap // 4):
            self._sync._table.remove(*self._route(number))
        assert self._sync._table.needs_listing
        self._sync._table.replace([self._route(HONEST)])
        return len(self) == 1


class RoutesToOneDestination(KernelRoutes):
    """Advertising routers, say, if the kernel heard of all."""

    def _make(self) -> None:
        self.cap, self.true_cap = FEW, default_cap(RouteTable, "prefix_max")
        self._sync._table = RouteTable(prefix_max=FEW)

    def _route(self, number: int) -> tuple[bytes, RouteEntry]:
        return bytes(17), self._entry(number)


class SharedRoutes(KernelRoutes):
    def _make(self) -> None:
        self.cap, self.true_cap = FEW, default_cap(RouteTable, "shared_max")
        self._sync._table = RouteTable(shared_max=FEW)

    def _route(self, number: int) -> tuple[bytes, RouteEntry]:
        return prefix_of(ip_network(host6(number % 8))), self._entry(number)

    def add(self, number: int) -> None:
        self._sync._table.add(*self._route(number), NLM_F_REPLACE)
        list(self._sync._table.changes())
        if number >= 8:
            self._sync._table.remove(*self._route(number - 8))

    def __len__(self) -> int:
        return len(self._sync._table._shared)

    def admits_honest(self) -> bool:
        self.add(HONEST)
        return (self._entry(HONEST),) in self._sync._table._shared


class RouteForms(KernelRoutes):
    def _make(self) -> None:
        self.cap = ROUTE_KNOWN_MAX

    def add(self, number: int) -> None:
        gateway = host6(number).packed
        self._reader._shared((10, 1, 0, RT_TABLE_MAIN, 9, False, False), ((5, gateway),))

    def __len__(self) -> int:
        return len(self._reader._known)

    def admits_honest(self) -> bool:
        self.add(HONEST)
        return len(self) >= 1


class GroupsOfMulticastRoutes(Filling):
    """Members of the link ask a routing daemon of this host for ever new groups."""

    entries_each = 32  # between two listings

    def __init__(self) -> None:
        super().__init__()
        self.cap = ROUTED_GROUPS_MAX
        self._groups: set[IpAddress] = set()
        self._table = GroupSync.__new__(GroupSync)
        self._table._hears_routes, self._table._warned, self._table._routes = True, False, set()
        self._table._netlink = cast(Any, SimpleNamespace(routed_groups=lambda: set(self._groups)))

    def add(self, number: int) -> None:
        first = number * self.entries_each
        self._groups |= {group4(first + each) for each in range(self.entries_each)}
        self._table._routes = self._table._routed("ib0")

    def __len__(self) -> int:
        return len(self._table._routes)

    def admits_honest(self) -> bool:
        """Entries that nobody wants any more make room."""
        self._groups = set(sorted(self._groups, key=int)[self.cap // 2 : self.cap])
        self.add(HONEST)
        return group4(HONEST * self.entries_each) in self._table._routes


FILLINGS: dict[str, type[Filling]] = {
    "bytes of a capture that its client has not read": UnreadCapture,
    "packets to dead next hops that wait for other routes": ReroutedPackets,
    "routes of the kernel": KernelRoutes,
    "routes of the kernel to one destination": RoutesToOneDestination,
    "sets of routes that prefixes share": SharedRoutes,
    "forms of the kernel's messages about routes": RouteForms,
    "groups of multicast routes": GroupsOfMulticastRoutes,
    "clients of the control socket": ControlClients,
    "clients of `--metrics`": MetricsClients,
    "groups of the link, for a multicast router": RoutedGroups,
    "pings of `ipoibu ping`": PingsUnderWay,
    "transitions that a monitor has not read": UnreadTransitions,
    "duplicates of addresses": DuplicateAddresses,
    "sources of flows about whose routes the kernel was asked": FlowSources,
    "gateways in the kernel's answers about flows": AskedGateways,
}
