# SPDX-License-Identifier: BSD-2-Clause
"""Paths under a subnet administrator (SA): a path to each port, a membership to send to each group.

Only the SA knows the LID, service level and rate of a destination. The other machines decide as if there
was no SA. Their effects pass through `PathTable`, which holds back entries and packets for a destination
without a path until the SA answers. Meanwhile the pump has no entry for the neighbour, so the next packets
come here and wait, too, until the queue is full. A path stays in use while the table asks for it again, so
that traffic goes on when the SA does not answer (light flush).

NONE     nothing uses the path
ASKED    we asked the SA, and it has not answered
KNOWN    the path is in use
STALE    the path is in use and we asked the SA again: it may have changed or forgotten the path
BACKOFF  the SA refused; the table asks again after 1, 2 .. 16 s, as it does in STALE
"""

from __future__ import annotations

import enum
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from typing import Final

from ipoibu.base.addr import Gid, IpAddress
from ipoibu.base.ib import Destination
from ipoibu.base.limits import (
    GROUP_BACKOFF_MAX_S,
    GROUP_BACKOFF_MIN_S,
    GROUP_SEND_ONLY_IDLE_S,
    PEER_LOGS_BURST,
    PEER_LOGS_PER_S,
    SA_PATH_PENDING_BYTES,
    SA_PATH_PENDING_TOTAL_BYTES,
    SA_PATHS_MAX,
)
from ipoibu.proto.effects import (
    Count,
    Detach,
    Effect,
    FindPath,
    Forward,
    JoinToSend,
    LeaveToSend,
    Log,
    NeighAction,
    Publish,
    SendFrame,
    SendPacket,
    Withdraw,
)
from ipoibu.proto.machine.backoff import Backoff
from ipoibu.proto.machine.ratelimit import TokenBucket
from ipoibu.proto.machine.table import Machine, Table
from ipoibu.proto.machine.timers import Timers
from ipoibu.proto.machine.transition import Observer, Topic, ignore, step
from ipoibu.proto.machine.waiting import Waiting
from ipoibu.proto.paths import PathInfo, Paths, SaPath, State
from ipoibu.wire import mgid
from ipoibu.wire.ip import destination_of


class Input(enum.Enum):
    WANTED = "a packet or a neighbour needs the path"
    RESOLVED = "the SA gives the path"
    REFUSED = "the SA refuses, or does not answer"
    REVALIDATE = "the SA may have changed the path"
    TIMEOUT = "the state's time is over"
    UNUSED = "nothing uses the path any more"


class Action(enum.Enum):
    ASK = "ask the SA"
    LEARN = "use the path, and send the packets that wait"
    COMPLAIN = "count and log the refusal"
    DROP = "drop the packets that wait"
    BLOCK = "let the pump drop the next packets"
    ARM = "start the state's timer"
    LEAVE = "leave the group at the SA, if it is one"


_S, _I, _A = State, Input, Action

