# SPDX-License-Identifier: BSD-2-Clause
"""Our own addresses: probe for an address, then announce it. RFC 5227 (IPv4, K1-K7), RFC 4862 §5.4 (IPv6,
L1-L5).

    WAITING      for the link, and for the groups in which an owner would object
    TENTATIVE    probing; we neither use the address nor answer requests for it
    OPTIMISTIC   probing; we answer for the address meanwhile, but do not ask from it
    ANNOUNCING   ours; we send gratuitous ARP or unsolicited advertisements (A5)
    PREFERRED    ours
    CONTESTED    ours, and another host uses it too; we check until that host gives it up
    DUPLICATE    another host has it; given up until the link comes up again

`Dad` says for each family whether probes decide about an address (ON, OPTIMISTIC), only cause a warning
(WARN), or are not sent (OFF). With WARN and OFF an address is ours at once and stays so whatever another host
claims, as in the kernel's IPv4: we answer for it, and do not contest a VRRP router that takes it over.
With WARN we check whether that host still uses the address, and announce it once that host stops.

IPv6 probes start without the random delay of RFC 4862 §5.4.2: no common signal brings all hosts of a
fabric up at once, and peers that still know our former queue pair wait for the announcement.
For an optimistic address (RFC 4429) we answer solicitations already while we probe for it, without
override; a router has no such addresses. Once an address is ours we keep it; where probes decide we
defend it: RFC 5227 §2.4 (c), once in ten seconds.
"""

from __future__ import annotations

import enum
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from ipoibu.base.addr import HwAddr, IpAddress, IpInterface, IpNetwork
from ipoibu.base.limits import (
    ADDRESSES_MAX,
    ARP_PROBE_INTERVAL_MAX_S,
    ARP_PROBE_INTERVAL_MIN_S,
    CONTEST_CHECKS,
    CONTEST_INTERVAL_S,
    DEFEND_INTERVAL_S,
    RETRANS_TIMER_S,
)
from ipoibu.proto.context import Dad, EngineContext, Resolver
from ipoibu.proto.effects import AddressVerdict, Log
from ipoibu.proto.machine.backoff import Repeats
from ipoibu.proto.machine.table import Machine, Table
from ipoibu.proto.machine.transition import Topic, step
from ipoibu.wire.mgid import LIMITED_BROADCAST


class State(enum.Enum):
    WAITING = "waiting"
    TENTATIVE = "tentative"
    OPTIMISTIC = "optimistic"
    ANNOUNCING = "announcing"
    PREFERRED = "preferred"
    CONTESTED = "contested"
    DUPLICATE = "duplicate"


class Input(enum.Enum):
    READY = "the link is up and the groups are joined"
    OPTIMISTIC = "the link is up and the groups are joined, and we answer while we probe"
    WATCHED = "the link is up and the groups are joined, and probes only cause a warning"
    UNCHECKED = "the link is up and the groups are joined, and there are no probes"
    LINK_DOWN = "the link is down"
    TIMEOUT = "the interval is over"
    SPENT = "the interval is over, and all messages are sent"
    CLAIMED = "another host uses the address"
    CONTESTED = "another host uses the address, and probes only cause a warning"
    PROBED = "another host probes for the address"
    MOVED = "the interface has another hardware address"


class Action(enum.Enum):
    PROBE = "ask whether another host has the address"
    CHECK = "ask whether another host has our address, too"
    ANNOUNCE = "announce that we have it"
    DEFEND = "where probes decide: announce it again, at most every 10 s"
    RECOUNT = "the other host still uses it: begin to count checks again"
    ACCEPT = "report that the address is ours"
    GIVE_UP = "report that the address is a duplicate"
    ARM = "start the interval"


_S, _I, _A = State, Input, Action

