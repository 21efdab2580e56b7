# SPDX-License-Identifier: BSD-2-Clause
"""The neighbour cache of IPv4 and IPv6: entries, waiting packets, eviction.

The table in `nud` decides, and `Neighbours` carries its actions out. Resolvers send ARP and ND messages.
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from ipoibu.base.addr import Gid, HwAddr, IpAddress, Qpn
from ipoibu.base.errors import BadFrame, UsageError
from ipoibu.base.limits import (
    MAX_RANDOM_FACTOR,
    MIN_RANDOM_FACTOR,
    NEIGH_EVICTED_AT_ONCE,
    NEIGH_MAX,
    NEIGH_PENDING_BYTES,
    NEIGH_PENDING_TOTAL_BYTES,
    NEIGH_PERMANENT_MAX,
    NEIGH_REFUSALS_MAX,
    NEIGH_SUSPECTED_AT_ONCE,
    RESOLUTION_REPEATS_BURST,
    RESOLUTION_REPEATS_PER_S,
    ROUTE_GATEWAYS_MAX,
)
from ipoibu.proto.context import EngineContext, FrameSource, Resolver
from ipoibu.proto.effects import Answered, Forward, NeighAction, Publish, SendPacket, Withdraw
from ipoibu.proto.machine.ratelimit import TokenBucket
from ipoibu.proto.machine.table import Machine
from ipoibu.proto.machine.transition import Topic, step
from ipoibu.proto.machine.waiting import Waiting
from ipoibu.proto.neigh.nud import (
    DURATION_S,
    EVICTABLE,
    EVIDENCE,
    MACHINE,
    ROUTER_DURATION_S,
    SOLICITATIONS,
    Action,
    Cached,
    Input,
    State,
)
from ipoibu.wire.ip import destination_of, parse_untrusted


@dataclass(frozen=True, slots=True)
class NeighInfo:
    """A neighbour as `ipoibu neigh` shows it; `age_s` counts from the last change of state."""

    ip: IpAddress
    hwaddr: HwAddr | None
    state: State
    age_s: float
    probes: int
    pending: int
    is_router: bool


_QueuePair = tuple[Qpn, Gid]


@dataclass(slots=True)
class _Entry:
    ip: IpAddress
    state: State
    since: float
    hwaddr: HwAddr | None = None
    probes: int = 0
    confirmed: bool = False  # it has answered, at some time
    is_router: bool = False
    published: NeighAction | None = None
    refusals: int = 0  # by the pump, in a row
    owner: _QueuePair | None = None  # as `Neighbours._owners` has it
    answered_from: _QueuePair | None = None  # the last time that it answered


class Neighbours:
    """Every neighbour of one link; `refuse(now, ip, packet)` answers a packet whose next hop is dead.

    The cache has at most `cap` entries. The entry least recently confirmed makes room, and entries never
    confirmed go first, so that unknown peers which introduce themselves can only push out each other.
    """

    def __init__(
        self,
        context: EngineContext,
        resolvers: Mapping[int, Resolver],
        refuse: Callable[[float, IpAddress, bytes], None],
        cap: int = NEIGH_MAX,
    ) -> None:
        self._context = context
        self._resolvers = resolvers
        self._refuse = refuse
        self._cap = cap
        self._machine = Machine(MACHINE, context.timers, self._ring)
        self._entries: dict[IpAddress, _Entry] = {}
        self._strangers: OrderedDict[IpAddress, None] = OrderedDict()  # evictable, never confirmed
        # Evictable entries that were confirmed, the oldest first.
        self._known: OrderedDict[IpAddress, None] = OrderedDict()
        self._owners: dict[_QueuePair, dict[IpAddress, None]] = {}  # of the REACHABLE entries
        self._permanent: set[IpAddress] = set()
        self._unsettled: dict[IpAddress, None] = {}  # the INCOMPLETE and the FAILED entries
        self._pending: Waiting[IpAddress, bytes] = Waiting(
            NEIGH_PENDING_BYTES, NEIGH_PENDING_TOTAL_BYTES, self._note_pushed_out
        )
        self._repeats = TokenBucket(RESOLUTION_REPEATS_PER_S, RESOLUTION_REPEATS_BURST)
        self._gateways: set[IpAddress] = set()  # of our host's routes
        self.on_failed: Callable[[float, IpAddress], None] = lambda now, ip: None
        """Called at the end of a resolution or verification without an answer."""
        self.on_answered: Callable[[float, IpAddress], None] = lambda now, ip: None
        """Called at the end of one with an answer."""
        self.is_pinged: Callable[[IpAddress], bool] = lambda ip: False

    def __len__(self) -> int:
        return len(self._entries)

    def miss(self, now: float, ip: IpAddress, packet: bytes) -> None:
        """Take a packet for a neighbour that the pump does not know."""
        self._feed(now, ip, Input.MISS, packet=packet)

    def note_wanted(self, now: float, ip: IpAddress) -> None:
        """Resolve `ip` although no packet waits: the pump sends by another next hop meanwhile."""
        entry = self._entries.get(ip)
        if entry is None or entry.state is State.PERMANENT:
            self._feed(now, ip, Input.MISS)
        entry = self._entries.get(ip)
        if entry is not None and entry.published is None:
            self._publish(entry, NeighAction.HOLD)

    def note_used(self, now: float, ip: IpAddress) -> None:
        """The pump used a NOTIFY entry."""
        self._feed(now, ip, Input.USED)

    def note_refused(self, now: float, ip: IpAddress, error: int) -> None:
        """The pump refused the entry of `ip`: make room for it, strangers first, and publish it again.

        If that does not help, the fault is the address's own, and the engine forgets the neighbour.
        """
        text = f"no room in the data path for {ip}, of {len(self)} neighbours: {os.strerror(error)}"
        self._context.warn("neigh_refused", now, text)
        entry = self._entries.get(ip)
        if entry is None or entry.published is None:
            return
        entry.refusals += 1
        if entry.refusals <= NEIGH_REFUSALS_MAX and self._make_room(now, ip, error):
            self._publish(entry, entry.published)
        elif entry.state in EVICTABLE:
            self._feed(now, ip, Input.EVICTED)

    def note_introduced(self, now: float, ip: IpAddress, hwaddr: HwAddr) -> None:
        """A peer asked us and gave its own address, so it may get an entry. RFC 826, RFC 4861 §7.2.3."""
        if ip in self._entries:
            self.note_advertised(now, ip, hwaddr, solicited=False, override=True)
        else:
            self._feed(now, ip, Input.INTRODUCED, hwaddr=hwaddr)

    def note_advertised(
        self, now: float, ip: IpAddress, hwaddr: HwAddr | None, *, solicited: bool, override: bool
    ) -> bool:
        """Take an advertisement of any kind; with `hwaddr` None it confirms the address that we have.

        Return whether the rest of the advertisement is valid, too.
        """
        if solicited and self.is_pinged(ip):
            self._context.emit(Answered(ip, hwaddr))
        entry = self._entries.get(ip)
        cached = Cached.NOTHING
        if entry is not None and entry.hwaddr is not None:
            cached = Cached.OTHER
            if hwaddr is None or entry.hwaddr.same_queue_pair(hwaddr):
                cached = Cached.SAME
                entry.hwaddr = hwaddr or entry.hwaddr  # the flags may be new (A6)
        elif hwaddr is None:
            self._context.count("nd_no_lladdr")  # RFC 4861 §7.2.5: no entry to confirm
            return False
        fed = EVIDENCE[solicited, override, cached]
        self._feed(now, ip, fed, hwaddr=hwaddr)
        return fed is not Input.DISPUTED

    def suspect(self, now: float, ip: IpAddress, prober: HwAddr) -> None:
        """The host `prober` probes for `ip`. A probe proves nothing (RFC 5227 §2.1), but if the prober is
        not the host in our entry, that host has probably restarted with a new queue pair (A5)."""
        entry = self._entries.get(ip)
        if entry is not None and entry.hwaddr and not entry.hwaddr.same_queue_pair(prober):
            self._feed(now, ip, Input.SUSPECTED)

    def solicit(self, now: float, ip: IpAddress, known: HwAddr | None) -> None:
        """Ask for `ip` once, whatever the state of its entry."""
        self._resolvers[ip.version].solicit(now, ip, known, None)

    def hwaddr(self, ip: IpAddress) -> HwAddr | None:
        """Return the address that we have for `ip`, confirmed or not."""
        entry = self._entries.get(ip)
        return entry.hwaddr if entry else None

    def has_answered(self, ip: IpAddress) -> bool:
        """Return whether the neighbour has ever answered, as long as it has its entry."""
        entry = self._entries.get(ip)
        return entry is not None and entry.confirmed

    def has_answered_from(self, ip: IpAddress, hwaddr: HwAddr | None) -> bool:
        """Return whether the neighbour's last answer gave that address: others may speak in its name."""
        entry = self._entries.get(ip)
        if entry is None or hwaddr is None:
            return False
        return entry.answered_from == (hwaddr.qpn, hwaddr.gid)

    def is_asked(self, ip: IpAddress) -> bool:
        """Return whether we wait for an answer about `ip`."""
        entry = self._entries.get(ip)
        return entry is not None and entry.state in SOLICITATIONS

    def refuses(
        self, now: float, ip: IpAddress, hwaddr: HwAddr, source: FrameSource, *, is_answer: bool
    ) -> bool:
        """Return whether to refuse a message about `ip` because it names a host other than its sender.

        A proxy may answer our question about another host; no other host has a reason to.
        """
        if not source.contradicts(hwaddr):
            return False
        if is_answer and self.is_asked(ip):
            self._context.count("neigh_proxied")
            return False
        text = f"message about {ip} names {hwaddr}, but comes from {source}"
        self._context.warn("neigh_contradiction", now, text)
        return True

    def set_router(self, ip: IpAddress, is_router: bool) -> bool:
        """Note the neighbour's Router flag; return whether it has just ceased to be a router (§7.2.5)."""
        entry = self._entries.get(ip)
        if entry is None:
            return False
        ceased = entry.is_router and not is_router
        entry.is_router = is_router
        return ceased

    def set_gateway(self, now: float, ip: IpAddress, is_used: bool) -> None:
        """Note whether a route of our host leads to `ip`: our host has to notice soon that it is dead.

        Of more than ROUTE_GATEWAYS_MAX it notices that as late as of any neighbour.
        """
        if not is_used:
            self._gateways.discard(ip)
            return
        if len(self._gateways) >= ROUTE_GATEWAYS_MAX and ip not in self._gateways:
            self._context.count("gateway_table_full")
            return
        self._gateways.add(ip)
        entry = self._entries.get(ip)
        if entry is not None and entry.state in ROUTER_DURATION_S:
            self._arm(now, entry)

    def is_gateway(self, ip: IpAddress) -> bool:
        """Return whether a route of our host leads to `ip`."""
        return ip in self._gateways

    def source_ready(self, now: float, version: int) -> None:
        """An address to ask from became ours: solicit at once all neighbours for which packets wait."""
        waiting = [
            entry
            for entry in self._entries.values()
            if entry.state is State.INCOMPLETE and entry.ip.version == version
        ]
        for entry in waiting:
            entry.probes = 0
            self._feed(now, entry.ip, Input.SOURCE_READY)

    def note_rerouted(self, now: float, is_affected: Callable[[IpAddress], bool]) -> None:
        """Routes have changed: packets to affected destinations may wait for the wrong next hop, and that a
        neighbour did not answer may be due to the old routes."""
        for ip in list(self._unsettled):
            entry = self._entries[ip]
            is_failed = entry.state is State.FAILED
            reached = (ip,) if is_failed else map(destination_of, self._pending.of(ip))
            if any(it is not None and is_affected(it) for it in reached):
                self._feed(now, ip, Input.REROUTED)

    def flush(self, now: float) -> None:
        """Forget all neighbours: the link is down, and queue pairs are volatile (A5)."""
        for ip in list(self._entries):
            self._feed(now, ip, Input.FLUSHED)

    # ---- entries that an administrator changes

    def pin(self, now: float, ip: IpAddress, hwaddr: HwAddr, *, replaces: bool) -> None:
        """Set a permanent entry; `UsageError` if there is an entry and we may not replace it, or if there
        are too many."""
        entry = self._entries.get(ip)
        if entry is not None and not replaces:
            raise UsageError(
                f"{ip} has an entry ({entry.state.value}): replace it, or remove it first"
            )
        if ip not in self._permanent and len(self._permanent) >= NEIGH_PERMANENT_MAX:
            raise UsageError(f"{ip}: there are {NEIGH_PERMANENT_MAX} permanent entries: remove one")
        if entry is not None:
            entry.hwaddr = None  # so that the new one is no news of a peer
        self._feed(now, ip, Input.PINNED, hwaddr=hwaddr)
        if ip not in self._entries:
            raise UsageError(f"{ip}: all {self._cap} neighbours are in use")
        self._permanent.add(ip)

    def remove(self, now: float, ip: IpAddress) -> None:
        """Remove the entry, permanent or not; `UsageError` if there is none."""
        if ip not in self._entries:
            raise UsageError(f"{ip} has no entry")
        self._feed(now, ip, Input.REMOVED)

    def clear(self, now: float, *, permanent: bool) -> None:
        """Remove all entries, the permanent ones only if `permanent`."""
        removed = self._entries.keys() - (set() if permanent else self._permanent)
        for ip in sorted(removed, key=str):
            self._feed(now, ip, Input.REMOVED)

    def ips(self) -> list[IpAddress]:
        return list(self._entries)

    def snapshot(self, now: float, ips: Iterable[IpAddress] | None = None) -> Iterator[NeighInfo]:
        """Yield all neighbours, or those of `ips` that have an entry."""
        for ip in self._entries if ips is None else ips:
            entry = self._entries.get(ip)
            if entry is None:
                continue
            yield NeighInfo(
                entry.ip,
                entry.hwaddr,
                entry.state,
                now - entry.since,
                entry.probes,
                self._pending.count(ip),
                entry.is_router,
            )

    def _feed(
        self,
        now: float,
        ip: IpAddress,
        fed: Input,
        *,
        packet: bytes = b"",
        hwaddr: HwAddr | None = None,
    ) -> None:
        """Make one step of one neighbour; `packet` comes with a miss, `hwaddr` with evidence."""
        entry = self._entries.get(ip)
        if entry is None:
            if MACHINE.ignores(State.NONE, fed):
                return
            entry = self._create(now, ip)
            if entry is None:
                self._context.count("neigh_table_full")
                return
        former = entry.hwaddr
        before, actions = self._machine.feed(entry, ip, fed)
        if entry.state is not before:
            entry.since, entry.probes = now, 0
            self._unsettled.pop(ip, None)
            if entry.state in (State.INCOMPLETE, State.FAILED):
                self._unsettled[ip] = None
        self._rank(entry, fed)
        for action in actions:
            self._act(now, entry, action, packet, hwaddr)
        self._note_owner(entry)
        if entry.state is not before or entry.hwaddr != former:
            after = entry.state
            replaced = former if entry.hwaddr != former else None
            self._context.observe(
                step(Topic.NEIGHBOUR, ip, before, after, fed, hwaddr=entry.hwaddr, former=replaced)
            )
            if replaced is not None and entry.hwaddr is not None:
                self._suspect_others(now, replaced, entry.hwaddr)
        if fed is Input.EXHAUSTED:
            self.on_failed(now, ip)
        elif fed in (Input.CONFIRMED, Input.REPLACED):
            self.on_answered(now, ip)

    def _act(  # noqa: PLR0912, one case an action
        self, now: float, entry: _Entry, action: Action, packet: bytes, hwaddr: HwAddr | None
    ) -> None:
        match action:
            case Action.QUEUE:
                self._queue(entry, packet)
            case Action.RESEND if packet:
                self._context.emit(SendPacket(packet, entry.ip))
            case Action.REFUSE:
                self._refuse(now, entry.ip, packet)
            case Action.RECORD:
                self._record(entry, hwaddr)
            case Action.SEND:
                self._publish(entry, NeighAction.SEND)
            case Action.NOTIFY:
                self._publish(entry, NeighAction.NOTIFY)
            case Action.BLOCK:
                self._publish(entry, NeighAction.UNREACHABLE)
            case Action.RELEASE:
                for waiting in self._pending.take(entry.ip):
                    self._context.emit(SendPacket(waiting, entry.ip))
            case Action.REJECT:
                for waiting in self._pending.take(entry.ip):
                    self._context.count("neigh_unresolved")
                    self._refuse(now, entry.ip, waiting)
            case Action.REROUTE:
                rerouted = self._pending.take(entry.ip)
                if entry.published is NeighAction.HOLD:
                    self._withdraw(entry)  # a packet that comes here again must find room
                for waiting in rerouted:
                    self._context.emit(Forward(waiting))
            case Action.ASK | Action.PROBE:
                entry.probes += 1
                if action is Action.ASK and not self._may_ask(now, entry):
                    return
                known = entry.hwaddr if action is Action.PROBE else None
                first = next(self._pending.of(entry.ip), None)
                preferred = _source(first) if first is not None else None
                self._resolvers[entry.ip.version].solicit(now, entry.ip, known, preferred)
            case Action.ARM:
                self._arm(now, entry)
            case Action.REVALIDATE:
                if entry.hwaddr is not None:
                    self._context.paths.revalidate(now, entry.hwaddr.gid)
            case Action.WITHDRAW:
                self._withdraw(entry)
            case Action.FORGET:
                self._withdraw(entry)
                self._permanent.discard(entry.ip)
                del self._entries[entry.ip]

    def _may_ask(self, now: float, entry: _Entry) -> bool:
        """Return whether to broadcast a question. The pump bounds the first questions about strangers, and
        this bounds further ones: each is a load for the whole link."""
        if entry.probes == 1 or entry.ip in self._gateways or self._repeats.take(now):
            return True
        self._context.count("neigh_repeat_limited")
        return False

    def _record(self, entry: _Entry, hwaddr: HwAddr | None) -> None:
        """Store the address, and count a change: the host has restarted, or an attacker forges answers."""
        if entry.hwaddr is not None and hwaddr is not None:
            self._context.count("neigh_moved")
        entry.hwaddr = hwaddr

    def _note_owner(self, entry: _Entry) -> None:
        confirmed = entry.hwaddr if entry.state is State.REACHABLE else None
        owner = (confirmed.qpn, confirmed.gid) if confirmed is not None else None
        if owner == entry.owner:
            return
        if entry.owner is not None:
            owned = self._owners[entry.owner]
            del owned[entry.ip]
            if not owned:
                del self._owners[entry.owner]
        if owner is not None:
            entry.answered_from = owner
            self._owners.setdefault(owner, {})[entry.ip] = None
        entry.owner = owner

    def _suspect_others(self, now: float, former: HwAddr, hwaddr: HwAddr) -> None:
        """Probe for the other addresses of a queue pair that one has left for another of the same port: the
        host has probably restarted, and may say nothing about those for long."""
        if former.gid != hwaddr.gid or former.qpn == hwaddr.qpn:
            return
        others = list(
            islice(self._owners.get((former.qpn, former.gid), ()), NEIGH_SUSPECTED_AT_ONCE)
        )
        for ip in others:
            self._feed(now, ip, Input.SUSPECTED)

    def _arm(self, now: float, entry: _Entry) -> None:
        duration_s = DURATION_S[entry.state]
        longest = MAX_RANDOM_FACTOR
        if entry.is_router or entry.ip in self._gateways:
            duration_s, longest = ROUTER_DURATION_S.get(entry.state, duration_s), 1.0
        if entry.state is State.REACHABLE:  # RFC 4861 §6.3.2: hosts must not all probe at once
            duration_s *= self._context.rng.uniform(MIN_RANDOM_FACTOR, longest)
        self._machine.arm(entry.ip, now + duration_s)

    def _ring(self, now: float, ip: IpAddress) -> None:
        entry = self._entries[ip]
        limit = SOLICITATIONS.get(entry.state)
        spent = limit is not None and entry.probes >= limit
        self._feed(now, ip, Input.EXHAUSTED if spent else Input.TIMEOUT)

    def _publish(self, entry: _Entry, action: NeighAction) -> None:
        entry.published = action
        sends = action in (NeighAction.SEND, NeighAction.NOTIFY)
        destination = self._context.unicast(entry.hwaddr) if sends and entry.hwaddr else None
        mtu_bytes = self._context.config.mtu_bytes
        hwaddr = entry.hwaddr if destination else None
        self._context.emit(Publish(entry.ip, action, destination, mtu_bytes, hwaddr))

    def _withdraw(self, entry: _Entry) -> None:
        if entry.published is not None:
            entry.published = None
            self._context.emit(Withdraw(entry.ip))

    def _queue(self, entry: _Entry, packet: bytes) -> None:
        """Keep the packet, or drop it.

        By RFC 4861 §7.2.2 the packet would displace the oldest one. Then the pump would have to report
        every packet of a fast sender; with HOLD the pump itself drops the later packets. There is no
        packet if the pump sends by another next hop meanwhile.
        """
        if not packet:
            return
        if self._pending.add(entry.ip, packet, len(packet)):
            return
        self._context.count("neigh_pending_full")
        if entry.published is not NeighAction.HOLD:
            self._publish(entry, NeighAction.HOLD)

    def _note_pushed_out(self, ip: IpAddress, packets: int) -> None:
        self._context.count("neigh_pending_total_full", packets)

    def _create(self, now: float, ip: IpAddress) -> _Entry | None:
        if len(self._entries) >= self._cap and not self._evict(now):
            return None
        entry = self._entries[ip] = _Entry(ip, State.NONE, now)
        return entry

    def _evict(self, now: float) -> bool:
        rank = self._strangers or self._known
        if not rank:
            return False
        evicted = next(iter(rank))
        text = f"no room for a neighbour beside {len(self)} others: forgot {evicted}"
        self._context.warn("neigh_evicted", now, text)
        self._feed(now, evicted, Input.EVICTED)
        return True

    def _make_room(self, now: float, wanted: IpAddress, error: int) -> bool:
        """Evict some strangers other than `wanted`; without any, and at our own cap, one known neighbour."""
        others = (ip for ip in self._strangers if ip != wanted)
        evicted = list(islice(others, NEIGH_EVICTED_AT_ONCE))
        if not evicted and error == errno.ENOSPC:
            evicted = list(islice((ip for ip in self._known if ip != wanted), 1))
        for ip in evicted:
            self._context.count("neigh_evicted")
            self._feed(now, ip, Input.EVICTED)
        return bool(evicted)

    def _rank(self, entry: _Entry, fed: Input) -> None:
        """Keep the two orders of eviction: a new confirmation moves an entry to the far end."""
        proven = fed in (Input.CONFIRMED, Input.REPLACED)
        entry.confirmed |= proven
        entry.refusals = 0 if proven else entry.refusals
        if entry.state not in EVICTABLE or proven:
            self._strangers.pop(entry.ip, None)
            self._known.pop(entry.ip, None)
        if entry.state in EVICTABLE:
            rank = self._known if entry.confirmed else self._strangers
            rank.setdefault(entry.ip)


def _source(packet: bytes) -> IpAddress | None:
    """Return the source of a waiting packet; our own host made the packet, but it may hold any bytes."""
    try:
        return parse_untrusted(packet).source
    except BadFrame:
        return None
