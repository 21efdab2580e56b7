# SPDX-License-Identifier: BSD-2-Clause
"""The routes of one prefix in the kernel's order, and the one of them that counts.

Most prefixes have one route or a few: a tuple, which prefixes with equal routes share. A prefix with many is
a `Crowd`, in which each change costs the same however many routes there are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final

from ipoibu.base.limits import ROUTE_HOPS_MAX
from ipoibu.base.route import Target
from ipoibu.host.netsocket import NLM_F_APPEND, NLM_F_REPLACE
from ipoibu.host.route_message import (
    RT_TABLE_DEFAULT,
    RT_TABLE_LOCAL,
    RT_TABLE_MAIN,
    RouteEntry,
)

_AF_INET6: Final = 10
# The tables of the default rules; under other rules ipoibu asks the kernel about each flow.
TABLES: Final = (RT_TABLE_LOCAL, RT_TABLE_MAIN, RT_TABLE_DEFAULT)

Entries = tuple[RouteEntry, ...]
_Place = tuple[int, int, int, bytes]
_Shelf = OrderedDict[object, RouteEntry]  # routes of one place and preference, by what names them


class Crowd:
    """The routes of a prefix that has many."""

    def __init__(self, entries: Iterable[RouteEntry] = ()) -> None:
        self._shelves: dict[tuple[_Place, int], _Shelf] = {}
        self._least: tuple[_Place, int] | None = None  # the shelf whose first route counts
        self._len = 0
        for entry in entries:
            self.append(entry)

    def __len__(self) -> int:
        return self._len

    def __iter__(self) -> Iterator[RouteEntry]:
        return chain.from_iterable(shelf.values() for shelf in self._shelves.values())

    def append(self, entry: RouteEntry) -> None:
        """Put a route behind all of its place, or in the place of the same one."""
        shelf = self._shelf(entry)
        if _name(entry) not in shelf:
            self._len += 1
        shelf[_name(entry)] = entry

    def add(self, entry: RouteEntry, flags: int) -> tuple[Entries, Entries]:
        """Take a notice of a new route; return what it adds and what it takes away."""
        if entry.family == _AF_INET6:
            return self._add_ipv6(entry, flags)
        return self._add_ipv4(entry, flags)

    def remove(self, entry: RouteEntry) -> Entries:
        """Take a notice of a route that is gone; return what it takes away."""
        if entry.family == _AF_INET6:
            return tuple(
                gone for hop in single_hops(entry) if (gone := self._pop_hop(hop)) is not None
            )
        shelf = self._shelves.get(_key(entry))
        if shelf is None:
            return ()
        gone = shelf.get(entry)
        if gone is None:
            gone = next((it for it in shelf.values() if it.hops == entry.hops), None)
        return (self._pop(gone or next(iter(shelf.values()))),)

    def best(self) -> Target:
        """Return the target that counts; of a multipath route no more hops than show that it has too many."""
        assert self._least is not None, "a crowd has many routes"
        shelf = self._shelves[self._least]
        first = next(iter(shelf.values()))
        if first.spreads and first.family == _AF_INET6:
            others = (self._shelves.get(key) for key in _keys(first) if key != self._least)
            joined = chain(shelf.values(), *(it.values() for it in others if it is not None))
            spreading = (hop for each in joined if each.spreads for hop in each.hops)
            return Target("unicast", tuple(islice(spreading, ROUTE_HOPS_MAX + 1)))
        return best((first,))

    def _add_ipv4(self, entry: RouteEntry, flags: int) -> tuple[Entries, Entries]:
        shelf = self._shelves.get(_key(entry))
        if shelf is not None and entry in shelf:
            return (), ()
        gone: Entries = ()
        if shelf is not None and flags & NLM_F_REPLACE:
            gone = (self._pop(next(iter(shelf.values()))),)
        if not entry.is_ours:
            return (), gone
        self.append(entry)
        if not flags & NLM_F_APPEND:
            self._shelf(entry).move_to_end(entry, last=False)
        return (entry,), gone

    def _add_ipv6(self, entry: RouteEntry, flags: int) -> tuple[Entries, Entries]:
        if flags & NLM_F_REPLACE:
            return self._replace_ipv6(entry, flags)
        gone: list[RouteEntry] = []
        added = single_hops(entry) if entry.is_ours else ()
        for hop in added:
            shelf = self._shelves.get(_key(hop))
            former = shelf.get(_name(hop)) if shelf is not None else self._pop_hop(hop)
            if former is not None:
                gone.append(former)
            self.append(hop)
        return added, tuple(gone)

    def _replace_ipv6(self, entry: RouteEntry, flags: int) -> tuple[Entries, Entries]:
        """Sort the routes of the place anew, as only an administrator replaces a route."""
        shelves = [self._shelves[key] for key in _keys(entry) if key in self._shelves]
        before = tuple(chain.from_iterable(shelf.values() for shelf in shelves))
        after = _with_ipv6(before, entry, flags)
        for former in before:
            self._pop(former)
        for route in after:
            self.append(route)
        was, now = set(before), set(after)
        return tuple(it for it in after if it not in was), tuple(
            it for it in before if it not in now
        )

    def _pop_hop(self, hop: RouteEntry) -> RouteEntry | None:
        """Remove the route by this hop, whatever its preference."""
        for key in _keys(hop):
            shelf = self._shelves.get(key)
            if shelf is not None and _name(hop) in shelf:
                return self._pop(shelf[_name(hop)])
        return None

    def _pop(self, entry: RouteEntry) -> RouteEntry:
        key = _key(entry)
        shelf = self._shelves[key]
        del shelf[_name(entry)]
        self._len -= 1
        if not shelf:
            del self._shelves[key]
            if key == self._least:
                self._least = min(self._shelves, key=_rank_of_key, default=None)
        return entry

    def _shelf(self, entry: RouteEntry) -> _Shelf:
        key = _key(entry)
        shelf = self._shelves.get(key)
        if shelf is None:
            shelf = self._shelves[key] = OrderedDict()
            if self._least is None or _rank_of_key(key) < _rank_of_key(self._least):
                self._least = key
        return shelf


def _key(entry: RouteEntry) -> tuple[_Place, int]:
    return _place(entry), entry.preference


def _keys(entry: RouteEntry) -> list[tuple[_Place, int]]:
    place = _place(entry)
    return [(place, preference) for preference in (1, 0, -1)]


def _rank_of_key(key: tuple[_Place, int]) -> tuple[int, int, int]:
    (table, _, metric, _), preference = key
    return (TABLES.index(table), metric, -preference)


def _name(entry: RouteEntry) -> object:
    """Return what tells a route from the others of its place: IPv6 has each hop once."""
    return tuple(hop.via for hop in entry.hops) if entry.family == _AF_INET6 else entry


def with_notice(before: Entries, entry: RouteEntry, flags: int) -> Entries:
    """Return the routes after a notice of a new one."""
    if entry.family == _AF_INET6:
        return _with_ipv6(before, entry, flags)
    return before if entry in before else _with_ipv4(before, entry, flags)


def without(before: Entries, entry: RouteEntry) -> Entries:
    """Return the routes after a notice of one that is gone."""
    removed = _without_ipv6 if entry.family == _AF_INET6 else _without_ipv4
    return removed(before, entry)


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
    return (TABLES.index(entry.table), entry.metric, -entry.preference)


def _place(entry: RouteEntry) -> _Place:
    """Of the routes of one prefix, those with the same place compete for it."""
    source = entry.source if entry.family == _AF_INET6 else b""
    return (entry.table, entry.tos, entry.metric, source)


def single_hops(entry: RouteEntry) -> Entries:
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
        gone = _replaced_ipv6(rivals, entry)
        if entry.is_ours and gone:
            at = rest.index(gone[0])
            kept = [each for each in rest[at:] if each not in gone]
            return (*rest[:at], *single_hops(entry), *kept)
        rest = [each for each in rest if each not in gone]
    for single in single_hops(entry) if entry.is_ours else ():
        place = next((at for at, each in enumerate(rest) if _is_same_hop(each, single)), None)
        if place is None:
            rest.append(single)
        else:
            rest[place] = single
    return tuple(rest)


def _replaced_ipv6(rivals: list[RouteEntry], entry: RouteEntry) -> list[RouteEntry]:
    """Return what the new route replaces: the hops of a multipath route, or one other route. It prefers
    its own kind, and without one takes the first route."""
    same = [each for each in rivals if each.spreads == entry.spreads] or rivals
    if same and same[0].spreads:
        return [each for each in rivals if each.spreads]
    return same[:1]


def _without_ipv4(before: Entries, entry: RouteEntry) -> Entries:
    places = [at for at, each in enumerate(before) if _place(each) == _place(entry)]
    exact = [at for at in places if before[at].hops == entry.hops]
    at = (exact or places or [len(before)])[0]
    return before[:at] + before[at + 1 :]


def _without_ipv6(before: Entries, entry: RouteEntry) -> Entries:
    gone = single_hops(entry)
    return tuple(each for each in before if not any(_is_same_hop(each, hop) for hop in gone))


def _is_same_hop(one: RouteEntry, other: RouteEntry) -> bool:
    return _place(one) == _place(other) and [h.via for h in one.hops] == [h.via for h in other.hops]