# fmt: off
MACHINE: Final = Table("Address", State.WAITING, {
    (_S.WAITING, _I.READY):        (_S.TENTATIVE, (_A.PROBE, _A.ARM)),
    (_S.WAITING, _I.OPTIMISTIC):   (_S.OPTIMISTIC, (_A.PROBE, _A.ARM)),
    (_S.WAITING, _I.WATCHED):      (_S.ANNOUNCING, (_A.ACCEPT, _A.ANNOUNCE, _A.CHECK, _A.ARM)),
    (_S.WAITING, _I.UNCHECKED):    (_S.ANNOUNCING, (_A.ACCEPT, _A.ANNOUNCE, _A.ARM)),
    (_S.WAITING, _I.LINK_DOWN):    (_S.WAITING, ()),
    (_S.WAITING, _I.CLAIMED):      (_S.WAITING, ()),
    (_S.WAITING, _I.PROBED):       (_S.WAITING, ()),
    (_S.TENTATIVE, _I.LINK_DOWN):  (_S.WAITING, ()),
    (_S.TENTATIVE, _I.TIMEOUT):    (_S.TENTATIVE, (_A.PROBE, _A.ARM)),
    (_S.TENTATIVE, _I.SPENT):      (_S.ANNOUNCING, (_A.ACCEPT, _A.ANNOUNCE, _A.ARM)),
    (_S.TENTATIVE, _I.CLAIMED):    (_S.DUPLICATE, (_A.GIVE_UP,)),
    # RFC 5227 §2.1.1, RFC 4862 §5.4.3: of two hosts that probe at the same time both lose
    (_S.TENTATIVE, _I.PROBED):     (_S.DUPLICATE, (_A.GIVE_UP,)),
    (_S.OPTIMISTIC, _I.LINK_DOWN): (_S.WAITING, ()),
    (_S.OPTIMISTIC, _I.TIMEOUT):   (_S.OPTIMISTIC, (_A.PROBE, _A.ARM)),
    (_S.OPTIMISTIC, _I.SPENT):     (_S.ANNOUNCING, (_A.ACCEPT, _A.ANNOUNCE, _A.ARM)),
    (_S.OPTIMISTIC, _I.CLAIMED):   (_S.DUPLICATE, (_A.GIVE_UP,)),
    (_S.OPTIMISTIC, _I.PROBED):    (_S.DUPLICATE, (_A.GIVE_UP,)),  # as above: RFC 4429 changes nothing
    (_S.ANNOUNCING, _I.LINK_DOWN): (_S.WAITING, ()),
    (_S.ANNOUNCING, _I.TIMEOUT):   (_S.ANNOUNCING, (_A.ANNOUNCE, _A.ARM)),
    (_S.ANNOUNCING, _I.SPENT):     (_S.PREFERRED, ()),
    (_S.ANNOUNCING, _I.CLAIMED):   (_S.ANNOUNCING, (_A.DEFEND,)),
    (_S.ANNOUNCING, _I.CONTESTED): (_S.CONTESTED, (_A.ARM,)),
    (_S.ANNOUNCING, _I.PROBED):    (_S.ANNOUNCING, ()),
    (_S.ANNOUNCING, _I.MOVED):     (_S.ANNOUNCING, (_A.ANNOUNCE, _A.ARM)),
    (_S.PREFERRED, _I.LINK_DOWN):  (_S.WAITING, ()),
    (_S.PREFERRED, _I.CLAIMED):    (_S.PREFERRED, (_A.DEFEND,)),
    (_S.PREFERRED, _I.CONTESTED):  (_S.CONTESTED, (_A.ARM,)),
    (_S.PREFERRED, _I.MOVED):      (_S.ANNOUNCING, (_A.ANNOUNCE, _A.ARM)),
    (_S.PREFERRED, _I.PROBED):     (_S.PREFERRED, ()),
    (_S.CONTESTED, _I.LINK_DOWN):  (_S.WAITING, ()),
    (_S.CONTESTED, _I.TIMEOUT):    (_S.CONTESTED, (_A.PROBE, _A.ARM)),
    (_S.CONTESTED, _I.SPENT):      (_S.ANNOUNCING, (_A.ANNOUNCE, _A.ARM)),
    (_S.CONTESTED, _I.CLAIMED):    (_S.CONTESTED, (_A.DEFEND,)),
    (_S.CONTESTED, _I.CONTESTED):  (_S.CONTESTED, (_A.RECOUNT,)),
    (_S.CONTESTED, _I.PROBED):     (_S.CONTESTED, ()),
    (_S.CONTESTED, _I.MOVED):      (_S.ANNOUNCING, (_A.ANNOUNCE, _A.ARM)),
    (_S.DUPLICATE, _I.LINK_DOWN):  (_S.WAITING, ()),
})
# fmt: on

