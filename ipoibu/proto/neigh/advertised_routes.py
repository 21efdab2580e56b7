# SPDX-License-Identifier: BSD-2-Clause
"""The prefixes and routes of router advertisements that the local stack may take (N9).

The kernel makes a route, and for some an address, of each prefix that it hears, and keeps it until its
lifetime ends. So it gets a bounded number of them, and few new ones a second. One that routers repeat is
kept; one heard once makes room for another, and we withdraw it from the stack by a lifetime of 0.

Addresses stay longer: the stack makes at most 16 on an interface (max_addresses), and of a prefix that is
withdrawn it keeps the address for two hours (RFC 4862 §5.5.3 e). So routers that have never answered
occupy at most half of them, and the rest is for those that have. While more of them want one, we withdraw
the prefixes that were heard once: else the stack would send from an address to which nobody answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Final

from ipoibu.base.limits import (
    ADVERTISED_MAX,
    ADVERTISED_NEW_BURST,
    ADVERTISED_NEW_PER_S,
    ADVERTISED_REPEATED_S,
    ADVERTISED_SILENT_S,
    AUTOCONF_LASTS_S,
    AUTOCONF_UNPROVEN_MAX,
)
from ipoibu.proto.context import EngineContext
from ipoibu.proto.machine.ratelimit import TokenBucket
from ipoibu.wire.ndopt import Option

PREFIX_INFORMATION: Final = 3  # RFC 4861 §4.6.2: length, flags, two lifetimes, 4 bytes, prefix
ROUTE_INFORMATION: Final = 24  # RFC 4191 §2.3: prefix length, flags, lifetime, prefix

_AUTONOMOUS: Final = 0x40
_AUTOCONF_BITS: Final = 64  # the stack makes addresses of no other prefixes

_Key = tuple[int, IPv6Address | None, bytes]


@dataclass(slots=True)
class _Entry:
    source: IPv6Address  # the router that advertised it last
    option: Option
    first: float
    last: float
    ends: float
    address_ends: float = 0.0  # the stack may have an address of it so long

    def is_kept(self, now: float) -> bool:
        """Return whether routers repeat it, so that it does not make room for another."""
        is_repeated = self.last - self.first >= ADVERTISED_REPEATED_S
        return now < self.ends and is_repeated and now - self.last < ADVERTISED_SILENT_S

    def rank(self, now: float) -> tuple[bool, bool, bool, float]:
        """The entry with the least rank makes room first."""
        return now < self.address_ends, now < self.ends, self.is_kept(now), self.first


class Advertised:
    """At most `cap` prefixes and routes; `withdraw(now, source, option)` takes one from the stack, and
    `is_proven(source)` says whether a router has answered a solicitation."""

    def __init__(
        self,
        context: EngineContext,
        withdraw: Callable[[float, IPv6Address, Option], None],
        is_proven: Callable[[IPv6Address], bool],
        cap: int = ADVERTISED_MAX,
    ) -> None:
        self._context = context
        self._withdraw = withdraw
        self._is_proven = is_proven
        self._cap = cap
        self._entries: dict[_Key, _Entry] = {}
        self._new = TokenBucket(ADVERTISED_NEW_PER_S, ADVERTISED_NEW_BURST)

    def __len__(self) -> int:
        return len(self._entries)

    def refused(self, now: float, source: IPv6Address, options: Iterable[Option]) -> set[Option]:
        """Take the options of an advertisement; return those that the stack must not get."""
        return {option for option in options if not self._takes(now, source, option)}

    def _takes(self, now: float, source: IPv6Address, option: Option) -> bool:
        key = _key(source, option)
        if key is None:
            return True
        entry = self._entries.get(key)
        if lifetime_s(option) == 0:
            self._end(now, key)
            return True
        if entry is None:
            may = not makes_address(option) or self.may_make_address(now, source)
            if not may:
                self._withdraw_one_of_a_stranger(now)
            if not may or not self._new.take(now) or not self._make_room(now):
                text = f"kept a prefix or route of router {source} from the local stack: too many"
                self._context.warn("prefix_refused", now, text)
                return False
            entry = self._entries[key] = _Entry(source, option, now, now, now)
        entry.source, entry.option = source, option
        entry.last, entry.ends = now, now + lifetime_s(option)
        if makes_address(option):
            lasts_s = max(lifetime_s(option), AUTOCONF_LASTS_S)
            entry.address_ends = max(entry.address_ends, now + lasts_s)
        return True

    def may_make_address(self, now: float, source: IPv6Address) -> bool:
        """Return whether the stack may make an address of one more prefix of this router."""
        if self._is_proven(source):
            return True
        entries = (it for it in self._entries.values() if now < it.address_ends)
        strangers = sum(1 for it in entries if not self._is_proven(it.source))
        return strangers < AUTOCONF_UNPROVEN_MAX

    def _withdraw_one_of_a_stranger(self, now: float) -> None:
        """The stack keeps the address, but sends from it no longer."""
        once = [
            it
            for it in self._entries.values()
            if now < min(it.ends, it.address_ends)
            and not (it.is_kept(now) or self._is_proven(it.source))
        ]
        if once:
            entry = min(once, key=lambda it: it.first)
            entry.ends = now
            self._withdraw(now, entry.source, ended(entry.option))

    def _end(self, now: float, key: _Key) -> None:
        """A router takes a prefix or route back; the stack keeps its address for a while."""
        entry = self._entries.get(key)
        if entry is None:
            return
        entry.ends = now
        entry.address_ends = min(entry.address_ends, now + AUTOCONF_LASTS_S)
        if entry.address_ends <= now:
            del self._entries[key]

    def _make_room(self, now: float) -> bool:
        if len(self._entries) < self._cap:
            return True
        key, entry = min(self._entries.items(), key=lambda item: item[1].rank(now))
        if entry.is_kept(now):
            return False
        del self._entries[key]
        if now < entry.ends:
            text = f"no room for a prefix beside {self._cap} others: withdrew one of {entry.source}"
            self._context.warn("prefix_evicted", now, text)
            self._withdraw(now, entry.source, ended(entry.option))
        return True


def lifetime_s(option: Option) -> int:
    """Return how long the prefix or route is valid, in seconds."""
    return int.from_bytes(option.body[2:6], "big")


def makes_address(option: Option) -> bool:
    """Return whether the stack makes an address of the prefix (SLAAC)."""
    body = option.body
    is_prefix = option.type == PREFIX_INFORMATION and len(body) == 30
    return is_prefix and body[0] == _AUTOCONF_BITS and bool(body[1] & _AUTONOMOUS)


def with_lifetime(option: Option, seconds: int) -> Option:
    """Return the option with another lifetime; a prefix is preferred no longer than it is valid."""
    lasts = seconds.to_bytes(4, "big")
    if option.type == PREFIX_INFORMATION:
        preferred = min(seconds, int.from_bytes(option.body[6:10], "big")).to_bytes(4, "big")
        return Option(option.type, option.body[:2] + lasts + preferred + option.body[10:])
    return Option(option.type, option.body[:2] + lasts + option.body[6:])


def ended(option: Option) -> Option:
    return with_lifetime(option, 0)


def _key(source: IPv6Address, option: Option) -> _Key | None:
    """Say what an option is about: the link's prefix, or the route of one router; None: neither."""
    body = option.body
    if option.type == PREFIX_INFORMATION and len(body) == 30:
        return option.type, None, body[:1] + body[14:]
    if option.type == ROUTE_INFORMATION and len(body) > 5:
        return option.type, source, body[:1] + body[6:]
    return None
