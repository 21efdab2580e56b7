# SPDX-License-Identifier: BSD-2-Clause
"""The MACs that stand for the hosts of the link towards the guests.

A MAC is made from the neighbour's hardware address by a hash, so that it is the same after a restart and
guests keep their ARP caches. It is locally administered (IEEE 802 §8.4). A neighbour whose MAC belongs
to another one, or to a guest, gets the next MAC.

The pump learns every MAC as a source. As a destination it learns the MAC when a guest first sends to it:
a path of the subnet administrator and an address handle are for those to whom guests talk.
"""

from __future__ import annotations

import errno
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from ipaddress import IPv6Address
from typing import Final

from ipoibu.base.addr import MAC_LEN, Gid, HwAddr, IpAddress, Mac, Qpn
from ipoibu.base.limits import ETHERNET_NEIGHBOURS_MAX, ETHERNET_PUBLISH_S, NEIGH_EVICTED_AT_ONCE
from ipoibu.proto.context import EngineContext
from ipoibu.proto.effects import DropNeighbour, NeighAction, Publish, SetNeighbour, Withdraw

NEXT_HOP_PREFIX: Final = bytes((1,)) + bytes(9)  # of 100::/64, which no host has (RFC 6666)

_BITS: Final = 46  # of a MAC, without the bits that say "local" and "group"
_LOCAL: Final = 0x02

_Key = tuple[Qpn, Gid]  # RFC 4755 §3.3: a hardware address without its flags


def next_hop_of(mac: Mac) -> IPv6Address:
    """Return the key under which the pump's neighbour table has the destination `mac`."""
    return IPv6Address(NEXT_HOP_PREFIX + mac.raw)


def mac_of_next_hop(next_hop: IpAddress) -> Mac | None:
    """Return the MAC of such a key, None for an IP address."""
    raw = next_hop.packed
    if len(raw) != 16 or raw[: len(NEXT_HOP_PREFIX)] != NEXT_HOP_PREFIX:
        return None
    return Mac(raw[len(NEXT_HOP_PREFIX) :])


def hashed(hwaddr: HwAddr) -> Mac:
    """Return the MAC of a hardware address where no other host has it."""
    raw = replace(hwaddr, flags=0).pack()
    return _local(int.from_bytes(hashlib.blake2b(raw, digest_size=MAC_LEN).digest(), "big"))


def _local(number: int) -> Mac:
    low = number % (1 << _BITS)
    first = (low >> 40 << 2 & 0xFF) | _LOCAL
    return Mac(bytes((first,)) + (low & 0xFFFFFFFFFF).to_bytes(5, "big"))


def after(mac: Mac) -> Mac:
    """Return the next local unicast MAC; the first one follows the last."""
    number = mac.raw[0] >> 2 << 40 | int.from_bytes(mac.raw[1:], "big")
    return _local(number + 1)


@dataclass(frozen=True, slots=True)
class NeighbourInfo:
    """A host of the link as the guests see it; `is_used`: a guest has sent to it."""

    mac: Mac
    hwaddr: HwAddr
    is_used: bool
    heard_s: float


@dataclass(slots=True)
class _Neighbour:
    hwaddr: HwAddr
    heard: float
    is_used: bool = False
    published: float = 0.0


