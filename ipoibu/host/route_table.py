# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's routes over one interface, in the kernel's order, and the route of each prefix that
counts."""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from ipoibu.host.netsocket import NLM_F_APPEND, NLM_F_REPLACE
from ipoibu.host.route_message import (
    RT_TABLE_DEFAULT,
    RT_TABLE_LOCAL,
    RT_TABLE_MAIN,
    RouteEntry,
)
from ipoibu.route import RouteChange, Target

_AF_INET: Final = 2
_AF_INET6: Final = 10
# The tables of the default rules; under other rules ipoibu asks the kernel about each flow.
_TABLES: Final = (RT_TABLE_LOCAL, RT_TABLE_MAIN, RT_TABLE_DEFAULT)
_DEFAULT: Final = {
    _AF_INET: bytes((96,)) + bytes(10) + b"\xff\xff" + bytes(4),
    _AF_INET6: bytes(17),
}
SHARED_MAX: Final = 65_536  # different contents of prefixes that the table remembers

Entries = tuple[RouteEntry, ...]


class RouteTable:
    """The routes by prefix. `changes` yields the changes of the best routes since its last call.

    For a family with `ask` the table publishes one route, of kind "ask": the kernel decides each flow.
    """

    def __init__(self) -> None:
        self._entries: dict[bytes, Entries] = {}
        self._shared: dict[Entries, Entries] = {}  # most prefixes have equal entries
        self._targets: dict[Entries, Target] = {}
        self._before: dict[bytes, Entries] = {}  # prefixes that changed, with their former entries
        self._asks: dict[int, int] = {}  # fields by family
        self._selecting: Counter[tuple[int, int]] = Counter()  # routes by family and their `asks`
        self._ready: list[RouteChange] = []

    def __len__(self) -> int:
        return len(self._entries)

    def prefers(self, sources: set[bytes]) -> bool:
        """Return whether the kernel gives one of these source addresses to the packets of some route."""
        different = {id(entries): entries for entries in self._entries.values()}.values()
        return any(entry.source in sources for entries in different for entry in entries)

    def replace(self, listed: Iterable[tuple[bytes, RouteEntry]]) -> None:
        """Replace the whole content by `listed`, in the kernel's order."""
        former = self._entries
        self._entries, self._shared, self._selecting = {}, {}, Counter()
        for prefix, entry in listed:
            if entry.is_ours and entry.table in _TABLES:
                self._set(prefix, self._entries.get(prefix, ()) + _single_hops(entry))
        for prefix in former.keys() | self._entries.keys():
            before = former.get(prefix, ())
            if before != self._entries.get(prefix, ()):
                self._before.setdefault(prefix, before)

    def add(self, prefix: bytes, entry: RouteEntry, flags: int) -> None:
        """Add a route by a notice; `flags` of the message give its place in the kernel's order."""
        if entry.table not in _TABLES:
            return
        before = after = self._entries.get(prefix, ())
        if entry.family == _AF_INET6:
            after = _with_ipv6(before, entry, flags)
        elif entry not in before:
            after = _with_ipv4(before, entry, flags)
        if after != before:
            self._change(prefix, before, after)

    def remove(self, prefix: bytes, entry: RouteEntry) -> None:
        """Remove a route by a notice of the kernel."""
        before = self._entries.get(prefix, ())
        if before and entry.is_ours and entry.table in _TABLES:
            without = _without_ipv6 if entry.family == _AF_INET6 else _without_ipv4
            self._change(prefix, before, without(before, entry))

    def selecting(self, family: int) -> int | None:
        """Return the fields by which routes of the family select packets besides the destination; None if no
        route does."""
        found = [
            fields for (of, fields), count in self._selecting.items() if of == family and count
        ]
        return functools.reduce(operator.or_, found) if found else None

    def ask(self, family: int, fields: int | None) -> None:
        """Let the kernel decide the flows of the family, which differ by `fields`; None: the table does."""
        before = self._asks.get(family)
        if before == fields:
            return
        self._ready += self._changed()
        if before is None:
            self._ready += [RouteChange(prefix, None) for prefix in self._prefixes(family)]
        if fields is None:
            del self._asks[family]
            self._ready.append(RouteChange(_DEFAULT[family], None))
            self._ready += [
                RouteChange(prefix, self._target(self._entries[prefix]))
                for prefix in self._prefixes(family)
            ]
        else:
            self._asks[family] = fields
            self._ready.append(self._question(family))

    @property
    def is_asking(self) -> bool:
        return bool(self._asks)

    def forget_answers(self) -> None:
        """Publish the routes of kind "ask" again, since the kernel's answers may have changed."""
        self._ready += [self._question(family) for family in self._asks]

    def changes(self) -> Iterator[RouteChange]:
        """Yield the changes to publish; a route with another target replaces the old one."""
        ready, self._ready = self._ready, []
        yield from ready
        yield from self._changed()

    def _changed(self) -> Iterator[RouteChange]:
        before, self._before = self._before, {}
        for prefix, entries in before.items():
            if _family(prefix) in self._asks:
                continue
            was, now = self._target(entries), self._target(self._entries.get(prefix, ()))
            if was != now:
                yield RouteChange(prefix, now)

    def _prefixes(self, family: int) -> list[bytes]:
        return [prefix for prefix in self._entries if _family(prefix) == family]

    def _question(self, family: int) -> RouteChange:
        return RouteChange(_DEFAULT[family], Target("ask", fields=self._asks[family]))

    def _change(self, prefix: bytes, before: Entries, entries: Entries) -> None:
        self._before.setdefault(prefix, before)
        self._set(prefix, entries)

    def _set(self, prefix: bytes, entries: Entries) -> None:
        for entry in self._entries.get(prefix, ()):
            if entry.asks is not None:
                self._selecting[entry.family, entry.asks] -= 1
        for entry in entries:
            if entry.asks is not None:
                self._selecting[entry.family, entry.asks] += 1
        if entries:
            if len(self._shared) >= SHARED_MAX:
                self._shared.clear()
            self._entries[prefix] = self._shared.setdefault(entries, entries)
        else:
            self._entries.pop(prefix, None)

    def _target(self, entries: Entries) -> Target | None:
        if not entries:
            return None
        target = self._targets.get(entries)
        if target is None:
            if len(self._targets) >= SHARED_MAX:
                self._targets.clear()
            target = self._targets[entries] = best(entries)
        return target