# fmt: off
MACHINE: Final = Table("SA path", State.NONE, {
    (_S.NONE, _I.WANTED):        (_S.ASKED, (_A.ASK,)),
    (_S.NONE, _I.RESOLVED):      (_S.KNOWN, (_A.LEARN,)),
    (_S.ASKED, _I.WANTED):       (_S.ASKED, ()),
    (_S.ASKED, _I.RESOLVED):     (_S.KNOWN, (_A.LEARN,)),
    (_S.ASKED, _I.REFUSED):      (_S.BACKOFF, (_A.COMPLAIN, _A.DROP, _A.BLOCK, _A.ARM)),
    (_S.ASKED, _I.REVALIDATE):   (_S.ASKED, ()),
    (_S.ASKED, _I.UNUSED):       (_S.NONE, (_A.DROP, _A.LEAVE)),
    (_S.KNOWN, _I.WANTED):       (_S.KNOWN, ()),
    (_S.KNOWN, _I.RESOLVED):     (_S.KNOWN, (_A.LEARN,)),
    (_S.KNOWN, _I.REFUSED):      (_S.KNOWN, ()),
    (_S.KNOWN, _I.REVALIDATE):   (_S.STALE, (_A.ASK, _A.ARM)),
    (_S.KNOWN, _I.UNUSED):       (_S.NONE, (_A.LEAVE,)),
    (_S.STALE, _I.WANTED):       (_S.STALE, ()),
    (_S.STALE, _I.RESOLVED):     (_S.KNOWN, (_A.LEARN,)),
    (_S.STALE, _I.REFUSED):      (_S.STALE, (_A.COMPLAIN,)),
    (_S.STALE, _I.REVALIDATE):   (_S.STALE, ()),
    (_S.STALE, _I.TIMEOUT):      (_S.STALE, (_A.ASK, _A.ARM)),
    (_S.STALE, _I.UNUSED):       (_S.NONE, (_A.LEAVE,)),
    (_S.BACKOFF, _I.WANTED):     (_S.BACKOFF, (_A.DROP,)),
    (_S.BACKOFF, _I.RESOLVED):   (_S.KNOWN, (_A.LEARN,)),
    (_S.BACKOFF, _I.REFUSED):    (_S.BACKOFF, ()),
    (_S.BACKOFF, _I.REVALIDATE): (_S.ASKED, (_A.ASK,)),
    (_S.BACKOFF, _I.TIMEOUT):    (_S.ASKED, (_A.ASK,)),
    (_S.BACKOFF, _I.UNUSED):     (_S.NONE, ()),
})
# fmt: on

Packet = SendFrame | SendPacket

ALL_ROUTERS: Final[dict[int, IpAddress]] = {4: IPv4Address("224.0.0.2"), 6: IPv6Address("ff02::2")}
LOCAL_CONTROL: Final = IPv4Network("224.0.0.0/24")
LINK_SCOPE: Final = 2


@dataclass(slots=True)
class _Entry:
    gid: Gid
    used: float
    state: State = State.NONE
    path: SaPath | None = None
    was_asked: bool = False  # for a group: we are a send-only member, or may be
    backoff: Backoff = field(
        default_factory=lambda: Backoff(GROUP_BACKOFF_MIN_S, GROUP_BACKOFF_MAX_S)
    )
    published: dict[IpAddress, Publish] = field(default_factory=dict)
    is_full: bool = False  # a packet found no room, since the last one left

    @property
    def is_closed(self) -> bool:
        """Return whether no further packet may wait for the path, so that the pump drops the next packets."""
        return self.state is State.BACKOFF or self.is_full


