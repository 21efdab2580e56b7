# SPDX-License-Identifier: BSD-2-Clause
"""The policy of connected mode, sans-IO: which peer gets a connection, and when (RFC 4755).

The first packet to a peer that accepts connections starts one. Until it is established, and whenever there
is no connection, packets go by datagram, which always works. The table in `rc_peer` decides how packets go
to a peer, and the table in `rc_connection` drives one connection; `RcPolicy` carries out the actions of
both. A `ConnectionManager` exchanges the CM messages and the fabric makes the queue pairs: effects ask
them, and they answer by inputs.

Two profiles (C6). `linux`: each side sends by a connection of its own, and only receives by the other's.
`rfc`: one connection serves both directions, and of two requests that cross, that of the host with the
larger address wins. Links with Linux's own implementation cannot use `rfc`: Linux never sends by a
connection that it accepted, and does not receive by one that it opened.
"""

from __future__ import annotations

import itertools
import logging
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from ipoibu.base.addr import RC_FLAG, Gid, HwAddr, Qpn
from ipoibu.base.errors import BadFrame
from ipoibu.base.ib import Destination
from ipoibu.base.limits import (
    CONNECTION_BACKOFF_JITTER,
    CONNECTION_BACKOFF_MAX_S,
    CONNECTION_EVICTABLE_S,
    CONNECTION_SETTLED_S,
    PEER_LOGS_BURST,
    PEER_LOGS_PER_S,
)
from ipoibu.proto.effects import Count, Log
from ipoibu.proto.machine.drops import Drops
from ipoibu.proto.machine.ratelimit import TokenBucket
from ipoibu.proto.machine.table import Machine
from ipoibu.proto.machine.timers import Timers
from ipoibu.proto.machine.transition import Observer, Topic, ignore, step
from ipoibu.proto.rc import connection as rc_connection
from ipoibu.proto.rc import peer as rc_peer
from ipoibu.proto.rc.connection import (
    CloseQp,
    OpenQp,
    Profile,
    ProgramQp,
    RcConfig,
    RcConnection,
    RcConnectionInfo,
    RcConnectionTable,
    RcEffect,
)
from ipoibu.proto.rc.events import (
    Accept,
    Cause,
    Confirm,
    Connect,
    Disconnect,
    Ended,
    Established,
    Event,
    Handle,
    Reject,
    Replied,
    Requested,
    Role,
)
from ipoibu.proto.rc.peer import RESTING, RcPeer, TxMode, TxRoute
from ipoibu.wire import cm_private
from ipoibu.wire.cm_code import Reason
from ipoibu.wire.cm_private import Private

_ConnectionInput = rc_connection.Input
_PeerInput = rc_peer.Input
# The inputs that end a connection for a reason beside the input itself
_REASONED = frozenset({_ConnectionInput.ENDED, _ConnectionInput.MISFIT, _ConnectionInput.UNOPENED})