_BEGINNINGS: Final = {
    Dad.OFF: Input.UNCHECKED,
    Dad.WARN: Input.WATCHED,
    Dad.ON: Input.READY,
    Dad.OPTIMISTIC: Input.OPTIMISTIC,
}
_DECISIVE: Final = (Dad.ON, Dad.OPTIMISTIC)
_OURS: Final = (State.ANNOUNCING, State.PREFERRED, State.CONTESTED)


@dataclass(slots=True)
class _Address:
    ip: IpAddress
    interfaces: set[IpInterface] = field(default_factory=set)  # one for each prefix length
    state: State = State.WAITING
    is_checked: bool = True
    is_optimistic: bool = False
    is_kept: bool = False  # an earlier process or queue pair has probed for it
    policy: Dad | None = None  # None: that of the family
    sent: int = 0
    defended_s: float = -math.inf
    conflicts: Repeats = field(default_factory=Repeats)


class Addresses:
    """All addresses of one interface; calls `decided(now, ip, is_duplicate)` when detection ends.

    `is_joined(ip)` returns whether we receive the groups in which an owner of `ip` would object.
    """

    def __init__(
        self,
        context: EngineContext,
        resolvers: Mapping[int, Resolver],
        is_joined: Callable[[IpAddress], bool],
        decided: Callable[[float, IpAddress, bool], None],
    ) -> None:
        self._context = context
        self._resolvers = resolvers
        self._is_joined = is_joined
        self._decided = decided
        self._machine = Machine(MACHINE, context.timers, self._ring)
        self._addresses: dict[IpAddress, _Address] = {}
        self._broadcasts: Counter[IpAddress] = Counter()
        self._is_link_up = False
        self._kept: set[IpAddress] = set()  # addresses that were ours, and have not been added yet

    def __contains__(self, ip: IpAddress) -> bool:
        """Return whether `ip` is ours or may become so; a duplicate is a neighbour like any other."""
        address = self._addresses.get(ip)
        return address is not None and address.state is not State.DUPLICATE

    def is_ours(self, ip: IpAddress) -> bool:
        """Return whether we answer for `ip`: we have probed it, and it is no duplicate."""
        address = self._addresses.get(ip)
        return address is not None and address.state in _OURS

    def is_optimistic(self, ip: IpAddress) -> bool:
        """Return whether we probe for `ip` and answer for it meanwhile: RFC 4429."""
        address = self._addresses.get(ip)
        return address is not None and address.state is State.OPTIMISTIC

    def is_directed_broadcast(self, ip: IpAddress) -> bool:
        """Return whether `ip` is the broadcast address of one of our IPv4 subnets (RFC 919)."""
        return ip in self._broadcasts

    def is_group(self, next_hop: IpAddress) -> bool:
        """Return whether packets to `next_hop` go to a multicast group."""
        return (
            next_hop.is_multicast
            or next_hop == LIMITED_BROADCAST
            or self.is_directed_broadcast(next_hop)
        )

    def shares_network(self, ip: IpAddress) -> bool:
        """Return whether `ip` is in a network of one of our addresses."""
        return any(ip in network for network in self.networks())

    def networks(self) -> Iterator[IpNetwork]:
        """Yield the subnets of the interface."""
        for address in self._addresses.values():
            yield from (interface.network for interface in address.interfaces)

    def usable(self) -> list[IpInterface]:
        """Return the addresses that are ours, one for each prefix length."""
        return [
            interface
            for address in self._addresses.values()
            if address.state in _OURS
            for interface in sorted(address.interfaces)
        ]

    def shares_subnet(self, own: IpAddress, other: IpAddress) -> bool:
        """Return whether `own` is an address of ours with `other` in its subnet."""
        address = self._addresses.get(own)
        return address is not None and any(other in it.network for it in address.interfaces)

    def source_for(self, target: IpAddress, preferred: IpAddress | None) -> IpAddress | None:
        """Return the address to ask from: the source of the waiting packet, an address in the target's
        subnet, or any.

        RFC 4861 §7.2.2: the peer makes an entry for this address, so it should be the source of the next
        packet.
        """
        # With a gateway of the other family, the packet's source is of the other family, too (RFC 5549).
        usable = preferred is not None and preferred.version == target.version
        if preferred is not None and usable and self.is_ours(preferred):
            return preferred
        ours = [
            address
            for address in self._addresses.values()
            if address.state in _OURS and address.ip.version == target.version
        ]
        for address in ours:
            if any(target in interface.network for interface in address.interfaces):
                return address.ip
        for address in ours:
            if address.ip.is_link_local == target.is_link_local:
                return address.ip
        return ours[0].ip if ours else None

    def add(
        self,
        now: float,
        interface: IpInterface,
        *,
        is_checked: bool = True,
        is_optimistic: bool = False,
        policy: Dad | None = None,
    ) -> bool:
        """Take an address, as `policy` or that of its family says if `is_checked`, else at once, when the
        link is up; False (counted) if there are too many."""
        address = self._addresses.get(interface.ip)
        if address is None:
            if len(self._addresses) >= ADDRESSES_MAX:
                self._context.count("address_table_full")
                return False
            address = self._addresses[interface.ip] = _Address(
                interface.ip, is_checked=is_checked, is_optimistic=is_optimistic, policy=policy
            )
            address.is_kept = interface.ip in self._kept
            self._kept.discard(interface.ip)
            self._context.own(interface.ip)
        if interface not in address.interfaces:
            address.interfaces.add(interface)
            self._broadcasts.update(_broadcast(interface))
        self._begin(now, address)
        return True

    def keep(self, ips: Iterable[IpAddress]) -> None:
        """Begin with these addresses without probes when they are added, but only the first time."""
        self._kept.update(islice(ips, ADDRESSES_MAX))

    def keep_ours(self) -> None:
        """Begin with the addresses that are ours now without probes when the link comes up next."""
        for address in self._addresses.values():
            address.is_kept = address.state in _OURS

    def remove(self, interface: IpInterface) -> bool:
        """Drop an address; return whether no prefix of it is left."""
        address = self._addresses.get(interface.ip)
        if address is None or interface not in address.interfaces:
            return False
        address.interfaces.remove(interface)
        self._broadcasts -= Counter(_broadcast(interface))
        if address.interfaces:
            return False
        self._machine.cancel(interface.ip)
        del self._addresses[interface.ip]
        self._context.disown(interface.ip)
        return True

    def link_up(self, now: float) -> None:
        self._is_link_up = True
        self.note_group_joined(now)

    def note_group_joined(self, now: float) -> None:
        """Begin with the addresses that wait for the group. RFC 4862 §5.4.2: join, then probe."""
        for address in list(self._addresses.values()):
            self._begin(now, address)

    def link_down(self, now: float) -> None:
        self._is_link_up = False
        for address in self._addresses.values():
            self._feed(now, address, Input.LINK_DOWN)

    def note_moved(self, now: float) -> None:
        """Announce the addresses that are ours: we have another hardware address."""
        for address in self._addresses.values():
            if address.state in _OURS:
                address.sent = 0
                self._feed(now, address, Input.MOVED)

    def announce_again(self) -> None:
        """Send one announcement of each address that is ours, whatever their next ones are."""
        for address in self._addresses.values():
            if address.state in _OURS:
                self._resolvers[address.ip.version].announce(address.ip)

    def note_claimed(self, now: float, ip: IpAddress, by: HwAddr | None) -> None:
        """Respond to another host that acts as the owner of `ip`, one of our addresses (`in`)."""
        address = self._addresses[ip]
        self._context.count("address_conflict")
        if address.conflicts.add():
            text = f"address {ip} is also used by {by or 'another host'}{address.conflicts.times}"
            self._context.emit(Log(logging.WARNING, text))
        is_watched = address.state in _OURS and self._policy(address) is Dad.WARN
        self._feed(now, address, Input.CONTESTED if is_watched else Input.CLAIMED)

    def note_probed(self, now: float, ip: IpAddress) -> None:
        """Respond to another host that probes for `ip`, one of our addresses (`in`)."""
        self._feed(now, self._addresses[ip], Input.PROBED)

    def snapshot(self) -> Iterator[tuple[IpAddress, State]]:
        """Yield each address with TENTATIVE (also while it waits for the link), OPTIMISTIC, PREFERRED or
        DUPLICATE."""
        shown = {
            State.WAITING: State.TENTATIVE,
            State.ANNOUNCING: State.PREFERRED,
            State.CONTESTED: State.PREFERRED,
        }
        for address in self._addresses.values():
            yield address.ip, shown.get(address.state, address.state)

    def _begin(self, now: float, address: _Address) -> None:
        if address.state is not State.WAITING or not self._is_link_up:
            return
        if self._is_joined(address.ip):
            policy = Dad.OFF if address.is_kept else self._policy(address)
            address.is_kept = False
            self._feed(now, address, _BEGINNINGS[policy])

    def _policy(self, address: _Address) -> Dad:
        if not address.is_checked or self._probes(address) == 0:
            return Dad.OFF
        if address.policy is not None:
            return address.policy
        config = self._context.config
        if address.ip.version == 4:
            return config.dad_ipv4
        policy = config.dad_ipv6
        if policy is Dad.ON and address.is_optimistic:
            policy = Dad.OPTIMISTIC
        # RFC 4429 is about hosts: a router's advertisements would make others use the address
        return Dad.ON if policy is Dad.OPTIMISTIC and config.is_router else policy

    def _probes(self, address: _Address) -> int:
        config = self._context.config
        return config.arp_probes if address.ip.version == 4 else config.dad_transmits

    def _feed(self, now: float, address: _Address, fed: Input) -> None:
        before, actions = self._machine.feed(address, address.ip, fed)
        if address.state is not before:
            address.sent = 0
            self._context.observe(step(Topic.ADDRESS, address.ip, before, address.state, fed))
        for action in actions:
            self._act(now, address, action)

    def _act(self, now: float, address: _Address, action: Action) -> None:
        resolver = self._resolvers[address.ip.version]
        match action:
            case Action.PROBE:
                address.sent += 1
                resolver.probe(address.ip)
            case Action.CHECK:
                resolver.probe(address.ip)
            case Action.RECOUNT:
                address.sent = 0
            case Action.ANNOUNCE:
                address.sent += 1
                resolver.announce(address.ip)
            case Action.DEFEND if self._policy(address) in _DECISIVE:
                if now - address.defended_s >= DEFEND_INTERVAL_S:
                    address.defended_s = now
                    resolver.announce(address.ip)
            case Action.ACCEPT:
                self._tell(address, duplicate=False)
                self._decided(now, address.ip, False)
            case Action.GIVE_UP:
                self._tell(address, duplicate=True)
                self._decided(now, address.ip, True)
            case Action.ARM:
                self._machine.arm(address.ip, now + self._interval_s(address))

    def _tell(self, address: _Address, *, duplicate: bool) -> None:
        """Let our caller know, but for an address with a policy of its own: who added it does that."""
        if address.policy is None:
            self._context.emit(AddressVerdict(address.ip, duplicate))

    def _ring(self, now: float, ip: IpAddress) -> None:
        address = self._addresses[ip]
        is_spent = address.sent >= self._limit(address)
        self._feed(now, address, Input.SPENT if is_spent else Input.TIMEOUT)

    def _limit(self, address: _Address) -> int:
        """Return how many messages of a state go unanswered before the state ends."""
        match address.state:
            case State.ANNOUNCING:
                return self._context.config.announce_count
            case State.CONTESTED:
                return CONTEST_CHECKS
            case _:
                return self._probes(address)

    def _interval_s(self, address: _Address) -> float:
        if address.state is State.ANNOUNCING:
            return self._context.config.announce_interval_s
        if address.state is State.CONTESTED:
            return CONTEST_INTERVAL_S
        if address.ip.version == 6:
            return RETRANS_TIMER_S
        return self._context.rng.uniform(ARP_PROBE_INTERVAL_MIN_S, ARP_PROBE_INTERVAL_MAX_S)


def _broadcast(interface: IpInterface) -> tuple[IpAddress, ...]:
    """Return the subnet's broadcast address, if it has one: RFC 919, RFC 3021 (/31)."""
    if interface.version == 6 or interface.network.prefixlen > 30:
        return ()
    return (interface.network.broadcast_address,)
