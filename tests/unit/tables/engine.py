# SPDX-License-Identifier: BSD-2-Clause
"""Fillings of the engine's tables."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_interface, ip_network

from ipoibu.base.addr import Gid, Qpn
from ipoibu.base.ib import Destination
from ipoibu.base.limits import (
    ADDRESSES_MAX,
    ADVERTISED_MAX,
    ADVERTISED_NEW_PER_S,
    DHCP_REQUESTS_MAX,
    DROPS_NOTED_MAX,
    MEMBERSHIP_SOURCES_MAX,
    NEIGH_PENDING_TOTAL_BYTES,
    PROXY_ANSWERS_MAX,
    PROXY_DELAY_MAX_S,
    PROXY_GROUPS_MAX,
    PROXY_STRANGERS_MAX,
    ROUTE_GATEWAYS_MAX,
    ROUTER_ADVERTISEMENT_MAX_BYTES,
    ROUTER_TRIALS_PER_S,
    ROUTERS_MAX,
    SA_PATH_PENDING_TOTAL_BYTES,
    WAITING_OVERHEAD_BYTES,
)
from ipoibu.proto.context import Resolver
from ipoibu.proto.dhcp.other_clients import DhcpClients
from ipoibu.proto.effects import AskProxy, NeighAction, Publish, SendFrame
from ipoibu.proto.groups.groups import Groups
from ipoibu.proto.groups.listeners import Listeners
from ipoibu.proto.machine.drops import Drops
from ipoibu.proto.machine.timers import Timers
from ipoibu.proto.machine.transition import Transition
from ipoibu.proto.neigh.advertised_routes import PREFIX_INFORMATION, Advertised
from ipoibu.proto.neigh.dad import Addresses
from ipoibu.proto.neigh.neighbours import Neighbours
from ipoibu.proto.neigh.proxy_networks import ProxyNetworks, ProxyRules
from ipoibu.proto.neigh.routers import Routers
from ipoibu.proto.neigh.routers import State as RouterState
from ipoibu.proto.sa.path import PathTable
from ipoibu.wire import arp, dhcp, igmp
from ipoibu.wire.membership import Filter, Record
from ipoibu.wire.ndisc import ALL_NODES, RouterAdvertisement
from ipoibu.wire.ndopt import Option
from tests.doubles.packets import udp4
from tests.unit.tables.filling import (
    FEW,
    HONEST,
    EngineFilling,
    Filling,
    default_cap,
    group4,
    host4,
    host6,
    hwaddr,
)

_SOURCES = tuple(host4(number) for number in range(MEMBERSHIP_SOURCES_MAX))


class _Silence:
    """A resolver whose messages nobody sees."""

    def solicit(self, *_: object) -> None: ...
    def probe(self, *_: object) -> None: ...
    def announce(self, *_: object) -> None: ...


_RESOLVERS: dict[int, Resolver] = {4: _Silence(), 6: _Silence()}


class NeighbourTable(EngineFilling):
    """Hosts that nobody asked for introduce themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.cap, self.true_cap = FEW, default_cap(Neighbours)
        self._table = Neighbours(self.context, _RESOLVERS, lambda *_: None, self.cap)

    def add(self, number: int) -> None:
        self._table.note_introduced(self.now, host4(number), hwaddr(number))
        self.settle()

    def __len__(self) -> int:
        return len(self._table)

    def admits_honest(self) -> bool:
        ip, peer = host4(HONEST), hwaddr(HONEST)
        self._table.miss(self.now, ip, udp4(1, str(ip), b"data"))
        self._table.note_advertised(self.now, ip, peer, solicited=True, override=True)
        return self._table.hwaddr(ip) == peer


