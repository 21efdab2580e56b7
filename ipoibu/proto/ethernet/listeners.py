# SPDX-License-Identifier: BSD-2-Clause
"""The groups of the guests, by their IGMP and MLD reports: snooping as in RFC 4541, with a querier.

Guests report a group when they join it, and again when asked. So we ask: when the link came up or the TAP
came into a bridge, again after 1, 2, 4 .. 64 s, and then every `ETHERNET_QUERY_S`, from 0.0.0.0 or
from our link-local address, towards the guests alone. A guest that reports no more leaves its
groups. When the last known guest leaves a group, we ask the others, of which one may have kept silent
because it heard the report of the first (RFC 2236 §3).
"""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from ipoibu.base.addr import IpAddress, Mac
from ipoibu.base.limits import (
    ETHERNET_LAST_MEMBER_S,
    ETHERNET_MEMBERSHIP_S,
    ETHERNET_MEMBERSHIPS_MAX,
    ETHERNET_QUERY_FAST_S,
    ETHERNET_QUERY_RESPONSE_S,
    ETHERNET_QUERY_S,
    MEMBERSHIP_SOURCES_MAX,
)
from ipoibu.proto.context import EngineContext
from ipoibu.proto.effects import Deliver
from ipoibu.proto.ethernet.macs import Macs
from ipoibu.proto.groups.groups import Groups
from ipoibu.proto.groups.listeners import PARSERS, is_reported
from ipoibu.wire import igmp, ip, mld
from ipoibu.wire.encap import EtherType
from ipoibu.wire.ethernet import Frame, group_mac
from ipoibu.wire.membership import NOT_A_MEMBER, Interest, Query, Record, after

_Pair = tuple[IpAddress, Mac]


class GuestListeners:
    """Pairs of group and guest, at most `cap`; the engine refuses and counts further ones."""

    def __init__(
        self,
        context: EngineContext,
        groups: Groups,
        macs: Macs,
        cap: int = ETHERNET_MEMBERSHIPS_MAX,
    ) -> None:
        self._context = context
        self._groups = groups
        self._macs = macs
        self._cap = cap
        self._interest: OrderedDict[_Pair, Interest] = OrderedDict()
        self._guests: dict[IpAddress, set[Mac]] = {}
        self._source = IPv6Address(0)
        self._interval_s = ETHERNET_QUERY_S  # from the next query to the one after it

    def __len__(self) -> int:
        return len(self._interest)

    def members(self) -> dict[IpAddress, int]:
        """Return the groups of the guests, with the number of guests in each."""
        return {group: len(guests) for group, guests in self._guests.items()}

    def link_up(self, now: float, source: IPv6Address) -> None:
        """Ask for all groups from now on, those of IPv6 from `source`."""
        self._source = source
        self.ask_again(now)

    def ask_again(self, now: float) -> None:
        """Ask at once, and again soon: there may be other guests than before, and a bridge announces its new
        port before it forwards, on a busy machine long before."""
        self._interval_s = ETHERNET_QUERY_FAST_S
        self._ask_all(now, None)

    def link_down(self) -> None:
        self._context.timers.cancel(self._ask_all, None)

    def report_untrusted(self, now: float, guest: Mac, version: int, packet: bytes) -> None:
        """Follow one packet of a guest, and ignore queries; `BadFrame` for an invalid report."""
        message = PARSERS[version](packet)
        if message is None or isinstance(message, Query):
            return
        for record in message.records:
            if is_reported(record.group):
                self._apply(now, guest, record)

    def _apply(self, now: float, guest: Mac, record: Record) -> None:
        pair = record.group, guest
        before = self._interest.get(pair, NOT_A_MEMBER)
        wanted = after(before, record)
        if wanted is not None and len(wanted) > MEMBERSHIP_SOURCES_MAX:
            wanted = None  # too many sources to remember: take every source
        if wanted != NOT_A_MEMBER:
            if before == NOT_A_MEMBER and not self._add(now, pair):
                return
            self._interest[pair] = wanted
            self._context.timers.arm(self._silent, pair, now + ETHERNET_MEMBERSHIP_S)
        elif before != NOT_A_MEMBER:
            if len(self._guests[record.group]) > 1:
                self._remove(now, pair)
            else:
                self._ask(record.group, ETHERNET_QUERY_FAST_S)
                self._context.timers.arm(self._silent, pair, now + ETHERNET_LAST_MEMBER_S)

    def _add(self, now: float, pair: _Pair) -> bool:
        group, guest = pair
        if len(self._interest) >= self._cap:
            text = f"cannot join {group} for guest {guest}: guests have {self._cap} groups"
            self._context.warn("ethernet_memberships_full", now, text)
            return False
        members = self._guests.get(group)
        if members is None:
            if not self._groups.join(now, group):
                return False
            members = self._guests[group] = set()
        members.add(guest)
        return True

    def _remove(self, now: float, pair: _Pair) -> None:
        group, guest = pair
        self._context.timers.cancel(self._silent, pair)
        del self._interest[pair]
        members = self._guests[group]
        members.discard(guest)
        if not members:
            del self._guests[group]
            self._groups.leave(now, group)

    def _silent(self, now: float, pair: _Pair) -> None:
        self._remove(now, pair)

    def _ask_all(self, now: float, key: None) -> None:
        interval_s = self._interval_s
        self._interval_s = min(2 * interval_s, ETHERNET_QUERY_S)
        self._ask(None, min(interval_s, ETHERNET_QUERY_RESPONSE_S))
        self._context.timers.arm(self._ask_all, key, now + interval_s)

    def _ask(self, group: IpAddress | None, response_s: float) -> None:
        """Ask the guests for the members of `group`, or of all groups of both families."""
        if not isinstance(group, IPv6Address):
            self._deliver(igmp.query(group, response_s, ETHERNET_QUERY_S))
        if not isinstance(group, IPv4Address) and self._context.config.carries_ipv6:
            self._deliver(mld.query(self._source, group, response_s, ETHERNET_QUERY_S))

    def _deliver(self, query: ip.Packet) -> None:
        kind = _KINDS[query.source.version]
        frame = Frame(group_mac(query.destination), self._macs.own, kind, query.pack())
        self._context.emit(Deliver(frame.pack()))


_KINDS: Final = {4: EtherType.IPV4, 6: EtherType.IPV6}