class PathTable(Paths):
    """All paths that an SA gave, at most `cap`: the least recently used path that no neighbour uses makes
    room."""

    def __init__(self, timers: Timers, cap: int = SA_PATHS_MAX, observe: Observer = ignore) -> None:
        self._timers = timers
        self._observe = observe
        self._cap = cap
        self._machine = Machine(MACHINE, timers, self._ring)
        self._entries: dict[Gid, _Entry] = {}
        # Entries without neighbours, used longest ago first.
        self._idle: OrderedDict[Gid, None] = OrderedDict()
        self._next_hops: dict[IpAddress, Gid] = {}
        self._members: dict[Gid, SaPath] = {}
        self._waiting: Waiting[Gid, Packet] = Waiting(
            SA_PATH_PENDING_BYTES, SA_PATH_PENDING_TOTAL_BYTES, self._note_pushed_out
        )
        self._out: list[Effect] = []
        self._complaints = TokenBucket(PEER_LOGS_PER_S, PEER_LOGS_BURST)

    def __len__(self) -> int:
        return len(self._entries)

    def state(self, gid: Gid) -> State:
        return self._entries[gid].state if gid in self._entries else State.NONE

    def gids(self) -> list[Gid]:
        return list(self._entries)

    def snapshot(self, gids: Iterable[Gid]) -> list[PathInfo]:
        return [
            PathInfo(
                entry.gid,
                entry.state.value,
                entry.path.destination if entry.path is not None else None,
                entry.path.mtu_bytes if entry.path is not None else None,
                tuple(entry.published),
                self._waiting.count(entry.gid),
            )
            for entry in map(self._entries.get, gids)
            if entry is not None
        ]

    def pass_on(self, now: float, effects: Iterable[Effect]) -> list[Effect]:
        for effect in effects:
            match effect:
                case Publish(next_hop, _, destination) if destination is not None:
                    self._publish(now, next_hop, effect, destination)
                case Publish(next_hop) | Withdraw(next_hop):
                    self._unlink(next_hop)
                    self._out.append(effect)
                case SendFrame(destination):
                    self._send(now, self._want(now, destination.gid), effect)
                case SendPacket() if effect.next_hop in self._next_hops:
                    self._send(now, self._entries.get(self._next_hops[effect.next_hop]), effect)
                case Detach(mgid):
                    self._out.append(effect)
                    self.note_resigned(now, mgid)
                case _:
                    self._out.append(effect)
        out, self._out = self._out, []
        return out

    # -- answers ---------------------------------------------------------------------------------

    def note_path_resolved(self, now: float, gid: Gid, path: SaPath) -> None:
        """Take the SA's answer to `FindPath` or `JoinToSend`; ignore it if nothing wants the path any
        more."""
        self._feed(now, gid, Input.RESOLVED, path)

    def note_refused(self, now: float, gid: Gid, reason: str) -> None:
        self._feed(now, gid, Input.REFUSED, reason=reason)

    def note_joined(self, now: float, group: Gid, path: SaPath) -> None:
        """We are a member of the group, and so may send to it."""
        self._members[group] = path
        self._feed(now, group, Input.RESOLVED, path)

    def note_resigned(self, now: float, group: Gid) -> None:
        """We left the group; sending to it now needs a membership that only sends."""
        if self._members.pop(group, None) is not None:
            self._feed(now, group, Input.REVALIDATE)

    def revalidate(self, now: float, only: Gid | None = None) -> None:
        """The SA or its records may have changed: ask again for all paths or `only` one, and use them
        meanwhile."""
        for gid in list(self._entries) if only is None else (only,):
            if gid not in self._members:
                self._feed(now, gid, Input.REVALIDATE)

    def note_changed(self, now: float, group: Gid, *, exists: bool) -> None:
        """Ask at once for a group that now `exists` if the SA refused it or it had a detour, and for a
        group that is gone if it was in use: so the table remembers which groups exist, and corrects itself
        (M5)."""
        entry = self._entries.get(group)
        if entry is None or group in self._members:
            return
        has_detour = entry.path is not None and entry.path.destination.gid != group
        if not exists or has_detour or entry.state is State.BACKOFF:
            self._feed(now, group, Input.REVALIDATE)

    def note_rerouted(self, is_affected: Callable[[IpAddress], bool]) -> None:
        """Routes have changed: look up again the packets to affected destinations that wait."""
        for gid in self._waiting.waited_for():
            entry = self._entries[gid]
            moved = [it for it in self._waiting.of(gid) if _is_moved(it, is_affected)]
            if moved and entry.is_closed:  # a packet that comes here again must find room
                self._out += map(Withdraw, entry.published)
            self._out += [Forward(it.packet) for it in moved if isinstance(it, SendPacket)]
            self._discard(entry, lambda it: _is_moved(it, is_affected))

    def clear(self, now: float) -> None:
        """The link is down: forget all paths."""
        for gid in list(self._entries):
            self._feed(now, gid, Input.UNUSED)

    # -- inside ----------------------------------------------------------------------------------

    def _publish(
        self, now: float, next_hop: IpAddress, wanted: Publish, destination: Destination
    ) -> None:
        if self._next_hops.get(next_hop) != destination.gid:
            self._unlink(next_hop)
        known = self._entries.get(destination.gid)
        former = known.published.get(next_hop) if known is not None else None
        entry = self._want(now, destination.gid, wanted)
        if former is not None and former.destination != destination and entry is not None:
            self._note_returned(now, entry)
        if entry is None:
            self._out.append(_held(wanted))
        elif entry.path is not None:
            self._out.append(_routed(wanted, entry.path))
        else:
            self._out.append(_held(wanted) if entry.is_closed else Withdraw(next_hop))

    def _note_returned(self, now: float, entry: _Entry) -> None:
        """The neighbour has a new queue pair, so its port is back: ask at once for a path that the SA
        refused."""
        if entry.state is State.BACKOFF:
            self._feed(now, entry.gid, Input.REVALIDATE)

    def _unlink(self, next_hop: IpAddress) -> None:
        gid = self._next_hops.pop(next_hop, None)
        if gid is None:
            return
        entry = self._entries[gid]
        del entry.published[next_hop]
        if not entry.published:
            self._idle[gid] = None
        lost = self._discard(entry, lambda it: _next_hop(it) == next_hop)
        self._out += [Count("way_unresolved")] * lost

    def _want(self, now: float, gid: Gid, wanted: Publish | None = None) -> _Entry | None:
        """Return the entry, and make it and ask for it if need be; None (counted) when the table is
        full."""
        entry = self._entries.get(gid)
        if entry is None:
            if not self._make_room(now):
                self._out.append(Count("way_table_full"))
                return None
            entry = self._entries[gid] = _Entry(gid, now)
            self._idle[gid] = None
            self._timers.arm(self._look, gid, now + GROUP_SEND_ONLY_IDLE_S)
        entry.used = now
        if gid in self._idle:
            self._idle.move_to_end(gid)
        member = self._members.get(gid) if entry.state is State.NONE else None
        if member is not None:
            self._feed(now, gid, Input.RESOLVED, member)
        if wanted is not None:
            self._next_hops[wanted.next_hop] = gid
            self._idle.pop(gid, None)
            entry.published[wanted.next_hop] = wanted
        self._feed(now, gid, Input.WANTED)
        return entry

    def _send(self, now: float, entry: _Entry | None, effect: Packet) -> None:
        if entry is None:
            return
        entry.used = now
        if entry.path is not None:
            self._out.append(_routed(effect, entry.path))
        elif entry.state is State.BACKOFF:
            self._out.append(Count("way_unresolved"))
        elif not self._waiting.add(entry.gid, effect, len(_bytes_of(effect))):
            self._out.append(Count("path_pending_full"))
            if not entry.is_full:
                entry.is_full = True
                self._out += map(_held, entry.published.values())

    def _feed(
        self,
        now: float,
        gid: Gid,
        fed: Input,
        path: SaPath | None = None,
        reason: str = "",
    ) -> None:
        entry = self._entries.get(gid)
        if entry is None:
            return
        before, actions = self._machine.feed(entry, gid, fed)
        if entry.state is not before:
            transition = step(Topic.PATH, gid, before, entry.state, fed)
            self._observe(replace(transition, cause=reason or transition.cause))
        for action in actions:
            self._act(now, entry, action, path, reason)
        if entry.state is State.NONE:
            self._forget(entry)

    def _act(
        self, now: float, entry: _Entry, action: Action, path: SaPath | None, reason: str
    ) -> None:
        match action:
            case Action.ASK:
                entry.was_asked = True
                self._out.append(_query_for(entry))
            case Action.LEARN:
                entry.path = path
                entry.backoff.reset()
                self._release(entry)
            case Action.COMPLAIN:
                self._complain(now, entry, reason)
            case Action.DROP:
                self._out += [Count("way_unresolved")] * len(self._take(entry))
            case Action.BLOCK:
                self._out += map(_held, entry.published.values())
            case Action.ARM:
                self._machine.arm(entry.gid, now + entry.backoff.next_s())
            case Action.LEAVE:
                if entry.gid.is_multicast and entry.was_asked:
                    self._out.append(LeaveToSend(entry.gid))

    def _release(self, entry: _Entry) -> None:
        assert entry.path is not None, "LEARN has set it"
        for wanted in entry.published.values():
            self._out.append(_routed(wanted, entry.path))
        for waiting in self._take(entry):
            self._out.append(_routed(waiting, entry.path))

    def _discard(self, entry: _Entry, is_unwanted: Callable[[Packet], bool]) -> int:
        lost = self._waiting.discard(entry.gid, is_unwanted)
        entry.is_full = entry.is_full and lost == 0
        return lost

    def _take(self, entry: _Entry) -> list[Packet]:
        entry.is_full = False
        return self._waiting.take(entry.gid)

    def _note_pushed_out(self, gid: Gid, packets: int) -> None:
        self._out += [Count("path_pending_full")] * packets

    def _complain(self, now: float, entry: _Entry, reason: str) -> None:
        refusals = entry.backoff.refusals
        self._out.append(Count("way_refused"))
        if refusals.add() and self._complaints.take(now):
            text = f"no path to {entry.gid}: {reason}{refusals.times}"
            self._out.append(Log(logging.WARNING, text))

    def _forget(self, entry: _Entry) -> None:
        self._timers.cancel(self._look, entry.gid)
        self._out += [Count("way_unresolved")] * len(self._take(entry))
        for next_hop, wanted in entry.published.items():
            del self._next_hops[next_hop]
            self._out.append(_held(wanted))
        del self._entries[entry.gid]
        self._idle.pop(entry.gid, None)

    def _ring(self, now: float, gid: Gid) -> None:
        self._feed(now, gid, Input.TIMEOUT)

    def _look(self, now: float, gid: Gid) -> None:
        """M8: give up a path that was unused for a while, and leave its group."""
        entry = self._entries[gid]
        if entry.published:
            entry.used = now
        if entry.used + GROUP_SEND_ONLY_IDLE_S > now:
            self._timers.arm(self._look, gid, entry.used + GROUP_SEND_ONLY_IDLE_S)
        else:
            self._feed(now, gid, Input.UNUSED)

    def _make_room(self, now: float) -> bool:
        if len(self._entries) < self._cap:
            return True
        if not self._idle:
            return False
        self._out.append(Count("way_evicted"))
        self._feed(now, next(iter(self._idle)), Input.UNUSED)
        return True