class Macs:
    """At most `cap` hosts of the link; of those to which no guest sends, the longest silent makes room."""

    def __init__(
        self,
        context: EngineContext,
        is_guest: Callable[[Mac], bool],
        cap: int = ETHERNET_NEIGHBOURS_MAX,
    ) -> None:
        self._context = context
        self._is_guest = is_guest
        self._cap = cap
        self._macs: dict[_Key, Mac] = {}
        self._strangers: OrderedDict[Mac, _Neighbour] = OrderedDict()  # silent for longest first
        self._used: OrderedDict[Mac, _Neighbour] = OrderedDict()

    def __len__(self) -> int:
        return len(self._macs)

    def __contains__(self, mac: Mac) -> bool:
        return mac in self._strangers or mac in self._used or mac == self.own

    @property
    def own(self) -> Mac:
        """The interface's own MAC, which stays when its queue pair changes: the source of packets of
        hosts that have no MAC yet, and of our questions to the guests."""
        return hashed(HwAddr(Qpn(0), self._context.hwaddr.gid))

    def hwaddr(self, mac: Mac) -> HwAddr | None:
        """Return the host for which `mac` stands."""
        neighbour = self._used.get(mac) or self._strangers.get(mac)
        return None if neighbour is None else neighbour.hwaddr

    def learn(self, now: float, hwaddr: HwAddr) -> Mac:
        """Return the MAC of a host that has sent something, and make one for a new host."""
        key = hwaddr.qpn, hwaddr.gid
        mac = self._macs.get(key)
        if mac is None:
            return self._add(now, key, hwaddr)
        part = self._used if mac in self._used else self._strangers
        neighbour = part[mac]
        neighbour.heard = now
        part.move_to_end(mac)
        # It takes up connected mode, or gives it up; or the SA's table may have room for it again.
        is_old = neighbour.hwaddr != hwaddr or now - neighbour.published >= ETHERNET_PUBLISH_S
        neighbour.hwaddr = hwaddr
        if neighbour.is_used and is_old:
            self._publish(now, mac, neighbour)
        return mac

    def use(self, now: float, mac: Mac) -> IpAddress | None:
        """Have the pump send to `mac`, which it does not know, or does not know any more (the SA's table
        of paths evicts them); return the key, None if no host has this MAC."""
        neighbour = self._used.get(mac) or self._strangers.pop(mac, None)
        if neighbour is None:
            return None
        neighbour.is_used = True
        self._used[mac] = neighbour
        self._publish(now, mac, neighbour)
        return next_hop_of(mac)

    def note_refused(self, mac: Mac, error: int) -> None:
        """The pump did not take the destination: some that were silent for longest make room."""
        self._idle(mac)
        if error == errno.ENOSPC:
            for old in list(self._used)[:NEIGH_EVICTED_AT_ONCE]:
                self._context.count("ethernet_neighbour_evicted")
                self._idle(old)

    def link_down(self) -> None:
        """The pump has no destinations; packets of guests bring them back."""
        for mac in list(self._used):
            self._idle(mac)

    def snapshot(self, now: float) -> Iterator[NeighbourInfo]:
        for part in (self._used, self._strangers):
            for mac, it in part.items():
                yield NeighbourInfo(mac, it.hwaddr, it.is_used, now - it.heard)

    def pump_entries(self) -> list[SetNeighbour]:
        """Return the sources that the pump knows."""
        parts = (self._used, self._strangers)
        return [SetNeighbour(mac, it.hwaddr) for part in parts for mac, it in part.items()]

    def _add(self, now: float, key: _Key, hwaddr: HwAddr) -> Mac:
        self._make_room()
        mac = hashed(hwaddr)
        while mac in self or self._is_guest(mac):
            self._context.count("ethernet_mac_collision")
            mac = after(mac)
        self._macs[key] = mac
        self._strangers[mac] = _Neighbour(hwaddr, now)
        self._context.emit(SetNeighbour(mac, hwaddr))
        return mac

    def _make_room(self) -> None:
        if len(self._macs) < self._cap:
            return
        self._context.count("ethernet_neighbour_evicted")
        if not self._strangers:
            self._idle(next(iter(self._used)))
        mac, neighbour = self._strangers.popitem(last=False)
        del self._macs[neighbour.hwaddr.qpn, neighbour.hwaddr.gid]
        self._context.emit(DropNeighbour(mac, neighbour.hwaddr))

    def _idle(self, mac: Mac) -> None:
        """Take a destination away from the pump."""
        neighbour = self._used.pop(mac, None)
        if neighbour is not None:
            neighbour.is_used = False
            self._strangers[mac] = neighbour
            self._context.emit(Withdraw(next_hop_of(mac)))

    def _publish(self, now: float, mac: Mac, neighbour: _Neighbour) -> None:
        neighbour.published = now
        destination = self._context.unicast(neighbour.hwaddr)
        mtu_bytes = self._context.config.mtu_bytes
        next_hop = next_hop_of(mac)
        self._context.emit(
            Publish(next_hop, NeighAction.SEND, destination, mtu_bytes, neighbour.hwaddr)
        )
