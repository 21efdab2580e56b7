# SPDX-License-Identifier: BSD-2-Clause
"""Who is connected to whom in an iWARP mesh: a machine without I/O, clock or threads.

Every station connects to every other. Addresses come from the operator (seeds), from connections that
are made to us, and from peers, who tell where those are that they are connected to themselves: nothing
is passed on by hearsay, so a station that has gone is forgotten by all. Of two connections between the
same stations, made at the same time, both keep the one that the lower hardware address began.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ipoibu.addr import Gid, IpAddress
from ipoibu.limits import (
    MESH_ADDRESSES_MAX,
    MESH_ANSWER_S,
    MESH_BACKOFF_JITTER,
    MESH_BACKOFF_MAX_S,
    MESH_BACKOFF_MIN_S,
    MESH_FORGET_FAILURES,
    MESH_HEARSAY_S,
    MESH_PEERS_MAX,
    MESH_SETTLED_S,
)
from ipoibu.proto.effects import Log
from ipoibu.wire.mesh import (
    NOTE_ADDRESSES_MAX,
    Hello,
    MeshAddress,
    is_station,
    pack_addresses,
    unpack_addresses_untrusted,
)


@dataclass(frozen=True, slots=True)
class Connect:
    """Begin a connection that is called `handle` from here on, with our hello."""

    handle: int
    address: MeshAddress


@dataclass(frozen=True, slots=True)
class Accept:
    """Answer the request with our hello."""

    handle: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer the request with no, and our hello; it is forgotten."""

    handle: int


@dataclass(frozen=True, slots=True)
class Establish:
    """Datagrams to the station of `hello` go by this connection, and no other of its."""

    handle: int
    hello: Hello
    we_began: bool


@dataclass(frozen=True, slots=True)
class Close:
    """End the connection; nothing more is heard of it."""

    handle: int


@dataclass(frozen=True, slots=True)
class Tell:
    """A note for the peer; lost if there is no room."""

    handle: int
    note: bytes


Effect = Connect | Accept | Refuse | Establish | Close | Tell | Log


@dataclass(slots=True)
class _Known:
    """An address, and how it went with it. `station` is who was there last."""

    is_seed: bool = False
    is_self: bool = False
    failures: int = 0
    retry_at: float = 0.0
    handle: int | None = None
    station: Gid | None = None


@dataclass(slots=True)
class _Link:
    began: bool
    deadline: float
    address: MeshAddress | None
    hello: Hello | None = None
    established_at: float | None = None


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """A connection as `Mesh.peers` shows it; `address` where the peer listens, if we know."""

    hello: Hello
    address: MeshAddress | None
    we_began: bool
    age_s: float