class WaitingPackets(EngineFilling):
    """A local program scans the subnet with long packets."""

    entries_each = 1500 + WAITING_OVERHEAD_BYTES

    def __init__(self) -> None:
        super().__init__()
        self.cap = NEIGH_PENDING_TOTAL_BYTES
        self._table = Neighbours(self.context, _RESOLVERS, lambda *_: None)

    def add(self, number: int) -> None:
        self._table.miss(self.now, host4(number // 100), bytes(1500))
        self.settle()

    def __len__(self) -> int:
        return self._table._pending.bytes

    def admits_honest(self) -> bool:
        self._table.miss(self.now, host4(HONEST), bytes(100))
        [honest] = self._table.snapshot(self.now, [host4(HONEST)])
        return honest.pending == 1


class RouterTable(EngineFilling):
    """Invented routers advertise themselves, slower than we can ask them."""

    def __init__(self) -> None:
        super().__init__()
        self.cap, self.true_cap = ROUTERS_MAX, default_cap(Routers)
        self._table = Routers(
            self.context, lambda now, ip: None, lambda now, ip, peer: None, lambda ip: False
        )

    def add(self, number: int) -> None:
        self.now += 1 / ROUTER_TRIALS_PER_S
        source = host6(number)
        message = RouterAdvertisement(source, ALL_NODES, hwaddr(number), lifetime_s=1800)
        packet = message.pack().ljust(ROUTER_ADVERTISEMENT_MAX_BYTES, b"\0")
        self._table.advertised_untrusted(self.now, message, packet, hwaddr(number))
        self.settle()

    def __len__(self) -> int:
        return len(self._table)

    def admits_honest(self) -> bool:
        self.now += 1
        self.add(HONEST)
        self._table.note_answered(self.now, host6(HONEST), is_router=True)
        return self._table._routers[host6(HONEST)].state is RouterState.USED


class AdvertisedPrefixes(EngineFilling):
    """A router advertises ever new prefixes, slower than the rate that the stack may get."""

    def __init__(self) -> None:
        super().__init__()
        self.cap, self.true_cap = ADVERTISED_MAX, default_cap(Advertised)
        self._table = Advertised(
            self.context, lambda now, source, option: None, lambda source: False
        )

    def _option(self, number: int) -> Option:
        lifetimes = (1800).to_bytes(4, "big") * 2
        prefix = (0xFD << 120) + (number << 64)
        return Option(
            PREFIX_INFORMATION, b"\x40\x80" + lifetimes + bytes(4) + prefix.to_bytes(16, "big")
        )

    def add(self, number: int) -> None:
        self.now += 1 / ADVERTISED_NEW_PER_S
        self._table.refused(self.now, host6(1), [self._option(number)])
        self.settle()

    def __len__(self) -> int:
        return len(self._table)

    def admits_honest(self) -> bool:
        return not self._table.refused(self.now + 1, host6(2), [self._option(HONEST)])


class OwnAddresses(EngineFilling):
    def __init__(self) -> None:
        super().__init__()
        self.cap = ADDRESSES_MAX
        self._table = Addresses(
            self.context, _RESOLVERS, lambda ip: True, lambda now, ip, is_duplicate: None
        )

    def add(self, number: int) -> None:
        self._table.add(self.now, ip_interface(f"{host4(number)}/8"))
        self.settle()

    def __len__(self) -> int:
        return len(self._table._addresses)

    def admits_honest(self) -> bool:
        self._table.remove(ip_interface(f"{host4(0)}/8"))
        return self._table.add(self.now, ip_interface(f"{host4(HONEST)}/8"))


class ReceivedGroups(EngineFilling):
    """Half of the groups share an MGID, which has the low 80 bits of an IPv6 group alone."""

    def __init__(self) -> None:
        super().__init__()
        self.cap, self.true_cap = FEW, default_cap(Groups)
        self._table = Groups(self.context, self.cap)

    def add(self, number: int) -> None:
        shared = IPv6Address((0xFF0E << 112) + (number << 80) + 1)
        self._table.join(self.now, shared if number % 2 else group4(number))
        self.settle()

    def __len__(self) -> int:
        return sum(len(it.users) for it in self._table._groups.values())

    def admits_honest(self) -> bool:
        self._table.leave(self.now, group4(0))
        self.wait(2)
        return self._table.join(self.now, group4(HONEST))


class SentGroups(EngineFilling):
    def __init__(self) -> None:
        super().__init__()
        self.cap, self.true_cap = FEW, default_cap(Groups)
        self._table = Groups(self.context, self.cap)

    def add(self, number: int) -> None:
        self._table.miss(self.now, group4(number), b"packet")
        self.settle()

    def __len__(self) -> int:
        return len(self._table._senders)

    def admits_honest(self) -> bool:
        self.add(HONEST)
        return group4(HONEST) in self._table._senders


class LocalGroups(EngineFilling):
    """A local program reports groups, each with as many sources as we keep."""

    def __init__(self) -> None:
        super().__init__()
        self.cap, self.true_cap = 128, default_cap(Groups)
        self._table = Listeners(Groups(self.context, self.cap))

    def add(self, number: int) -> None:
        record = Record(group4(number), Filter.TO_INCLUDE, _SOURCES)
        self._table.report_untrusted(self.now, 4, igmp.report(host4(9), [record]).pack())
        self.settle()

    def __len__(self) -> int:
        return len(self._table)

    def admits_honest(self) -> bool:
        leave = Record(group4(0), Filter.TO_INCLUDE)
        self._table.report_untrusted(self.now, 4, igmp.report(host4(9), [leave]).pack())
        self.wait(2)
        before = len(self)
        self.add(HONEST)
        return len(self) == before + 1


class NotedDrops(Filling):
    def __init__(self) -> None:
        super().__init__()
        self.cap, self.true_cap = DROPS_NOTED_MAX, default_cap(Drops)
        self._seen = ""
        self._table = Drops(self._observe)

    def _observe(self, transition: Transition) -> None:
        self._seen = str(transition.subject)

    def add(self, number: int) -> None:
        self._table.note(self.now, hwaddr(number), "rx_runt")

    def __len__(self) -> int:
        return len(self._table._noted)

    def admits_honest(self) -> bool:
        self.add(HONEST)
        return self._seen == str(hwaddr(HONEST))


class LocalDhcpRequests(EngineFilling):
    def __init__(self) -> None:
        super().__init__()
        self.cap = DHCP_REQUESTS_MAX
        self._table = DhcpClients(self.context)

    def add(self, number: int) -> None:
        discover = (dhcp.Code.MESSAGE_TYPE, bytes((dhcp.Kind.DISCOVER,)))
        identifier = (dhcp.Code.CLIENT_ID, bytes(255))
        message = dhcp.Message(dhcp.Op.REQUEST, number, (discover, identifier), htype=1, hlen=6)
        nobody, all_hosts = IPv4Address(0), IPv4Address("255.255.255.255")
        self._table.sent(
            dhcp.Packet(nobody, dhcp.CLIENT_PORT, all_hosts, dhcp.SERVER_PORT, message).pack()
        )
        self.settle()

    def __len__(self) -> int:
        return len(self._table)

    def admits_honest(self) -> bool:
        self.add(HONEST)
        return any(it.xid == HONEST for it in self._table._asked.values())


class ProxyAnswers(EngineFilling):
    def __init__(self) -> None:
        super().__init__()
        self.cap = PROXY_ANSWERS_MAX
        groups = Groups(self.context)
        self._answered: list[AskProxy] = []
        answers = {4: self._answered.append, 6: self._answered.append}
        known = {host4(number) for number in range(PROXY_ANSWERS_MAX - PROXY_STRANGERS_MAX)}
        self._table = ProxyNetworks(
            self.context, groups, _RESOLVERS, answers, lambda sender, asker: sender in known
        )
        network = ip_network("10.0.0.0/8")
        self._table.change(self.now, ProxyRules((network,), delay_ipv4_s=PROXY_DELAY_MAX_S))

    def add(self, number: int) -> None:
        request = arp.request(hwaddr(number), host4(number), host4(number + 1))
        self._table.answer(self.now, AskProxy(request, hwaddr(number), True))
        self.settle()

    def __len__(self) -> int:
        return len(self._table._waiting)

    def admits_honest(self) -> bool:
        self.wait(PROXY_DELAY_MAX_S)
        before = len(self)
        self.add(HONEST)
        return len(self) == before + 1


class ProxyGroups(EngineFilling):
    """The kernel meets ever new hosts on another interface."""

    entries_each = 32  # between two looks

    def __init__(self) -> None:
        super().__init__()
        self.cap = PROXY_GROUPS_MAX
        self._table = ProxyNetworks(
            self.context, Groups(self.context), _RESOLVERS, {}, lambda sender, asker: False
        )
        self._hosts: set[IPv6Address] = set()

    def _change(self) -> None:
        rules = ProxyRules((ip_network("fe80::/16"),), listened=frozenset(self._hosts))
        self._table.change(self.now, rules)
        self.settle()

    def add(self, number: int) -> None:
        first = number * self.entries_each
        self._hosts |= {host6(first + each) for each in range(self.entries_each)}
        self._change()

    def __len__(self) -> int:
        return len(self._table._listened)

    def admits_honest(self) -> bool:
        """Entries that the kernel has forgotten make room."""
        self._hosts = set(sorted(self._hosts)[self.cap // 2 : self.cap])
        self.add(HONEST)
        return host6(HONEST * self.entries_each) in self._table._listened


class WatchedGateways(EngineFilling):
    """A routing daemon has routes by ever new gateways."""

    def __init__(self) -> None:
        super().__init__()
        self.cap = ROUTE_GATEWAYS_MAX
        self._table = Neighbours(self.context, _RESOLVERS, lambda now, ip, packet: None)

    def add(self, number: int) -> None:
        self._table.set_gateway(self.now, host4(number), True)
        self.settle()

    def __len__(self) -> int:
        return len(self._table._gateways)

    def admits_honest(self) -> bool:
        self._table.set_gateway(self.now, host4(0), False)
        self.add(HONEST)
        return self._table.is_gateway(host4(HONEST))


class SaPaths(Filling):
    """The older half of the paths has neighbours; we answer invented hosts by the others, and the SA knows
    none of those."""

    def __init__(self) -> None:
        super().__init__()
        self.cap, self.true_cap = FEW, default_cap(PathTable)
        self._table = PathTable(Timers(), self.cap)

    def _publish(self, number: int) -> None:
        to = Destination(hwaddr(number).gid, Qpn(1))
        publish = Publish(host4(number), NeighAction.SEND, to, 2044)
        self.note(self._table.pass_on(self.now, [publish]))

    def add(self, number: int) -> None:
        if number < self.cap // 2:
            self._publish(number)
            return
        gid = hwaddr(number).gid
        self.note(self._table.pass_on(self.now, [SendFrame(Destination(gid, Qpn(1)), b"frame")]))
        self._table.note_refused(self.now, gid, "no such port")
        self.note(self._table.pass_on(self.now, ()))

    def __len__(self) -> int:
        return len(self._table)

    def admits_honest(self) -> bool:
        self._publish(HONEST)
        return hwaddr(HONEST).gid in self._table.gids()


class WaitingForPath(Filling):
    entries_each = 1500 + WAITING_OVERHEAD_BYTES

    def __init__(self) -> None:
        super().__init__()
        self.cap = SA_PATH_PENDING_TOTAL_BYTES
        self._table = PathTable(Timers())

    def _send(self, gid: Gid) -> None:
        frame = SendFrame(Destination(gid, Qpn(1)), bytes(1500))
        self.note(self._table.pass_on(self.now, [frame]))

    def add(self, number: int) -> None:
        self._send(hwaddr(number // 200).gid)

    def __len__(self) -> int:
        return self._table._waiting.bytes

    def admits_honest(self) -> bool:
        gid = hwaddr(HONEST).gid
        self._send(gid)
        return self._table._waiting.count(gid) == 1


FILLINGS: dict[str, type[Filling]] = {
    "neighbours": NeighbourTable,
    "packets that wait for neighbours": WaitingPackets,
    "advertising routers": RouterTable,
    "prefixes and routes of router advertisements": AdvertisedPrefixes,
    "own addresses": OwnAddresses,
    "groups that we receive": ReceivedGroups,
    "groups that we send to": SentGroups,
    "groups of local programs": LocalGroups,
    "drops noted, by peer and reason": NotedDrops,
    "requests of local DHCP clients": LocalDhcpRequests,
    "answers for hosts behind us that wait for their delay": ProxyAnswers,
    "solicited-node groups of hosts behind us": ProxyGroups,
    "gateways of routes that we watch": WatchedGateways,
    "paths of the subnet administrator": SaPaths,
    "packets that wait for a path": WaitingForPath,
}
