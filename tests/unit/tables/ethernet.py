# SPDX-License-Identifier: BSD-2-Clause
"""Fillings of the tables of the Ethernet hand-off."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

from ipoibu.base.addr import Mac
from ipoibu.base.limits import (
    ETHERNET_CHECKS,
    ETHERNET_DHCP_MAX,
    ETHERNET_SEARCHES_BURST,
    ETHERNET_WAITING_MAX,
    ETHERNET_WAITING_TOTAL_BYTES,
    MEMBERSHIP_SOURCES_MAX,
    WAITING_OVERHEAD_BYTES,
)
from ipoibu.proto.context import EngineContext
from ipoibu.proto.dhcp.form import transaction_of
from ipoibu.proto.ethernet.dhcp import GuestDhcp
from ipoibu.proto.ethernet.guests import Guests
from ipoibu.proto.ethernet.host import EthernetHost
from ipoibu.proto.ethernet.listeners import GuestListeners
from ipoibu.proto.ethernet.macs import Macs
from ipoibu.proto.ethernet.queue_pairs import QueuePairs
from ipoibu.proto.ethernet.refusals import Reason, Refusals
from ipoibu.proto.ethernet_config import EthernetConfig
from ipoibu.proto.groups.groups import Groups
from ipoibu.proto.machine.transition import Transition
from ipoibu.wire import dhcp, igmp
from ipoibu.wire.membership import Filter, Record
from tests.doubles.packets import udp4
from tests.doubles.simulation import TEMPLATE
from tests.unit.tables.filling import (
    FEW,
    HONEST,
    EngineFilling,
    Filling,
    default_cap,
    group4,
    host4,
    hwaddr,
)

_SOURCES = tuple(host4(number) for number in range(MEMBERSHIP_SOURCES_MAX))


def _mac(number: int) -> Mac:
    return Mac(bytes((0x52, 0x54)) + number.to_bytes(4, "big"))


def _guests(context: EngineContext, **caps: int) -> Guests:
    return Guests(
        context,
        Groups(context),
        {},
        ask=lambda ip, mac: None,
        announce=lambda ip, is_router: None,
        queue_pairs=QueuePairs(context),
        **caps,
    )


class HostMacs(EngineFilling):
    def __init__(self) -> None:
        super().__init__()
        self.cap, self.true_cap = FEW, default_cap(Macs)
        self._table = Macs(self.context, lambda mac: False, self.cap)

    def add(self, number: int) -> None:
        self._table.learn(self.now, hwaddr(number))
        self.settle()

    def __len__(self) -> int:
        return len(self._table)

    def admits_honest(self) -> bool:
        mac = self._table.learn(self.now, hwaddr(HONEST))
        return self._table.hwaddr(mac) == hwaddr(HONEST)


class GuestAddresses(EngineFilling):
    """Guests with half as many addresses as one may have send from further ones."""

    def __init__(self) -> None:
        super().__init__()
        self.cap, self.true_cap = FEW, default_cap(Guests)
        self._table = _guests(self.context, cap=self.cap)

    def add(self, number: int) -> None:
        self._table.note_seen(self.now, host4(number), _mac(number // 512))
        self.settle()

    def __len__(self) -> int:
        return len(self._table)

    def admits_honest(self) -> bool:
        self._table.note_claimed(self.now, host4(HONEST), _mac(HONEST), announces=True)
        return self._table.mac(host4(HONEST)) == _mac(HONEST)


class AddressesOfOneGuest(EngineFilling):
    """A guest claims ever more addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.cap, self.true_cap = 512, default_cap(Guests, "cap_of_guest")
        self._table = _guests(self.context, cap_of_guest=self.cap)

    def add(self, number: int) -> None:
        self._table.note_claimed(self.now, host4(number), _mac(1), announces=True)
        self.settle()

    def __len__(self) -> int:
        return len(self._table)

    def admits_honest(self) -> bool:
        self._table.note_claimed(self.now, host4(HONEST), _mac(2), announces=True)
        return self._table.mac(host4(HONEST)) == _mac(2)