class Mesh:
    """Every input returns effects, to be carried out in order. `own` is our hello.

    Handles of requests that come to us are the caller's, from `handle()`.
    """

    def __init__(self, own: Hello, rng: random.Random) -> None:
        self._own = own
        self._rng = rng
        self._serial = 0
        self._known: dict[MeshAddress, _Known] = {}
        self._links: dict[int, _Link] = {}
        self._hearsay_at: float | None = None
        self._out: list[Effect] = []
        self.counts: Counter[str] = Counter()

    def handle(self) -> int:
        self._serial += 1
        return self._serial

    # ---- inputs

    def seeds(self, now: float, addresses: Collection[MeshAddress]) -> list[Effect]:
        """What the operator says, all of it: those that are not there any more have to earn it."""
        for address, known in self._known.items():
            known.is_seed = address in addresses
        for address in addresses:
            self._learn(address, is_seed=True)
        return self._done(now)

    def requested(self, now: float, handle: int, source: IpAddress, private: bytes) -> list[Effect]:
        """Somebody connects to us; `private` is the hello that came with it."""
        link = _Link(False, now + MESH_ANSWER_S, None)
        try:
            link.hello = Hello.unpack_untrusted(private)
            self._check(link.hello)
        except ValueError as error:
            self.counts["mesh_refused"] += 1
            self._log(logging.INFO, f"{source}: refused: {error}")
            self._out.append(Refuse(handle))
            return self._done(now)
        if len(self._links) >= MESH_PEERS_MAX:
            self.counts["mesh_full"] += 1
            self._out.append(Refuse(handle))
            return self._done(now)
        if link.hello.port:
            link.address = MeshAddress(source, link.hello.port)
        self._links[handle] = link
        self._out.append(Accept(handle))
        return self._done(now)

    def established(self, now: float, handle: int, private: bytes) -> list[Effect]:
        """The connection is there; `private` is the answer to our request, or nothing."""
        link = self._links.get(handle)
        if link is None or link.established_at is not None:
            return self._done(now)
        if link.began:
            try:
                link.hello = Hello.unpack_untrusted(private)
                self._check(link.hello)
            except ValueError as error:
                self.counts["mesh_refused"] += 1
                self._log(logging.INFO, f"{link.address}: {error}")
                self._drop(now, handle)
                return self._done(now)
        self._settle(now, handle, link)
        return self._done(now)

    def ended(self, now: float, handle: int, private: bytes = b"") -> list[Effect]:
        """The connection failed or broke, or was refused with `private`."""
        link = self._links.get(handle)
        if link is not None and link.began and link.address in self._known:
            try:
                hello = Hello.unpack_untrusted(private)
                self._known[link.address].is_self = hello.hwaddr == self._own.hwaddr
            except ValueError:
                pass
        self._drop(now, handle)
        return self._done(now)

    def heard(self, now: float, handle: int, note: bytes) -> list[Effect]:
        """A peer tells where others are."""
        try:
            for address in unpack_addresses_untrusted(note):
                self._learn(address, is_seed=False)
        except ValueError as error:
            self.counts["mesh_malformed"] += 1
            self._log(logging.INFO, f"a peer's note: {error}")
            self._drop(now, handle)
        return self._done(now)

    def timer(self, now: float) -> list[Effect]:
        """`deadline()` has come."""
        for handle, link in list(self._links.items()):
            if link.established_at is None and link.deadline <= now:
                self.counts["mesh_no_answer"] += 1
                self._drop(now, handle)
        if self._hearsay_at is not None and self._hearsay_at <= now:
            self._hearsay_at = now + MESH_HEARSAY_S
            for handle in self._live():
                self._tell(handle, self._whereabouts(handle))
        return self._done(now)

    def deadline(self) -> float | None:
        """When `timer` wants to be called; None: no need."""
        due = [it.deadline for it in self._links.values() if it.established_at is None]
        if len(self._links) < MESH_PEERS_MAX:
            due += [it.retry_at for it in self._known.values() if self._is_wanted(it)]
        if self._hearsay_at is not None:
            due.append(self._hearsay_at)
        return min(due, default=None)

    def peers(self, now: float) -> list[PeerInfo]:
        """The stations that we are connected to."""
        return [
            PeerInfo(link.hello, link.address, link.began, now - link.established_at)
            for link in self._links.values()
            if link.established_at is not None and link.hello is not None
        ]

    # ---- links

    def _check(self, hello: Hello) -> None:
        ours = self._own
        if hello.hwaddr == ours.hwaddr:
            raise ValueError("that is ourselves")
        if hello.hwaddr.gid == ours.hwaddr.gid:
            raise ValueError(f"another station with our GID, {ours.hwaddr.gid}")
        if hello.pkey.full != ours.pkey.full:
            raise ValueError(f"partition {hello.pkey}; ours is {ours.pkey}")

    def _settle(self, now: float, handle: int, link: _Link) -> None:
        assert link.hello is not None, "it was read before"
        for other, theirs in list(self._links.items()):
            hello = theirs.hello
            if other == handle or theirs.established_at is None or hello is None:
                continue
            if hello.hwaddr.gid != link.hello.hwaddr.gid:
                continue
            if self._loses(now, link, theirs):
                self.counts["mesh_crossed"] += 1
                self._note_station(link)
                self._drop(now, handle, is_failure=False)
                return
            self.counts["mesh_replaced"] += 1
            self._drop(now, other, is_failure=False)
        link.established_at = now
        self._note_station(link)
        self._out.append(Establish(handle, link.hello, link.began))
        self._introduce(now, handle, link)

    def _loses(self, now: float, new: _Link, old: _Link) -> bool:
        """Whether the older one stays. Both stations come to the same answer: a station that was
        restarted, or that lost a connection which we still have, is believed."""
        assert new.hello is not None, "it was read before"
        assert old.hello is not None, "it is established"
        assert old.established_at is not None, "it is established"
        if new.hello.hwaddr != old.hello.hwaddr or new.began == old.began:
            return False
        if now - old.established_at >= MESH_SETTLED_S:
            return False
        we_are_lower = self._own.hwaddr.pack() < new.hello.hwaddr.pack()
        return old.began == we_are_lower

    def _note_station(self, link: _Link) -> None:
        if link.address is None or link.hello is None:
            return
        if is_station(link.address.ip) or link.began:
            self._learn(link.address, is_seed=False)
        known = self._known.get(link.address)
        if known is not None:
            known.station = link.hello.hwaddr.gid

    def _drop(self, now: float, handle: int, *, is_failure: bool = True) -> None:
        link = self._links.pop(handle, None)
        if link is None:
            return
        self._out.append(Close(handle))
        if not any(self._live()):
            self._hearsay_at = None
        known = self._known.get(link.address) if link.address is not None else None
        if known is None:
            return
        if known.handle == handle:
            known.handle = None
        if not is_failure:
            return
        lived_s = now - link.established_at if link.established_at is not None else 0.0
        known.failures = 1 if lived_s >= MESH_SETTLED_S else known.failures + 1
        wait_s = min(MESH_BACKOFF_MAX_S, MESH_BACKOFF_MIN_S * 2.0 ** (known.failures - 1))
        known.retry_at = now + wait_s * (1.0 - MESH_BACKOFF_JITTER * self._rng.random())
        if known.failures >= MESH_FORGET_FAILURES and not known.is_seed:
            del self._known[link.address]  # type: ignore[arg-type]  # it was found by it

    def _live(self) -> Iterator[int]:
        return (h for h, link in list(self._links.items()) if link.established_at is not None)

    # ---- addresses

    def _learn(self, address: MeshAddress, *, is_seed: bool) -> None:
        known = self._known.get(address)
        if known is not None:
            known.is_seed |= is_seed
        elif is_seed or len(self._known) < MESH_ADDRESSES_MAX:
            self._known[address] = _Known(is_seed=is_seed)
        else:
            self.counts["mesh_addresses_full"] += 1

    def _introduce(self, now: float, handle: int, link: _Link) -> None:
        """To the newcomer all others, to all others the newcomer."""
        if self._hearsay_at is None:
            self._hearsay_at = now + MESH_HEARSAY_S
        self._tell(handle, self._whereabouts(handle))
        if link.address is not None and is_station(link.address.ip):
            for other in self._live():
                if other != handle:
                    self._tell(other, [link.address])

    def _whereabouts(self, of: int) -> list[MeshAddress]:
        links = (self._links[handle] for handle in self._live() if handle != of)
        found = sorted({it.address for it in links if it.address and is_station(it.address.ip)})
        return self._rng.sample(found, min(len(found), NOTE_ADDRESSES_MAX))

    def _tell(self, handle: int, addresses: Collection[MeshAddress]) -> None:
        if addresses:
            self._out.append(Tell(handle, pack_addresses(addresses)))

    def _is_wanted(self, known: _Known) -> bool:
        if known.is_self or known.handle is not None:
            return False
        return known.station is None or not self._is_linked(known.station)

    def _is_linked(self, station: Gid) -> bool:
        return any(
            link.hello is not None and link.hello.hwaddr.gid == station
            for link in self._links.values()
        )

    def _connect(self, now: float) -> None:
        for address, known in self._known.items():
            if len(self._links) >= MESH_PEERS_MAX:
                return
            if known.retry_at <= now and self._is_wanted(known):
                handle = known.handle = self.handle()
                self._links[handle] = _Link(True, now + MESH_ANSWER_S, address)
                self._out.append(Connect(handle, address))

    def _log(self, level: int, text: str) -> None:
        self._out.append(Log(level, f"mesh: {text}"))

    def _done(self, now: float) -> list[Effect]:
        self._connect(now)
        out, self._out = self._out, []
        return out
