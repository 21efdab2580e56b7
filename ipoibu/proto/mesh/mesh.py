# SPDX-License-Identifier: BSD-2-Clause
"""The connections of one host in an iWARP mesh, sans-IO; a profile of our own, docs/use/mesh.md.

Every host is connected with every other. The operator (by seeds) and the connected peers name the contacts
where hosts listen; only the greeting shows which host listens at a contact. So two contacts may lead to one
host, and two hosts that dial each other at the same time connect twice. Of two such connections, the
connection that the host with the lesser hardware address asked for stays; if one host asked for both, the
newer stays. No host forwards the messages that it receives, so there are no loops.

A peer can name any place. So we dial the strangers that a connection names (`mesh_contacts.py`) at a pace,
and give them half of the connections.
"""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ipoibu.base.addr import Gid, HwAddr, IpAddress
from ipoibu.base.errors import BadFrame
from ipoibu.base.limits import (
    MESH_ANSWER_S,
    MESH_CONTACTS_MAX,
    MESH_FAILURES_MAX,
    MESH_GROUPS_SHOWN,
    MESH_NAMED_BURST,
    MESH_NAMED_PER_S,
    MESH_NAMED_TOTAL_PER_S,
    MESH_NAMED_WAIT_S,
    MESH_NEWS_S,
    MESH_OURSELVES_S,
    MESH_PEERS_MAX,
    MESH_STRANGER_FAILURES_MAX,
)
from ipoibu.proto.effects import Count, Log
from ipoibu.proto.machine.backoff import Repeats
from ipoibu.proto.machine.ratelimit import Pace, TokenBucket
from ipoibu.proto.machine.table import Machine
from ipoibu.proto.machine.timers import Timers
from ipoibu.proto.mesh.contacts import Contact, Contacts
from ipoibu.proto.mesh.effects import (
    Accept,
    Dial,
    Gone,
    Handle,
    Hangup,
    InGroup,
    InGroups,
    Learned,
    MeshEffect,
    Met,
    Name,
    OtherVersion,
    Refuse,
    SendControl,
)
from ipoibu.proto.mesh.state import MACHINE, Action, Input, State
from ipoibu.wire import mesh
from ipoibu.wire.mesh import Greeting, Locator, Operation

_JITTER: Final = 0.25
_NEWS: Final = "news"


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """A connection as `ipoibu peers` shows it, with what the peer has told: its groups, `MESH_GROUPS_SHOWN`
    at most, and its IP addresses."""

    state: State
    is_ours: bool
    locator: Locator
    hwaddr: HwAddr | None
    groups: tuple[Gid, ...] = ()
    addresses: tuple[IpAddress, ...] = ()


@dataclass(slots=True)
class _MeshConnection:
    """One connection; `greeting` is that of the peer, which comes with its answer if we dialed.

    `is_introduced`: the side that dialed knows the other one from a peer.
    """

    handle: Handle
    is_ours: bool
    locator: Locator
    greeting: Greeting | None = None
    is_introduced: bool = False
    state: State = MACHINE.initial
    groups: dict[Gid, None] = field(default_factory=dict)
    addresses: tuple[IpAddress, ...] = ()
    pace: Pace = field(default_factory=lambda: Pace(MESH_NAMED_PER_S, MESH_NAMED_BURST))


@dataclass(frozen=True, slots=True)
class MeshConfig:
    """`ours` is the greeting that we send."""

    ours: Greeting
    peers_max: int = MESH_PEERS_MAX
    contacts_max: int = MESH_CONTACTS_MAX


@dataclass(slots=True)
class _Ours:
    groups: dict[Gid, None] = field(default_factory=dict)
    addresses: tuple[IpAddress, ...] = ()