class GuestGroups(EngineFilling):
    def __init__(self) -> None:
        super().__init__()
        self.cap, self.true_cap = 128, default_cap(GuestListeners)
        groups, macs = Groups(self.context), Macs(self.context, lambda mac: False)
        self._table = GuestListeners(self.context, groups, macs, self.cap)

    def _report(self, guest: Mac, number: int, sources: tuple[IPv4Address, ...]) -> None:
        report = igmp.report(host4(9), [Record(group4(number), Filter.TO_INCLUDE, sources)])
        self._table.report_untrusted(self.now, guest, 4, report.pack())
        self.settle()

    def add(self, number: int) -> None:
        self._report(_mac(1), number, _SOURCES)

    def __len__(self) -> int:
        return len(self._table)

    def admits_honest(self) -> bool:
        self._report(_mac(1), 0, ())
        self.wait(10)
        self._report(_mac(2), HONEST, _SOURCES)
        return group4(HONEST) in self._table.members()


class GuestSearches(EngineFilling):
    """Hosts of the link send to addresses that no guest has, faster than we ask."""

    def __init__(self) -> None:
        super().__init__(replace(TEMPLATE, ethernet=EthernetConfig()))
        self.cap = ETHERNET_WAITING_MAX
        assert self.context.config.ethernet is not None
        self._table = EthernetHost(self.context, Groups(self.context), self.context.config.ethernet)
        self._table.link_up(self.now)

    def add(self, number: int) -> None:
        self.now += 1 / ETHERNET_SEARCHES_BURST
        self._table.dhcp_reply(self.now, udp4(1, str(host4(number)), b"data"))
        self.settle()

    def __len__(self) -> int:
        return len(self._table._searches)

    def admits_honest(self) -> bool:
        self.wait(ETHERNET_CHECKS + 1)
        self.add(HONEST)
        return host4(HONEST) in self._table._searches


class WaitingForGuest(GuestSearches):
    """They send long packets to a few addresses."""

    entries_each = 2000 + WAITING_OVERHEAD_BYTES

    def __init__(self) -> None:
        super().__init__()
        self.cap = ETHERNET_WAITING_TOTAL_BYTES

    def _send(self, number: int) -> None:
        self._table.dhcp_reply(self.now, udp4(1, str(host4(number)), bytes(1980)))
        self.settle()

    def add(self, number: int) -> None:
        self._send(number // 80)

    def __len__(self) -> int:
        return self._table._waiting.bytes

    def admits_honest(self) -> bool:
        self.now += 1
        self._send(HONEST)
        return self._table._waiting.count(host4(HONEST)) == 1


class GuestDhcpRequests(EngineFilling):
    def __init__(self) -> None:
        super().__init__()
        self.cap = ETHERNET_DHCP_MAX
        self._table = GuestDhcp(self.context)

    def add(self, number: int) -> None:
        discover = (dhcp.Code.MESSAGE_TYPE, bytes((dhcp.Kind.DISCOVER,)))
        identifier = (dhcp.Code.CLIENT_ID, self._identifier(number))
        chaddr = _mac(1).raw + bytes(10)
        message = dhcp.Message(
            dhcp.Op.REQUEST, number, (discover, identifier), htype=1, hlen=6, chaddr=chaddr
        )
        nobody, everyone = IPv4Address(0), IPv4Address("255.255.255.255")
        request = dhcp.Packet(nobody, dhcp.CLIENT_PORT, everyone, dhcp.SERVER_PORT, message)
        self._table.sent(self.now, _mac(1), request.pack())
        self.settle()

    def __len__(self) -> int:
        return len(self._table)

    def admits_honest(self) -> bool:
        self.add(HONEST)
        return transaction_of(HONEST, self._identifier(HONEST)) in self._table._asked

    @staticmethod
    def _identifier(number: int) -> bytes:
        return bytes(250) + number.to_bytes(5, "big")


class RefusedAddresses(Filling):
    def __init__(self) -> None:
        super().__init__()
        self._seen = ""
        self._table = Refusals(self._observe)
        self.cap, self.true_cap = self._table._cap, default_cap(Refusals)

    def _observe(self, transition: Transition) -> None:
        self._seen = str(transition.subject)

    def add(self, number: int) -> None:
        self._table.note(self.now, host4(number), _mac(1), Reason.HELD, _mac(2))

    def __len__(self) -> int:
        return len(self._table._refused)

    def admits_honest(self) -> bool:
        self.add(HONEST)
        return self._seen == str(host4(HONEST))


FILLINGS: dict[str, type[Filling]] = {
    "MACs of hosts of the link": HostMacs,
    "addresses of guests": GuestAddresses,
    "addresses of one guest": AddressesOfOneGuest,
    "groups of guests": GuestGroups,
    "addresses that we look for among guests": GuestSearches,
    "packets that wait for guests": WaitingForGuest,
    "requests of guests' DHCP clients": GuestDhcpRequests,
    "addresses that a guest may not use": RefusedAddresses,
}