def best(entries: Entries) -> Target:
    """Return the target of the route that the kernel takes: the first route of the lowest rank."""
    first = min(entries, key=_rank)
    if first.kind != "unicast":
        return Target(first.kind)
    if not (first.spreads and first.family == _AF_INET6):
        return Target("unicast", first.hops)
    joined = [each for each in entries if each.spreads and _place(each) == _place(first)]
    return Target("unicast", tuple(hop for each in joined for hop in each.hops))


def _rank(entry: RouteEntry) -> tuple[int, int, int]:
    """The tables in the order of the default rules, then metric, then the preference of RFC 4191."""
    return (_TABLES.index(entry.table), entry.metric, -entry.preference)


def _place(entry: RouteEntry) -> tuple[int, int, int, bytes]:
    """Of the routes of one prefix, those with the same place compete for it."""
    source = entry.source if entry.family == _AF_INET6 else b""
    return (entry.table, entry.tos, entry.metric, source)


def _family(prefix: bytes) -> int:
    return _AF_INET if prefix[1:13] == _DEFAULT[_AF_INET][1:13] and prefix[0] >= 96 else _AF_INET6


def _single_hops(entry: RouteEntry) -> Entries:
    """Split a multipath route: the kernel adds and removes IPv6's hops one by one, so each hop is an entry
    of its own."""
    if entry.family != _AF_INET6 or len(entry.hops) < 2:
        return (entry,)
    return tuple(entry._replace(hops=(hop,)) for hop in entry.hops)


def _with_ipv4(before: Entries, entry: RouteEntry, flags: int) -> Entries:
    """Insert an IPv4 route: it goes before the routes of its place, with APPEND behind them."""
    places = [at for at, each in enumerate(before) if _place(each) == _place(entry)]
    new = (entry,) if entry.is_ours else ()
    if not places:
        return before + new
    if flags & NLM_F_REPLACE:
        return before[: places[0]] + new + before[places[0] + 1 :]
    at = places[-1] + 1 if flags & NLM_F_APPEND else places[0]
    return before[:at] + new + before[at:]


def _with_ipv6(before: Entries, entry: RouteEntry, flags: int) -> Entries:
    """Insert an IPv6 route: it goes behind the routes of its place; a hop that exists already keeps its
    turn."""
    rest = list(before)
    if flags & NLM_F_REPLACE:
        rivals = [each for each in rest if _place(each) == _place(entry)]
        gone = [each for each in rivals if each.spreads] if entry.spreads else rivals[:1]
        rest = [each for each in rest if each not in gone]
    for single in _single_hops(entry) if entry.is_ours else ():
        at = next((at for at, each in enumerate(rest) if _is_same_hop(each, single)), None)
        if at is None:
            rest.append(single)
        else:
            rest[at] = single
    return tuple(rest)


def _without_ipv4(before: Entries, entry: RouteEntry) -> Entries:
    places = [at for at, each in enumerate(before) if _place(each) == _place(entry)]
    exact = [at for at in places if before[at].hops == entry.hops]
    at = (exact or places or [len(before)])[0]
    return before[:at] + before[at + 1 :]


def _without_ipv6(before: Entries, entry: RouteEntry) -> Entries:
    gone = _single_hops(entry)
    return tuple(each for each in before if not any(_is_same_hop(each, hop) for hop in gone))


def _is_same_hop(one: RouteEntry, other: RouteEntry) -> bool:
    return _place(one) == _place(other) and [h.via for h in one.hops] == [h.via for h in other.hops]
