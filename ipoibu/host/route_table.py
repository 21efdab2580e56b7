# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's routes over one interface, and the route of each prefix that counts."""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from ipoibu.base.limits import (
    ROUTE_CROWD,
    ROUTE_ENTRIES_MAX,
    ROUTE_PREFIX_ENTRIES_MAX,
    ROUTE_SHARED_MAX,
)
from ipoibu.base.route import RouteChange, Target
from ipoibu.host.route_message import RouteEntry
from ipoibu.host.route_order import (
    TABLES,
    Crowd,
    Entries,
    best,
    single_hops,
    with_notice,
    without,
)

_AF_INET: Final = 2
_AF_INET6: Final = 10
_DEFAULT: Final = {
    _AF_INET: bytes((96,)) + bytes(10) + b"\xff\xff" + bytes(4),
    _AF_INET6: bytes(17),
}
_ROOM: Final = 8  # a full table is listed again when this part of it is free

_Held = Entries | Crowd


class RouteTable:
    """The routes by prefix. `changes` yields the changes of the best routes since its last call.

    For a family with `ask` the table publishes one route, of kind "ask": the kernel decides each flow.
    A table has at most `entries_max` routes, and each prefix `prefix_max`; `left_out` counts further ones.
    Without these a listing is due (`needs_listing`) as soon as there is room for them.
    """

    def __init__(
        self,
        entries_max: int = ROUTE_ENTRIES_MAX,
        prefix_max: int = ROUTE_PREFIX_ENTRIES_MAX,
        shared_max: int = ROUTE_SHARED_MAX,
    ) -> None:
        self._shared_max = shared_max
        self._entries_max = entries_max
        self._prefix_max = prefix_max
        self.left_out = 0
        self._count = 0
        self._short: set[bytes] = set()  # full prefixes that lack routes
        self._is_short = False  # the whole table is full, and lacks routes
        self.needs_listing = False
        self._entries: dict[bytes, _Held] = {}
        self._shared: dict[Entries, Entries] = {}  # most prefixes have equal entries
        self._targets: dict[Entries, Target] = {}
        self._before: dict[bytes, Target | None] = {}  # the former targets of what has changed
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
        self._count = 0
        self._short.clear()
        self._is_short = self.needs_listing = False
        for prefix, entry in listed:
            if entry.is_ours and entry.table in TABLES:
                for single in single_hops(entry):
                    self._append(prefix, single)
        for prefix in former.keys() | self._entries.keys():
            before = former.get(prefix, ())
            if before != self._entries.get(prefix, ()):
                self._touch(prefix, before)

    def add(self, prefix: bytes, entry: RouteEntry, flags: int) -> None:
        """Add a route by a notice; `flags` of the message give its place in the kernel's order."""
        if entry.table not in TABLES:
            return
        held = self._entries.get(prefix, ())
        size = len(held)
        self._touch(prefix, held)
        if isinstance(held, Crowd):
            self._note(*held.add(entry, flags))
        else:
            self._set(prefix, held, with_notice(held, entry, flags))
        grown = len(self._entries.get(prefix, ())) - size
        if grown > 0 and not self._has_room(prefix, size, grown):
            self._refuse(prefix, size + grown)
            self.remove(prefix, entry)

    def remove(self, prefix: bytes, entry: RouteEntry) -> None:
        """Remove a route by a notice of the kernel."""
        held = self._entries.get(prefix, ())
        if not (held and entry.is_ours and entry.table in TABLES):
            return
        self._touch(prefix, held)
        if isinstance(held, Crowd):
            self._note((), held.remove(entry))
            if len(held) <= ROUTE_CROWD // 2:
                self._store(prefix, tuple(held))
        else:
            self._set(prefix, held, without(held, entry))
        self._look_for_room(prefix)

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
        for prefix, was in before.items():
            if _family(prefix) in self._asks:
                continue
            now = self._target(self._entries.get(prefix, ()))
            if was != now:
                yield RouteChange(prefix, now)

    def _prefixes(self, family: int) -> list[bytes]:
        return [prefix for prefix in self._entries if _family(prefix) == family]

    def _question(self, family: int) -> RouteChange:
        return RouteChange(_DEFAULT[family], Target("ask", fields=self._asks[family]))

    def _touch(self, prefix: bytes, held: _Held) -> None:
        """Remember what the prefix led to before it changes."""
        if prefix not in self._before:
            self._before[prefix] = self._target(held)

    def _append(self, prefix: bytes, entry: RouteEntry) -> None:
        """Add a listed route behind the others."""
        held = self._entries.get(prefix, ())
        if not self._has_room(prefix, len(held), 1):
            self._refuse(prefix, len(held) + 1)
        elif isinstance(held, Crowd):
            size = len(held)
            held.append(entry)
            if len(held) > size:
                self._note((entry,), ())
        else:
            self._set(prefix, held, (*held, entry))

    def _set(self, prefix: bytes, before: Entries, after: Entries) -> None:
        if after != before:
            self._note(after, before)
            self._store(prefix, after)

    def _store(self, prefix: bytes, entries: Entries) -> None:
        if len(entries) > ROUTE_CROWD:
            self._entries[prefix] = Crowd(entries)
        elif entries:
            if len(self._shared) >= self._shared_max:
                self._shared.clear()
            self._entries[prefix] = self._shared.setdefault(entries, entries)
        else:
            self._entries.pop(prefix, None)

    def _note(self, added: Entries, gone: Entries) -> None:
        """Keep the numbers of all routes, and of those that select packets."""
        self._count += len(added) - len(gone)
        for entries, change in ((gone, -1), (added, 1)):
            for entry in entries:
                if entry.asks is not None:
                    self._selecting[entry.family, entry.asks] += change

    def _target(self, held: _Held) -> Target | None:
        if not held:
            return None
        if isinstance(held, Crowd):
            return held.best()
        target = self._targets.get(held)
        if target is None:
            if len(self._targets) >= self._shared_max:
                self._targets.clear()
            target = self._targets[held] = best(held)
        return target

    # ---- the caps

    def _has_room(self, prefix: bytes, size: int, grown: int) -> bool:
        """Return whether a prefix that had `size` routes may have `grown` more; they count already if it has
        them."""
        others = self._count - len(self._entries.get(prefix, ()))
        return size + grown <= min(self._prefix_max, self._entries_max - others)

    def _refuse(self, prefix: bytes, wanted: int) -> None:
        self.left_out += 1
        if wanted > self._prefix_max:
            self._short.add(prefix)
        else:
            self._is_short = True

    def _look_for_room(self, prefix: bytes) -> None:
        """Ask for a listing when a part of a full table is free again: not for each route."""
        size = len(self._entries.get(prefix, ()))
        has_room = prefix in self._short and size <= self._prefix_max - self._prefix_max // _ROOM
        if has_room or (
            self._is_short and self._count <= self._entries_max - self._entries_max // _ROOM
        ):
            self.needs_listing = True


def _family(prefix: bytes) -> int:
    return _AF_INET if prefix[1:13] == _DEFAULT[_AF_INET][1:13] and prefix[0] >= 96 else _AF_INET6