class RcPolicy:
    """All connections of one interface; every input returns effects, in order.

    `serials` makes handles unique where several interfaces share a connection manager. `admits` says
    whether a host (its address without flags) may ask for connections.
    """

    def __init__(
        self,
        config: RcConfig,
        rng: random.Random,
        serials: Iterator[int] | None = None,
        observe: Observer = ignore,
        admits: Callable[[HwAddr], bool] = lambda _: True,
    ) -> None:
        self.config = config
        self._admits = admits
        self._observe = observe
        self._rng = rng
        self._serials = serials if serials is not None else itertools.count()
        self._timers = Timers()
        self._connection_machine = Machine(rc_connection.MACHINE, self._timers, self._ring_idle)
        self._peer_machine = Machine(rc_peer.MACHINE, self._timers, self._ring_peer)
        self._effects: list[RcEffect] = []
        self._drops = Drops(observe)
        self._complaints = TokenBucket(PEER_LOGS_PER_S, PEER_LOGS_BURST)
        self._connections = RcConnectionTable()
        self._peers: dict[HwAddr, RcPeer] = {}  # the key is the address without flags (A6)
        self._resting: OrderedDict[HwAddr, None] = OrderedDict()
        self._is_open = False

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def service_ids(self) -> frozenset[int]:
        """The service IDs at which the connection manager has to listen, in all forms (C7)."""
        return cm_private.service_ids(self.config.hwaddr.qpn)

    # -- the link --------------------------------------------------------------------------------

    def open(self, now: float) -> list[RcEffect]:
        """The link is up: the policy may make connections."""
        self._is_open = True
        return self._take()

    def close(self, now: float) -> list[RcEffect]:
        """The link is down: end all connections (C10)."""
        self._is_open = False
        for peer in list(self._peers.values()):
            self._feed_peer(now, peer, _PeerInput.GONE)
        for conn in list(self._connections):
            self._feed(now, conn, _ConnectionInput.DROPPED)
        return self._take()

    # -- inputs from the engine and the pump -----------------------------------------------------

    def route(self, hwaddr: HwAddr) -> TxRoute:
        """Return how packets go to a peer now, for the entries of its neighbours (C8)."""
        bare = replace(hwaddr, flags=0)
        if not self._is_open or not hwaddr.flags & RC_FLAG:
            return TxRoute(bare, TxMode.UD)
        peer = self._peers.get(bare)
        return peer.route if peer and peer.route else TxRoute(bare, TxMode.UD_NOTIFY)

    def note_wanted(self, now: float, hwaddr: HwAddr, destination: Destination) -> list[RcEffect]:
        """The pump sent a packet to a peer in the mode UD_NOTIFY, by the datagram path `destination`. It goes
        on in UD_CONNECTING.
        """
        bare = replace(hwaddr, flags=0)
        peer = None
        if self._is_open and hwaddr.flags & RC_FLAG:
            peer = self._peer(now, bare)
            if peer is None:
                self._count("connection_peers_full")
        if peer is None:
            self._effects.append(TxRoute(bare, TxMode.UD))
        else:
            peer.destination = destination
            self._feed_peer(now, peer, _PeerInput.WANTED)
        return self._take()

    def forget(self, now: float, hwaddr: HwAddr) -> list[RcEffect]:
        """No neighbour has this address any more: end all connections with the peer."""
        bare = replace(hwaddr, flags=0)
        if bare in self._peers:
            self._feed_peer(now, self._peers[bare], _PeerInput.GONE)
        for conn in self._connections.of(bare):
            self._feed(now, conn, _ConnectionInput.DROPPED)
        return self._take()

    def active(self, now: float, handles: Iterable[Handle]) -> list[RcEffect]:
        """These connections carried packets, in either direction, since the last call."""
        for handle in handles:
            conn = self._connections.get(handle)
            if conn is not None and conn.state is rc_connection.State.LIVE:
                self._feed(now, conn, _ConnectionInput.USED)
        return self._take()

    # -- inputs from the fabric ------------------------------------------------------------------

    def note_opened(self, now: float, handle: Handle, qpn: Qpn) -> list[RcEffect]:
        """Take the fabric's answer: it has made the queue pair, in INIT."""
        conn = self._connections.get(handle)
        if conn is not None:
            conn.qpn = qpn
            self._feed(now, conn, _ConnectionInput.OPENED)
        return self._take()

    def note_open_failed(self, now: float, handle: Handle, reason: str) -> list[RcEffect]:
        """Take the fabric's answer: it could not make the queue pair, for `reason`."""
        conn = self._connections.get(handle)
        if conn is not None:
            self._count("connection_no_qp")
            conn.refusal, conn.cause, conn.refused = Reason.NO_QP, Cause.BROKEN, reason
            self._feed(now, conn, _ConnectionInput.UNOPENED)
        return self._take()

    def broken(self, now: float, handle: Handle) -> list[RcEffect]:
        """The fabric could not program the queue pair, or a send by it failed."""
        conn = self._connections.get(handle)
        if conn is not None:
            self._count("connection_broken")
            conn.cause = Cause.BROKEN
            self._feed(now, conn, _ConnectionInput.BROKEN)
        return self._take()

    def note_dropped(self, now: float, handle: Handle, counter: str) -> None:
        """The pump dropped a message of the connection's peer, and has counted it under `counter`."""
        conn = self._connections.get(handle)
        if conn is not None:
            self._drops.note(now, conn.hwaddr, counter)

    # -- inputs from the connection manager ------------------------------------------------------

    def event(self, now: float, event: Event) -> list[RcEffect]:
        if isinstance(event, Requested):
            self._note_requested_untrusted(now, event)
            return self._take()
        conn = self._connections.get(event.handle)
        if conn is not None:
            match event:
                case Replied():
                    self._note_replied_untrusted(now, conn, event)
                case Established():
                    self._feed(now, conn, _ConnectionInput.ESTABLISHED)
                case Ended():
                    conn.cause = event.cause
                    self._feed(now, conn, _ConnectionInput.ENDED)
        return self._take()

    # -- time and snapshot -----------------------------------------------------------------------

    def timer(self, now: float) -> list[RcEffect]:
        self._timers.run(now)
        return self._take()

    def deadline(self) -> float | None:
        """Return the time of the next call of `timer`; None without one."""
        return self._timers.deadline()

    def snapshot(self, now: float) -> Iterator[RcConnectionInfo]:
        for conn in self._connections:
            peer = self._peers.get(conn.hwaddr)
            is_serving = peer is not None and peer.serving == conn.handle
            is_live = conn.state is rc_connection.State.LIVE
            theirs, attributes = conn.theirs, conn.attributes
            yield RcConnectionInfo(
                conn.handle,
                conn.hwaddr,
                conn.state,
                conn.qpn,
                attributes.destination.qpn if attributes else None,
                self.config.mtu_bytes(theirs) if theirs and is_serving else 0,
                attributes.path_mtu_bytes if attributes else 0,
                bool(theirs and self.config.superframes(theirs)),
                now - conn.since if is_live else 0.0,
                now - conn.used if is_live else 0.0,
            )

    # -- requests and replies of peers -----------------------------------------------------------

    def _note_requested_untrusted(self, now: float, event: Requested) -> None:
        try:
            theirs = cm_private.parse_untrusted(event.private)
        except BadFrame as error:
            self._drop(now, event.gid, error.reason)
            self._reject(event.handle, Reason.CONSUMER)
            return
        hwaddr = HwAddr(theirs.qpn, event.gid)
        refusal = self._refusal(now, hwaddr, theirs)
        if refusal is not None:
            self._reject(event.handle, refusal)
            return
        if self.config.profile is Profile.RFC:
            peer = self._peer(now, hwaddr)
            if peer is None:
                self._drop(now, hwaddr, "connection_peers_full")
                self._reject(event.handle, Reason.NO_RESOURCES)
                return
            self._feed_peer(now, peer, _PeerInput.EXPECTED)
        attributes = self.config.attributes(event.attributes, theirs)
        conn = RcConnection(event.handle, hwaddr, theirs=theirs, attributes=attributes)
        self._connections.add(conn)
        self._feed(now, conn, _ConnectionInput.REQUESTED)

    def _refusal(self, now: float, hwaddr: HwAddr, theirs: Private) -> Reason | None:
        """Return the reason to refuse a request (counted), or None."""
        config = self.config
        if not self._is_open:
            self._count("connection_link_down")
            return Reason.NO_RESOURCES
        if hwaddr.same_queue_pair(config.hwaddr):
            self._count("connection_echo")
            return Reason.CONSUMER
        if not self._admits(hwaddr):
            self._drop(now, hwaddr, "connection_stranger")
            return Reason.CONSUMER
        if config.profile is Profile.RFC:
            if config.mtu_bytes(theirs) < config.datagram_mtu_bytes:
                self._drop(now, hwaddr, "connection_mtu")
                return Reason.CONSUMER
            if self._is_asking(hwaddr) and not _is_less(config.hwaddr, hwaddr):
                self._count("connection_crossed")  # RFC 4755 §3.3: ours serves both directions (C6)
                return Reason.CONSUMER
        if self._connections.passive_on(hwaddr.gid) >= config.per_port_max:
            self._drop(now, hwaddr, "connection_port_full")
            return Reason.NO_RESOURCES
        if not self._make_room(now):
            return Reason.NO_RESOURCES
        return None

    def _is_asking(self, hwaddr: HwAddr) -> bool:
        """Return whether our request to the peer is under way, so that it crosses the peer's."""
        peer = self._peers.get(hwaddr)
        attempt = self._connections.get(peer.attempt) if peer and peer.attempt else None
        return attempt is not None and attempt.state is rc_connection.State.ASKING

    def _note_replied_untrusted(self, now: float, conn: RcConnection, event: Replied) -> None:
        conn.attributes = event.attributes
        try:
            conn.theirs = cm_private.parse_untrusted(event.private)
        except BadFrame as error:
            self._drop(now, conn.hwaddr, error.reason)
            self._misfit(now, conn)
            return
        conn.attributes = self.config.attributes(event.attributes, conn.theirs)
        is_other = conn.theirs.qpn != conn.hwaddr.qpn
        if is_other or self.config.mtu_bytes(conn.theirs) < self.config.datagram_mtu_bytes:
            self._drop(now, conn.hwaddr, "connection_other" if is_other else "connection_mtu")
            self._misfit(now, conn)
        else:
            self._feed(now, conn, _ConnectionInput.REPLIED)

    def _misfit(self, now: float, conn: RcConnection) -> None:
        conn.refusal, conn.cause = Reason.CONSUMER, Cause.INCOMPATIBLE
        self._feed(now, conn, _ConnectionInput.MISFIT)

    # -- connections -----------------------------------------------------------------------------

    def _feed(self, now: float, conn: RcConnection, fed: rc_connection.Input) -> None:
        before, actions = self._connection_machine.feed(conn, conn.handle, fed)
        if conn.state is not before:
            role = conn.handle.role.value
            reason = conn.why if fed in _REASONED else ""
            self._observe(
                step(
                    Topic.CONNECTION,
                    conn.hwaddr,
                    before,
                    conn.state,
                    fed,
                    detail=role,
                    reason=reason,
                )
            )
        for action in actions:
            self._act(now, conn, fed, action)

    def _act(
        self,
        now: float,
        conn: RcConnection,
        fed: rc_connection.Input,
        action: rc_connection.Action,
    ) -> None:
        emit, handle = self._effects.append, conn.handle
        match action:
            case rc_connection.Action.OPEN:
                emit(OpenQp(handle))
            case rc_connection.Action.CONNECT:
                emit(self._connect(conn))
            case rc_connection.Action.PROGRAM:
                assert conn.attributes is not None, "the REQ or REP has given them"
                emit(ProgramQp(handle, conn.attributes, self._has_superframes(conn)))
            case rc_connection.Action.ACCEPT:
                assert conn.qpn is not None, "`note_opened` has set it"
                assert conn.theirs is not None, "the REQ has given it"
                ours = self.config.reply_private(conn.theirs)
                emit(Accept(handle, conn.qpn, ours.pack()))
            case rc_connection.Action.CONFIRM:
                emit(Confirm(handle))
            case rc_connection.Action.REJECT:
                self._reject(handle, conn.refusal)
            case rc_connection.Action.DISCONNECT:
                emit(Disconnect(handle))
            case rc_connection.Action.CLOSE:
                emit(CloseQp(handle))
            case rc_connection.Action.ARM:
                conn.used = now
                self._connections.touch(handle)
                self._connection_machine.arm(handle, now + self._idle_s(handle.role))
            case rc_connection.Action.SERVE:
                self._serve(now, conn)
            case rc_connection.Action.FORGET:
                self._connections.remove(conn)
            case rc_connection.Action.REPORT:
                self._report(now, conn, fed)

    def _connect(self, conn: RcConnection) -> Connect:
        peer = self._peers[conn.hwaddr]
        assert peer.destination is not None, "`note_wanted` has set it"
        assert conn.qpn is not None, "`note_opened` has set it"
        assert conn.form is not None, "every active connection has one"
        return Connect(
            conn.handle,
            peer.destination,
            cm_private.service_id(conn.form, conn.hwaddr.qpn),
            conn.qpn,
            self.config.path_mtu_bytes,
            self.config.private().pack(),
            self.config.pkey,
        )

    def _has_superframes(self, conn: RcConnection) -> bool:
        """Return whether both ends take super-frames: the accepting end declares them only if the peer
        does."""
        return conn.theirs is not None and bool(self.config.superframes(conn.theirs))

    def _idle_s(self, role: Role) -> float:
        """Return the idle time: the active end closes an idle connection, and the passive end waits twice
        as long. Linux loses packets for seconds when the peer ends a connection that Linux opened."""
        return self.config.idle_s if role is Role.ACTIVE else 2 * self.config.idle_s

    def _ring_idle(self, now: float, handle: Handle) -> None:
        self._count("connection_idle")
        self._feed(now, self._connections[handle], _ConnectionInput.TIMEOUT)

    def _serve(self, now: float, conn: RcConnection) -> None:
        conn.since = now
        if conn.handle.role is Role.PASSIVE:
            self._supersede(now, conn)
        if conn.handle.role is Role.ACTIVE or self.config.profile is Profile.RFC:
            peer = self._peer(now, conn.hwaddr)
            if peer is not None:
                if peer.attempt == conn.handle:
                    peer.attempt = None
                peer.candidate = conn.handle
                self._feed_peer(now, peer, _PeerInput.SERVED)

    def _supersede(self, now: float, conn: RcConnection) -> None:
        """End the older connections that a peer's new connection supersedes.

        A connection from the same UD queue pair: the peer has lost the older connection, or wants this one
        instead. From another UD queue pair on the same port: the peer has probably restarted. A port may
        have several interfaces, so we suspect each at most once; a living one connects again and stays.
        """
        for other in self._connections.on(conn.hwaddr.gid):
            qpn = other.hwaddr.qpn
            if other is conn or other.state is not rc_connection.State.LIVE:
                continue  # the new connection itself, not live, or ended in this loop
            if qpn == conn.hwaddr.qpn:
                if other.handle.role is Role.PASSIVE and not self._is_serving(other):
                    self._count("connection_replaced")
                    self._feed(now, other, _ConnectionInput.DROPPED)
            elif self._connections.suspect(other.hwaddr):
                self._count("connection_restart")
                for doomed in self._connections.of(other.hwaddr):
                    if doomed.state is rc_connection.State.LIVE:
                        self._feed(now, doomed, _ConnectionInput.EVICTED)

    def _report(self, now: float, conn: RcConnection, fed: rc_connection.Input) -> None:
        """Feed the end of a connection to its peer's machine."""
        peer = self._peers.get(conn.hwaddr)
        if peer is None:
            return
        if peer.serving == conn.handle:
            peer.serving = None
            peer.cause = conn.cause
            self._feed_peer(now, peer, self._end_of_service(now, peer, conn, fed))
        elif peer.attempt == conn.handle:
            peer.attempt, peer.cause = None, conn.cause
            peer.forms_tried += 1
            if conn.cause is Cause.NO_SERVICE and peer.forms_tried < len(self.config.forms):
                self._feed_peer(now, peer, _PeerInput.OTHER_FORM)
            else:
                self._feed_peer(now, peer, _PeerInput.FAILED)
        elif peer.state is rc_peer.State.AWAITING and not self._connections.of(conn.hwaddr):
            self._feed_peer(now, peer, _PeerInput.FAILED)

    def _end_of_service(
        self, now: float, peer: RcPeer, conn: RcConnection, fed: rc_connection.Input
    ) -> _PeerInput:
        """Return what the end of the connection that served says of the peer.

        A peer that ends it in good order has flushed its neighbours, or starts anew: the next packet makes
        another one. Only a peer that does so in quick succession is left alone.
        """
        settled = now - conn.since >= CONNECTION_SETTLED_S
        if settled or fed in (_ConnectionInput.TIMEOUT, _ConnectionInput.EVICTED):
            return _PeerInput.LOST
        is_orderly = fed is _ConnectionInput.ENDED and conn.cause is Cause.DISCONNECTED
        if is_orderly and peer.dismissals.take(now):
            return _PeerInput.DISMISSED
        return _PeerInput.FLAPPED

    def _make_room(self, now: float) -> bool:
        """Return whether there is room for one more connection; end the least recently used one if it was
        unused for long enough."""
        if len(self._connections) < self.config.connections_max:
            return True
        oldest = self._connections.oldest()
        if oldest is None or now - oldest.used < CONNECTION_EVICTABLE_S:
            self._count("connection_full")
            return False
        self._count("connection_evicted")
        self._feed(now, oldest, _ConnectionInput.EVICTED)
        return True

    def _is_serving(self, conn: RcConnection) -> bool:
        peer = self._peers.get(conn.hwaddr)
        return peer is not None and peer.serving == conn.handle

    # -- peers -----------------------------------------------------------------------------------

    def _peer(self, now: float, hwaddr: HwAddr) -> RcPeer | None:
        """Return the peer's entry, and make it if there is room; an entry that only remembers failures
        makes room."""
        peer = self._peers.get(hwaddr)
        if peer is None:
            if len(self._peers) >= self.config.peers_max:
                if not self._resting:
                    return None
                self._count("connection_peer_evicted")
                self._feed_peer(now, self._peers[next(iter(self._resting))], _PeerInput.GONE)
            peer = self._peers[hwaddr] = RcPeer(hwaddr)
        return peer

    def _feed_peer(self, now: float, peer: RcPeer, fed: rc_peer.Input) -> None:
        before, actions = self._peer_machine.feed(peer, peer.hwaddr, fed)
        if peer.state is not before:
            self._resting.pop(peer.hwaddr, None)
            if peer.state in RESTING:
                self._resting[peer.hwaddr] = None
        for action in actions:
            match action:
                case rc_peer.Action.START:
                    self._start(now, peer)
                case rc_peer.Action.ABANDON:
                    self._abandon(now, peer)
                case rc_peer.Action.UD_NOTIFY:
                    self._steer(peer, TxRoute(peer.hwaddr, TxMode.UD_NOTIFY))
                case rc_peer.Action.UD:
                    self._steer(peer, TxRoute(peer.hwaddr, TxMode.UD))
                case rc_peer.Action.UD_CONNECTING:
                    self._steer(peer, TxRoute(peer.hwaddr, TxMode.UD_CONNECTING))
                case rc_peer.Action.RC:
                    self._note_connected(peer)
                case rc_peer.Action.PENALIZE:
                    self._penalize(now, peer)
                case rc_peer.Action.ARM:
                    self._peer_machine.arm(peer.hwaddr, now + self._rest_s(peer))
                case rc_peer.Action.FORGET:
                    del self._peers[peer.hwaddr]

    def _start(self, now: float, peer: RcPeer) -> None:
        if not self._make_room(now):
            self._feed_peer(now, peer, _PeerInput.FAILED)
            return
        form = self.config.forms[peer.forms_tried]
        conn = RcConnection(Handle(Role.ACTIVE, next(self._serials)), peer.hwaddr, form=form)
        peer.attempt = conn.handle
        self._connections.add(conn)
        self._feed(now, conn, _ConnectionInput.START)

    def _abandon(self, now: float, peer: RcPeer) -> None:
        handles = (peer.attempt, peer.serving)
        peer.attempt = peer.serving = None
        for handle in handles:
            if handle is not None:
                self._feed(now, self._connections[handle], _ConnectionInput.DROPPED)

    def _note_connected(self, peer: RcPeer) -> None:
        assert peer.candidate is not None, "`_serve` has set it"
        conn = self._connections[peer.candidate]
        assert conn.theirs is not None, "the peer has sent its private data"
        peer.serving, peer.candidate, peer.forms_tried = conn.handle, None, 0
        self._steer(
            peer,
            TxRoute(
                peer.hwaddr,
                TxMode.RC,
                conn.handle,
                self.config.mtu_bytes(conn.theirs),
                self.config.superframes(conn.theirs),
            ),
        )

    def _penalize(self, now: float, peer: RcPeer) -> None:
        self._count("connection_failed")
        peer.forms_tried = 0
        peer.rest_s = peer.backoff.next_s()
        if peer.backoff.refusals.add() and self._complaints.take(now):
            text = f"no connection to {peer.hwaddr}: {peer.cause.value}"
            text = f"{text}; packets go by datagram for {peer.rest_s:.0f} s"
            self._log(logging.WARNING, text)

    def _rest_s(self, peer: RcPeer) -> float:
        if peer.state is rc_peer.State.READY:
            return 2 * CONNECTION_BACKOFF_MAX_S
        jitter = self._rng.uniform(1 - CONNECTION_BACKOFF_JITTER, 1 + CONNECTION_BACKOFF_JITTER)
        return peer.rest_s * jitter

    def _ring_peer(self, now: float, hwaddr: HwAddr) -> None:
        self._feed_peer(now, self._peers[hwaddr], _PeerInput.TIMEOUT)

    def _steer(self, peer: RcPeer, route: TxRoute) -> None:
        peer.route = route
        self._effects.append(route)

    # -- effects ---------------------------------------------------------------------------------

    def _reject(self, handle: Handle, reason: Reason) -> None:
        """C3: a REJ carries our private data, too."""
        self._effects.append(Reject(handle, reason, self.config.refusal_private().pack()))

    def _drop(self, now: float, peer: Gid | HwAddr, reason: str) -> None:
        """Count a request or an answer of `peer` that we refuse, and notify the observer of the first."""
        self._count(reason)
        self._drops.note(now, peer, reason)

    def _count(self, reason: str) -> None:
        self._effects.append(Count(reason))

    def _log(self, level: int, text: str) -> None:
        self._effects.append(Log(level, text))

    def _take(self) -> list[RcEffect]:
        effects, self._effects = self._effects, []
        return effects


def _is_less(one: HwAddr, other: HwAddr) -> bool:
    """RFC 4755 §3.3: hardware addresses as numbers, their flags zero (C6)."""
    return replace(one, flags=0).pack() < replace(other, flags=0).pack()