class Mesh:
    """The connections of one host; every input returns effects."""

    def __init__(self, config: MeshConfig, rng: random.Random) -> None:
        self.config = config
        self._rng = rng
        self._timers = Timers()
        self._machine = Machine(MACHINE, self._timers, self._ring)
        self._effects: list[MeshEffect] = []
        self._handles = itertools.count(start=1)
        self._contacts = Contacts(config.contacts_max)
        self._guesses: set[Handle] = set()  # connections to strangers that are being made
        self._named = TokenBucket(MESH_NAMED_TOTAL_PER_S, 2 * config.peers_max)
        self._trouble: dict[str, Repeats] = {}
        self._connections: dict[Handle, _MeshConnection] = {}
        self._peers: dict[HwAddr, _MeshConnection] = {}
        self._news: list[Handle] = []  # peers that we have not named to the others yet
        self._ours = _Ours()

    # ---- inputs: from the operator, and from the interface

    def seeds(self, now: float, locators: Iterable[Locator]) -> list[MeshEffect]:
        """Replace the contacts that the operator names."""
        wanted = set(locators)
        for contact in self._contacts:
            contact.is_seed = contact.locator in wanted
            self._contacts.sort(contact)
        for locator in sorted(wanted, key=str):  # addresses of two families have no order
            if self._contacts.get(locator) is None and self._enter(locator, is_seed=True):
                self._dial(now, locator)
        return self._take()

    def meet_again(self, now: float, met: Mapping[Locator, HwAddr]) -> list[MeshEffect]:
        """Dial hosts that were peers of an earlier mesh of ours, which had another hardware address."""
        for locator, hwaddr in met.items():
            if self._contacts.get(locator) is None:
                contact = self._enter(locator, is_seed=False)
                if contact is not None:
                    contact.hwaddr = hwaddr
                    self._contacts.sort(contact)
                    self._dial(now, locator)
        return self._take()

    def note_joined(self, mgid: Gid) -> list[MeshEffect]:
        if mgid not in self._ours.groups:
            self._ours.groups[mgid] = None
            self._send_all(mesh.groups(Operation.JOIN, [mgid]))
        return self._take()

    def note_left(self, mgid: Gid) -> list[MeshEffect]:
        if mgid in self._ours.groups:
            del self._ours.groups[mgid]
            self._send_all(mesh.groups(Operation.LEAVE, [mgid]))
        return self._take()

    def addresses(self, addresses: Iterable[IpAddress]) -> list[MeshEffect]:
        """Replace the interface's IP addresses."""
        self._ours.addresses = tuple(addresses)
        self._send_all([mesh.addresses(self._ours.addresses)])
        return self._take()

    # ---- inputs: from the shell, which makes the connections

    def new_handle(self) -> Handle:
        """A handle for the next `note_requested`."""
        return next(self._handles)

    def note_opened(self, now: float, handle: Handle, private: bytes) -> list[MeshEffect]:
        """The peer that we dialed accepts, and greets us."""
        conn = self._in_state(handle, State.DIALING)
        if conn is not None:
            greeting = self._suitable_untrusted(private)
            if greeting is None:
                self._feed(now, conn, Input.UNSUITABLE)
            else:
                self._open(now, conn, greeting, Input.GREETED)
        return self._take()

    def note_requested(
        self, now: float, handle: Handle, source: IpAddress, private: bytes
    ) -> list[MeshEffect]:
        """A peer dialed us, and greets us."""
        greeting = self._suitable_untrusted(private)
        if greeting is None or greeting.hwaddr == self.config.ours.hwaddr:
            self._effects.append(Refuse(handle))
        elif len(self._connections) >= self.config.peers_max:
            self._count("mesh_full")
            self._effects.append(Refuse(handle))
        else:
            locator = Locator(source, greeting.port)
            conn = _MeshConnection(handle, False, locator, greeting, greeting.is_introduced)
            self._connections[handle] = conn
            self._feed(now, conn, Input.REQUESTED)
        return self._take()

    def note_established(self, now: float, handle: Handle) -> list[MeshEffect]:
        """The peer that dialed us has confirmed."""
        conn = self._in_state(handle, State.ACCEPTING)
        if conn is not None:
            assert conn.greeting is not None, "the request carried it"
            self._open(now, conn, conn.greeting, Input.ESTABLISHED)
        return self._take()

    def note_ended(self, now: float, handle: Handle, private: bytes = b"") -> list[MeshEffect]:
        """The connection ended or failed; `private` is the greeting of a peer that refused."""
        conn = self._connections.get(handle)
        if conn is None:
            return self._take()
        if conn.state is State.DIALING and private:
            refusing = self._suitable_untrusted(private)  # counts and logs why it does not suit us
            if refusing is not None and refusing.hwaddr == self.config.ours.hwaddr:
                self._note_ourselves(now, conn)
        self._feed(now, conn, Input.ENDED)
        return self._take()

    def control(self, now: float, handle: Handle, message: bytes) -> list[MeshEffect]:
        """A control message arrived."""
        conn = self._connections.get(handle)
        if conn is None or conn.greeting is None:
            return self._take()
        try:
            self._control_untrusted(now, conn, conn.greeting, message)
        except BadFrame as error:
            self._count(error.reason)
        return self._take()

    def timer(self, now: float) -> list[MeshEffect]:
        self._timers.run(now)
        return self._take()

    @property
    def has_peers(self) -> bool:
        return bool(self._peers)

    @property
    def met(self) -> dict[Locator, HwAddr]:
        """The hosts that are peers, or were, by the place where each listens."""
        return {it.locator: it.hwaddr for it in self._contacts if it.hwaddr is not None}

    def deadline(self) -> float | None:
        return self._timers.deadline()

    def snapshot(self) -> list[PeerInfo]:
        return [
            PeerInfo(
                conn.state,
                conn.is_ours,
                conn.locator,
                conn.greeting.hwaddr if conn.greeting else None,
                tuple(conn.groups),
                conn.addresses,
            )
            for conn in self._connections.values()
        ]

    # ---- contacts

    def _enter(self, locator: Locator, *, is_seed: bool) -> Contact | None:
        """Enter a new contact; None without a place."""
        if self._contacts.is_full:
            self._trouble_with("mesh_contacts_full", "more places than the mesh remembers")
        contact = Contact(locator, is_seed)
        return contact if self._contacts.enter(contact) else None

    def _remove(self, contact: Contact) -> None:
        self._contacts.remove(contact.locator)
        self._timers.cancel(self._dial, contact.locator)

    def _note_named(self, now: float, conn: _MeshConnection, locator: Locator) -> None:
        """A peer names a place: dial it when its turn comes."""
        if self._contacts.get(locator) is not None:
            return
        at = conn.pace.next(now)
        if at > now + MESH_NAMED_WAIT_S or not self._named.take(now):
            self._trouble_with("mesh_named_too_often", f"{conn.locator} names too many places")
        elif self._contacts.is_full:
            self._trouble_with("mesh_contacts_full", "more places than the mesh remembers")
        else:
            conn.pace.take(now)
            self._enter(locator, is_seed=False)
            if at > now:
                self._timers.arm(self._dial, locator, at)
            else:
                self._dial(now, locator)

    def _note_ourselves(self, now: float, conn: _MeshConnection) -> None:
        """We ourselves answered at a place, or a host that says so. The operator may have named it to all
        hosts alike, and its address may become another host's: dial a seed again, but not soon."""
        contact = self._contacts.get(conn.locator)
        if contact is None or contact.handle != conn.handle:
            return
        contact.handle = None
        if contact.is_seed:
            self._timers.arm(self._dial, contact.locator, now + MESH_OURSELVES_S)
        else:
            self._remove(contact)

    def _dial(self, now: float, locator: Locator) -> None:
        contact = self._contacts.get(locator)
        if contact is None or contact.handle is not None or contact.hwaddr in self._peers:
            return
        is_guess = contact.is_stranger
        room = self.config.peers_max - len(self._connections)
        if room <= 0 or (is_guess and len(self._guesses) >= self.config.peers_max // 2):
            self._count("mesh_full")
            self._again(now, contact)
            return
        contact.handle = next(self._handles)
        if is_guess:
            self._guesses.add(contact.handle)
        conn = self._connections[contact.handle] = _MeshConnection(
            contact.handle, True, locator, is_introduced=not contact.is_seed
        )
        self._feed(now, conn, Input.WANTED)

    def _again(self, now: float, contact: Contact) -> None:
        """Dial a contact again later: a seed for ever, a contact that only peers named a few times."""
        backoff = contact.backoff
        most = MESH_STRANGER_FAILURES_MAX if contact.is_stranger else MESH_FAILURES_MAX
        if not contact.is_seed and backoff.refusals.count >= most:
            self._remove(contact)
            return
        backoff.refusals.add()
        wait_s = backoff.next_s() * self._rng.uniform(1 - _JITTER, 1)
        self._timers.arm(self._dial, contact.locator, now + wait_s)

    # ---- connections

    def _in_state(self, handle: Handle, state: State) -> _MeshConnection | None:
        """Return the connection, unless it has left the state meanwhile."""
        conn = self._connections.get(handle)
        return conn if conn is not None and conn.state is state else None

    def _suitable_untrusted(self, private: bytes) -> Greeting | None:
        """Return the greeting of a host that fits this mesh (same partition, GIDs of one IP version, same
        MTU); otherwise count the reason and return None."""
        try:
            greeting = mesh.greeting_untrusted(private)
        except BadFrame as error:
            self._count(error.reason)
            return None
        ours = self.config.ours
        if greeting.pkey.full != ours.pkey.full:
            self._count("mesh_other_partition")
        elif greeting.hwaddr.gid.ip.version != ours.hwaddr.gid.ip.version:
            self._count("mesh_other_ip_version")
            text = (
                f"{greeting.hwaddr.gid} and our GID {ours.hwaddr.gid} are of different IP versions: start"
                " all hosts with --device soft:NETDEV,ipv4, or all with ,ipv6"
            )
            self._effects.append(Log(logging.WARNING, f"refusing a peer: {text}"))
            self._effects.append(OtherVersion(greeting.hwaddr.gid))
        elif greeting.mtu_bytes != ours.mtu_bytes:  # GIDs of each version have MTUs of their own
            self._count("mesh_other_mtu")
            text = f"{greeting.hwaddr} has an MTU of {greeting.mtu_bytes}, we have {ours.mtu_bytes}"
            self._effects.append(Log(logging.WARNING, f"refusing a peer: {text}"))
        else:
            return greeting
        return None

    def _open(self, now: float, conn: _MeshConnection, greeting: Greeting, fed: Input) -> None:
        """Open a connection, unless an older one with the same peer stays."""
        self._guesses.discard(conn.handle)
        self._settle(conn, greeting)
        former = self._peers.get(greeting.hwaddr)
        if former is not None:
            self._count("mesh_twice")
            is_lesser = self.config.ours.hwaddr.pack() < greeting.hwaddr.pack()
            if former.is_ours != conn.is_ours and former.is_ours == is_lesser:
                self._feed(now, conn, Input.REDUNDANT)
                return
        conn.greeting = greeting
        self._feed(now, conn, fed)  # takes the place of the former one in `_peers`
        if former is not None:
            # Only now, so that the peer, too, has another connection before it sees the end of this one.
            self._feed(now, former, Input.REPLACED)
            # The former connection did not fail, but its end may have counted against the contact.
            self._settle(conn, greeting)

    def _settle(self, conn: _MeshConnection, greeting: Greeting) -> None:
        """Note which peer listens at the contact. Then we do not dial a host that has dialed us when others
        name it, but we do when the connection has ended."""
        contact = self._contacts.get(conn.locator) or self._enter(conn.locator, is_seed=False)
        if contact is not None:
            contact.hwaddr = greeting.hwaddr
            self._contacts.sort(contact)
            contact.backoff.reset()

    def _feed(self, now: float, conn: _MeshConnection, fed: Input) -> None:
        _, actions = self._machine.feed(conn, conn.handle, fed)
        for action in actions:
            self._act(now, conn, action)

    def _ring(self, now: float, handle: Handle) -> None:
        self._feed(now, self._connections[handle], Input.TIMEOUT)

    def _act(self, now: float, conn: _MeshConnection, action: Action) -> None:
        emit = self._effects.append
        match action:
            case Action.DIAL:
                emit(Dial(conn.handle, conn.locator, conn.is_introduced))
            case Action.ACCEPT:
                emit(Accept(conn.handle))
            case Action.NAME:
                assert conn.greeting is not None, "the peer has greeted us"
                emit(Name(conn.handle, conn.greeting, speaks_first=conn.is_ours))
            case Action.REGISTER:
                assert conn.greeting is not None, "the peer has greeted us"
                former = self._peers.get(conn.greeting.hwaddr)
                self._peers[conn.greeting.hwaddr] = conn
                text = f"connected with {conn.greeting.hwaddr} at {conn.locator}"
                emit(Log(logging.INFO, text))
                emit(Met(conn.handle, former.handle if former is not None else None))
            case Action.INTRODUCE:
                self._introduce(now, conn)
            case Action.HANG_UP:
                emit(Hangup(conn.handle))
            case Action.COUNT:
                self._count("mesh_no_answer")
            case Action.ARM:
                self._machine.arm(conn.handle, now + MESH_ANSWER_S)
            case Action.FORGET:
                self._forget(now, conn)

    def _introduce(self, now: float, conn: _MeshConnection) -> None:
        """Send a new peer our groups and addresses and the places of the other peers. Introduce it to the
        others, unless another host has introduced it and does so: a host that joins N hosts would
        otherwise cause N * N messages."""
        others = [other for other in self._peers.values() if other is not conn]
        self._send(conn, mesh.groups(Operation.GROUPS, list(self._ours.groups)))
        self._send(conn, [mesh.addresses(self._ours.addresses)])
        self._send(conn, mesh.peers([other.locator for other in others]))
        if not conn.is_introduced:
            if not self._news:
                self._timers.arm(self._tell, _NEWS, now + MESH_NEWS_S)
            self._news.append(conn.handle)

    def _tell(self, now: float, _: object) -> None:
        """Name all new peers in one message to each peer."""
        places = {it: conn.locator for it in self._news if (conn := self._connections.get(it))}
        self._news = []
        everything = list(mesh.peers(list(places.values())))
        for other in self._peers.values():
            if other.handle in places:  # it knows its own place
                rest = [place for handle, place in places.items() if handle != other.handle]
                self._send(other, mesh.peers(rest))
            else:
                self._send(other, everything)

    def _forget(self, now: float, conn: _MeshConnection) -> None:
        """Remove a connection, and dial its contact again later."""
        del self._connections[conn.handle]
        self._guesses.discard(conn.handle)
        hwaddr = conn.greeting.hwaddr if conn.greeting is not None else None
        if hwaddr is not None and self._peers.get(hwaddr) is conn:
            del self._peers[hwaddr]
            self._effects.append(Gone(hwaddr))
            self._effects.append(Log(logging.INFO, f"the connection with {hwaddr} ended"))
        for contact in self._contacts:
            is_its = hwaddr is not None and contact.hwaddr == hwaddr
            if contact.handle == conn.handle:
                contact.handle = None
                self._again(now, contact)
            elif is_its and contact.handle is None and hwaddr not in self._peers:
                self._again(now, contact)

    # ---- control messages

    def _control_untrusted(
        self, now: float, conn: _MeshConnection, greeting: Greeting, message: bytes
    ) -> None:
        match mesh.operation_untrusted(message):
            case Operation.GROUPS:
                mgids = mesh.groups_untrusted(message)
                conn.groups = dict.fromkeys(mgids)
                self._effects.append(InGroups(conn.handle, tuple(mgids)))
            case (Operation.JOIN | Operation.LEAVE) as operation:
                for mgid in mesh.groups_untrusted(message):
                    is_in = operation is Operation.JOIN
                    if not is_in:
                        conn.groups.pop(mgid, None)
                    elif len(conn.groups) < MESH_GROUPS_SHOWN:
                        conn.groups[mgid] = None
                    self._effects.append(InGroup(conn.handle, mgid, is_in))
            case Operation.PEERS:
                for locator in mesh.locators_untrusted(message):
                    self._note_named(now, conn, locator)
            case Operation.ADDRESSES:
                ips = tuple(it.ip for it in mesh.locators_untrusted(message))
                conn.addresses = ips
                self._effects.append(Learned(greeting.full_hwaddr, ips))
            case Operation.WINDOW:
                raise BadFrame("mesh_operation")

    def _send_all(self, messages: Iterable[bytes]) -> None:
        for message in messages:
            for conn in self._peers.values():
                self._effects.append(SendControl(conn.handle, message))

    def _send(self, conn: _MeshConnection, messages: Iterable[bytes]) -> None:
        for message in messages:
            self._effects.append(SendControl(conn.handle, message))

    # ---- effects

    def _count(self, reason: str) -> None:
        self._effects.append(Count(reason))

    def _trouble_with(self, reason: str, text: str) -> None:
        self._count(reason)
        repeats = self._trouble.setdefault(reason, Repeats())
        if repeats.add():
            self._effects.append(Log(logging.WARNING, f"{text}{repeats.times}"))

    def _take(self) -> list[MeshEffect]:
        effects, self._effects = self._effects, []
        return effects