def _query_for(entry: _Entry) -> FindPath | JoinToSend:
    if not entry.gid.is_multicast:
        return FindPath(entry.gid)
    goes_far = any(_leaves_link(ip) for ip in entry.published)
    return JoinToSend(entry.gid, _all_routers(entry.gid) if goes_far else None)


def _leaves_link(ip: IpAddress) -> bool:
    """Return whether the IP group's scope is wider than the link (RFC 5771 §4, RFC 4291 §2.7)."""
    if isinstance(ip, IPv4Address):
        return ip.is_multicast and ip not in LOCAL_CONTROL
    return ip.packed[1] & 0xF > LINK_SCOPE


def _all_routers(group: Gid) -> Gid:
    """Return the group of all routers (RFC 4391 §12): routers forward the groups that no host on the link
    has joined."""
    parts = mgid.parse_untrusted(group)  # we made this MGID
    return mgid.of_group(ALL_ROUTERS[parts.family], parts.pkey, parts.scope)


def _next_hop(waiting: Packet) -> IpAddress | None:
    return waiting.next_hop if isinstance(waiting, SendPacket) else None


def _is_moved(waiting: Packet, is_affected: Callable[[IpAddress], bool]) -> bool:
    """Return whether a change of routes affects the packet's destination."""
    goal = destination_of(waiting.packet) if isinstance(waiting, SendPacket) else None
    return goal is not None and is_affected(goal)


def _bytes_of(waiting: Packet) -> bytes:
    return waiting.packet if isinstance(waiting, SendPacket) else waiting.frame


def _held(wanted: Publish) -> Publish:
    return Publish(wanted.next_hop, NeighAction.HOLD, None, wanted.mtu_bytes)


def _routed(effect: Effect, path: SaPath) -> Effect:
    """Return the effect with the SA's path in place of the link's common parameters; its queue pair
    stays."""
    match effect:
        case Publish(destination=Destination(qpn=qpn), mtu_bytes=mtu_bytes):
            destination = replace(path.destination, qpn=qpn)
            narrowest = min(mtu_bytes, path.mtu_bytes)
            return replace(effect, destination=destination, mtu_bytes=narrowest)
        case SendFrame(Destination(qpn=qpn)):
            return replace(effect, destination=replace(path.destination, qpn=qpn))
    return effect
