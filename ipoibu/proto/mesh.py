# SPDX-License-Identifier: BSD-2-Clause
"""Who is connected with whom in an iWARP mesh, sans-IO; a profile of our own, docs/mesh.md.

Every station is connected with every other. Where stations listen is told by the operator (seeds) and by
stations that are connected already; who listens there, only the greeting tells. So a station may be
found twice, and two that find each other at once connect twice: of two connections between the same
stations the one that the lesser hardware address asked for stays, of two of one's asking the newer.
Nothing that is received is ever sent on, so there are no loops.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import logging
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from ipoibu.addr import Gid, HwAddr, IpAddress
from ipoibu.errors import BadFrame
from ipoibu.limits import (
    MESH_ANSWER_S,
    MESH_BACKOFF_MAX_S,
    MESH_BACKOFF_MIN_S,
    MESH_CONTACTS_MAX,
    MESH_FAILURES_MAX,
    MESH_PEERS_MAX,
)
from ipoibu.proto.backoff import Backoff
from ipoibu.proto.effects import Count, Log
from ipoibu.proto.timers import Timers
from ipoibu.wire import mesh
from ipoibu.wire.mesh import Greeting, Locator, Operation

Handle = int

_JITTER: Final = 0.25


# Effects


@dataclass(frozen=True, slots=True)
class Dial:
    """Connect to whoever listens there; `opened` or `ended` answers."""

    handle: Handle
    locator: Locator


@dataclass(frozen=True, slots=True)
class Accept:
    """The answer to `requested`; `established` or `ended` follows."""

    handle: Handle


@dataclass(frozen=True, slots=True)
class Refuse:
    """The other answer; the handle is dead."""

    handle: Handle


@dataclass(frozen=True, slots=True)
class Hangup:
    """End it, in whatever state it is; the handle is dead."""

    handle: Handle


@dataclass(frozen=True, slots=True)
class Name:
    """The peer is known: packets to its address go there. Who asked speaks first."""

    handle: Handle
    greeting: Greeting
    speaks_first: bool


@dataclass(frozen=True, slots=True)
class Tell:
    """Send a control message."""

    handle: Handle
    message: bytes


@dataclass(frozen=True, slots=True)
class InGroups:
    """The groups that a peer is in."""

    handle: Handle
    mgids: tuple[Gid, ...]


@dataclass(frozen=True, slots=True)
class InGroup:
    """A peer joined a group, or left it."""

    handle: Handle
    mgid: Gid
    is_in: bool


@dataclass(frozen=True, slots=True)
class Learned:
    """A station says that it has these addresses."""

    hwaddr: HwAddr
    addresses: tuple[IpAddress, ...]


MeshEffect = (
    Dial | Accept | Refuse | Hangup | Name | Tell | InGroups | InGroup | Learned | Count | Log
)


class Phase(enum.Enum):
    """Of a connection."""

    DIALING = "dialing"
    ACCEPTING = "accepting"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """A connection as it is shown."""

    phase: Phase
    is_ours: bool
    locator: Locator | None
    hwaddr: HwAddr | None


@dataclass(slots=True)
class _Contact:
    """A place where somebody may listen. `station` was found there; `handle` is of the attempt."""

    locator: Locator
    is_seed: bool
    handle: Handle | None = None
    station: HwAddr | None = None
    backoff: Backoff = field(
        default_factory=lambda: Backoff(MESH_BACKOFF_MIN_S, MESH_BACKOFF_MAX_S)
    )


@dataclass(slots=True)
class _MeshLink:
    handle: Handle
    phase: Phase
    is_ours: bool
    locator: Locator | None
    greeting: Greeting | None = None


@dataclass(frozen=True, slots=True)
class MeshConfig:
    """`ours` is what we greet with."""

    ours: Greeting
    peers_max: int = MESH_PEERS_MAX


@dataclass(slots=True)
class _Ours:
    groups: dict[Gid, None] = field(default_factory=dict)
    addresses: tuple[IpAddress, ...] = ()


class Mesh:
    """The connections of one station; every input returns effects."""

    def __init__(self, config: MeshConfig, rng: random.Random) -> None:
        self.config = config
        self._rng = rng
        self._timers = Timers()
        self._effects: list[MeshEffect] = []
        self._handles = itertools.count(start=1)
        self._contacts: dict[Locator, _Contact] = {}
        self._ourselves: set[Locator] = set()
        self._links: dict[Handle, _MeshLink] = {}
        self._stations: dict[HwAddr, _MeshLink] = {}
        self._ours = _Ours()

    # ---- inputs: from the operator, and from the interface

    def seeds(self, now: float, locators: Iterable[Locator]) -> list[MeshEffect]:
        """Where to begin, instead of what was said before."""
        wanted = set(locators)
        for contact in list(self._contacts.values()):
            contact.is_seed = contact.locator in wanted
        for locator in sorted(wanted, key=str):  # addresses of two families have no order
            self._find(now, locator, is_seed=True)
        return self._take()

    def joined(self, mgid: Gid) -> list[MeshEffect]:
        if mgid not in self._ours.groups:
            self._ours.groups[mgid] = None
            self._tell_all(mesh.groups(Operation.JOIN, [mgid]))
        return self._take()

    def left(self, mgid: Gid) -> list[MeshEffect]:
        if mgid in self._ours.groups:
            del self._ours.groups[mgid]
            self._tell_all(mesh.groups(Operation.LEAVE, [mgid]))
        return self._take()

    def addresses(self, addresses: Iterable[IpAddress]) -> list[MeshEffect]:
        """The interface's, instead of those before."""
        self._ours.addresses = tuple(addresses)
        self._tell_all([mesh.addresses(self._ours.addresses)])
        return self._take()

    # ---- inputs: from whoever makes the connections

    def new_handle(self) -> Handle:
        """For a request that is about to be told."""
        return next(self._handles)

    def opened(self, now: float, handle: Handle, private: bytes) -> list[MeshEffect]:
        """What we dialed is connected; the peer's greeting."""
        link = self._links.get(handle)
        if link is None:
            return self._take()
        try:
            greeting = mesh.greeting_untrusted(private)
        except BadFrame as error:
            self._count(error.reason)
            self._hang_up(now, link)
            return self._take()
        if self._suits(greeting):
            self._open(now, link, greeting)
        else:
            self._hang_up(now, link)
        return self._take()

    def requested(
        self, now: float, handle: Handle, source: IpAddress, private: bytes
    ) -> list[MeshEffect]:
        """Somebody dialed us."""
        try:
            greeting = mesh.greeting_untrusted(private)
        except BadFrame as error:
            self._count(error.reason)
            self._effects.append(Refuse(handle))
            return self._take()
        if greeting.hwaddr == self.config.ours.hwaddr or not self._suits(greeting):
            self._effects.append(Refuse(handle))
        elif len(self._links) >= self.config.peers_max:
            self._count("mesh_full")
            self._effects.append(Refuse(handle))
        else:
            locator = Locator(source, greeting.port)
            self._links[handle] = _MeshLink(handle, Phase.ACCEPTING, False, locator, greeting)
            self._timers.arm(self._overdue, handle, now + MESH_ANSWER_S)
            self._effects.append(Accept(handle))
            self._effects.append(Name(handle, greeting, False))
        return self._take()

    def established(self, now: float, handle: Handle) -> list[MeshEffect]:
        """What we accepted is connected."""
        link = self._links.get(handle)
        if link is not None and link.phase is Phase.ACCEPTING:
            assert link.greeting is not None, "it came with the request"
            self._open(now, link, link.greeting)
        return self._take()

    def ended(self, now: float, handle: Handle, private: bytes = b"") -> list[MeshEffect]:
        """It is over, or never was; `private` is what a peer that refused says of itself."""
        link = self._links.get(handle)
        if link is None:
            return self._take()
        is_self = False
        if link.phase is Phase.DIALING and private:
            with contextlib.suppress(BadFrame):  # a refusal without a reason
                is_self = mesh.greeting_untrusted(private).hwaddr == self.config.ours.hwaddr
        if is_self and link.locator is not None:
            self._ourselves.add(link.locator)
            self._contacts.pop(link.locator, None)
        self._forget(now, link)
        return self._take()

    def control(self, now: float, handle: Handle, message: bytes) -> list[MeshEffect]:
        """A control message came."""
        link = self._links.get(handle)
        if link is None or link.greeting is None:
            return self._take()
        try:
            self._control_untrusted(now, link, link.greeting, message)
        except BadFrame as error:
            self._count(error.reason)
        return self._take()

    def timer(self, now: float) -> list[MeshEffect]:
        self._timers.run(now)
        return self._take()

    def deadline(self) -> float | None:
        return self._timers.deadline()

    def stop(self) -> list[MeshEffect]:
        """Hang up everywhere."""
        for link in list(self._links.values()):
            self._effects.append(Hangup(link.handle))
        self._links.clear()
        self._stations.clear()
        self._contacts.clear()
        return self._take()

    def snapshot(self) -> list[PeerInfo]:
        return [
            PeerInfo(it.phase, it.is_ours, it.locator, it.greeting.hwaddr if it.greeting else None)
            for it in self._links.values()
        ]

    # ---- contacts

    def _find(self, now: float, locator: Locator, *, is_seed: bool) -> None:
        if locator in self._ourselves:
            return
        contact = self._contacts.get(locator)
        if contact is None:
            if len(self._contacts) >= MESH_CONTACTS_MAX:
                self._count("mesh_contacts_full")
                return
            contact = self._contacts[locator] = _Contact(locator, is_seed)
            self._dial(now, locator)
        contact.is_seed |= is_seed

    def _dial(self, now: float, locator: Locator) -> None:
        contact = self._contacts.get(locator)
        if contact is None or contact.handle is not None or contact.station in self._stations:
            return
        if len(self._links) >= self.config.peers_max:
            self._count("mesh_full")
            self._again(now, contact)
            return
        contact.handle = next(self._handles)
        self._links[contact.handle] = _MeshLink(contact.handle, Phase.DIALING, True, locator)
        self._timers.arm(self._overdue, contact.handle, now + MESH_ANSWER_S)
        self._effects.append(Dial(contact.handle, locator))

    def _again(self, now: float, contact: _Contact) -> None:
        """A seed is tried for ever, what peers told of a few times."""
        backoff = contact.backoff
        if not contact.is_seed and backoff.refusals.count >= MESH_FAILURES_MAX:
            del self._contacts[contact.locator]
            return
        backoff.refusals.add()
        wait_s = backoff.next_s() * self._rng.uniform(1 - _JITTER, 1)
        self._timers.arm(self._ring, contact.locator, now + wait_s)

    def _ring(self, now: float, locator: Locator) -> None:
        self._dial(now, locator)

    def _overdue(self, now: float, handle: Handle) -> None:
        link = self._links.get(handle)
        if link is not None and link.phase is not Phase.OPEN:
            self._count("mesh_no_answer")
            self._hang_up(now, link)

    # ---- links

    def _suits(self, greeting: Greeting) -> bool:
        """Whether a station can be in this mesh: the same partition, packets as large as ours."""
        ours = self.config.ours
        if greeting.pkey.full != ours.pkey.full:
            self._count("mesh_other_partition")
        elif greeting.mtu_bytes != ours.mtu_bytes:
            self._count("mesh_other_mtu")
            text = f"{greeting.hwaddr} has an MTU of {greeting.mtu_bytes}, we have {ours.mtu_bytes}"
            self._effects.append(Log(logging.WARNING, f"{text}: not connected"))
        else:
            return True
        return False

    def _open(self, now: float, link: _MeshLink, greeting: Greeting) -> None:
        self._timers.cancel(self._overdue, link.handle)
        self._settle(link, greeting)
        former = self._stations.get(greeting.hwaddr)
        if former is not None:
            self._count("mesh_twice")
            ours_counts = self.config.ours.hwaddr.pack() < greeting.hwaddr.pack()
            if former.is_ours != link.is_ours and former.is_ours == ours_counts:
                self._hang_up(now, link)
                return
            self._hang_up(now, former)
            self._settle(link, greeting)  # the place may have been the former's: it has not failed
        link.greeting, link.phase = greeting, Phase.OPEN
        self._stations[greeting.hwaddr] = link
        self._effects.append(
            Log(logging.INFO, f"connected with {greeting.hwaddr} at {link.locator}")
        )
        if link.is_ours:
            self._effects.append(Name(link.handle, greeting, True))
        for message in mesh.groups(Operation.GROUPS, list(self._ours.groups)):
            self._effects.append(Tell(link.handle, message))
        self._effects.append(Tell(link.handle, mesh.addresses(self._ours.addresses)))
        others = [it for it in self._stations.values() if it is not link and it.locator]
        for message in mesh.peers([it.locator for it in others if it.locator]):
            self._effects.append(Tell(link.handle, message))
        if link.locator is not None:
            for other in others:
                for message in mesh.peers([link.locator]):
                    self._effects.append(Tell(other.handle, message))

    def _settle(self, link: _MeshLink, greeting: Greeting) -> None:
        """Note who it is that was found at a place."""
        contact = self._contacts.get(link.locator) if link.locator is not None else None
        if contact is not None:
            contact.station = greeting.hwaddr
            contact.backoff.reset()

    def _hang_up(self, now: float, link: _MeshLink) -> None:
        self._effects.append(Hangup(link.handle))
        self._forget(now, link)

    def _forget(self, now: float, link: _MeshLink) -> None:
        del self._links[link.handle]
        self._timers.cancel(self._overdue, link.handle)
        if link.greeting is not None and self._stations.get(link.greeting.hwaddr) is link:
            del self._stations[link.greeting.hwaddr]
            text = f"the connection with {link.greeting.hwaddr} ended"
            self._effects.append(Log(logging.INFO, text))
        for contact in list(self._contacts.values()):
            is_its = link.greeting is not None and contact.station == link.greeting.hwaddr
            if contact.handle == link.handle:
                contact.handle = None
                self._again(now, contact)
            elif is_its and contact.handle is None and contact.station not in self._stations:
                self._again(now, contact)

    # ---- control messages

    def _control_untrusted(
        self, now: float, link: _MeshLink, greeting: Greeting, message: bytes
    ) -> None:
        match mesh.operation_untrusted(message):
            case Operation.GROUPS:
                mgids = mesh.groups_untrusted(message)
                self._effects.append(InGroups(link.handle, tuple(mgids)))
            case (Operation.JOIN | Operation.LEAVE) as operation:
                for mgid in mesh.groups_untrusted(message):
                    is_in = operation is Operation.JOIN
                    self._effects.append(InGroup(link.handle, mgid, is_in))
            case Operation.PEERS:
                for locator in mesh.locators_untrusted(message):
                    self._find(now, locator, is_seed=False)
            case Operation.ADDRESSES:
                ips = tuple(it.ip for it in mesh.locators_untrusted(message))
                self._effects.append(Learned(greeting.hwaddr, ips))
            case Operation.WINDOW:
                raise BadFrame("mesh_operation")

    def _tell_all(self, messages: Iterable[bytes]) -> None:
        for message in messages:
            for link in self._stations.values():
                self._effects.append(Tell(link.handle, message))

    # ---- effects

    def _count(self, reason: str) -> None:
        self._effects.append(Count(reason))

    def _take(self) -> list[MeshEffect]:
        effects, self._effects = self._effects, []
        return effects
