# SPDX-License-Identifier: BSD-2-Clause
"""Multicast groups: receiving, per MGID (`MEMBERSHIP`), and sending, per IP group (`SENDING`).

Several IP groups can share one MGID (RFC 4391 §4 keeps the low 80 bits of an IPv6 group). So the
membership counts the users of all IP groups of an MGID, while the pump looks a destination up by its IP
address. Without a subnet administrator sending needs no join: the group has the broadcast group's
parameters.

Receiving                                          Sending
    NONE       no user                                 NONE       the pump reports a miss
    PARKED     has users, but the link is not up       QUIET      not used since it was published
    JOINING    we asked the fabric                    BUSY       used since then
    MEMBER     the fabric receives it                  PERMANENT  255.255.255.255
    BACKOFF    refused; we ask again in 1, 2 .. 16 s
    LINGERING  no users, kept for a second (M4)

A send-only group goes after one to two idle times without use (M8): the first idle time turns BUSY into
QUIET and makes the pump report the next use, the second withdraws the group.
"""

from __future__ import annotations

import enum
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from typing import Final

from ipoibu.base.addr import Gid, IpAddress
from ipoibu.base.limits import (
    GROUP_BACKOFF_MAX_S,
    GROUP_BACKOFF_MIN_S,
    GROUP_LEAVE_DELAY_S,
    GROUP_SEND_ONLY_IDLE_S,
    GROUPS_MAX,
)
from ipoibu.proto.context import EngineContext
from ipoibu.proto.effects import Attach, Detach, NeighAction, Publish, SendPacket, Withdraw
from ipoibu.proto.machine.backoff import Backoff
from ipoibu.proto.machine.table import Machine, Table
from ipoibu.proto.machine.transition import Topic, step
from ipoibu.wire.mgid import LIMITED_BROADCAST, solicited_node
from ipoibu.wire.ndisc import ALL_NODES


class Member(enum.Enum):
    NONE = "none"
    PARKED = "parked"
    JOINING = "joining"
    MEMBER = "member"
    BACKOFF = "backoff"
    LINGERING = "lingering"


class MemberInput(enum.Enum):
    WANTED = "the first user joined"
    UNWANTED = "the last user left"
    OPENED = "the link is up"
    CLOSED = "the link is down"
    ATTACHED = "the fabric receives the group"
    REFUSED = "the fabric refuses the group"
    TIMEOUT = "the state's time is over"


class MemberAction(enum.Enum):
    ATTACH = "have the fabric receive the group"
    DETACH = "have the fabric stop receiving it"
    COMPLAIN = "count the refusal"
    SETTLE = "forget earlier refusals"
    ARM = "start the state's timer"


_M, _MI, _MA = Member, MemberInput, MemberAction

# The fabric may answer late, so its answers have a row in every state. fmt: off
MEMBERSHIP: Final = Table(
    "Group, receiving",
    Member.NONE,
    {
        (_M.NONE, _MI.WANTED): (_M.PARKED, ()),
        (_M.NONE, _MI.ATTACHED): (_M.NONE, ()),
        (_M.NONE, _MI.REFUSED): (_M.NONE, ()),
        (_M.PARKED, _MI.UNWANTED): (_M.NONE, ()),
        (_M.PARKED, _MI.OPENED): (_M.JOINING, (_MA.ATTACH,)),
        (_M.PARKED, _MI.CLOSED): (_M.PARKED, ()),
        (_M.PARKED, _MI.ATTACHED): (_M.PARKED, ()),
        (_M.PARKED, _MI.REFUSED): (_M.PARKED, ()),
        (_M.JOINING, _MI.UNWANTED): (_M.LINGERING, (_MA.ARM,)),
        (_M.JOINING, _MI.CLOSED): (_M.PARKED, (_MA.DETACH,)),
        (_M.JOINING, _MI.ATTACHED): (_M.MEMBER, (_MA.SETTLE,)),
        (_M.JOINING, _MI.REFUSED): (_M.BACKOFF, (_MA.COMPLAIN, _MA.ARM)),
        (_M.MEMBER, _MI.UNWANTED): (_M.LINGERING, (_MA.ARM,)),
        (_M.MEMBER, _MI.CLOSED): (_M.PARKED, (_MA.DETACH,)),
        (_M.MEMBER, _MI.ATTACHED): (_M.MEMBER, ()),
        (_M.MEMBER, _MI.REFUSED): (_M.BACKOFF, (_MA.COMPLAIN, _MA.ARM)),
        (_M.BACKOFF, _MI.UNWANTED): (_M.NONE, ()),
        (_M.BACKOFF, _MI.CLOSED): (_M.PARKED, ()),
        (_M.BACKOFF, _MI.ATTACHED): (_M.MEMBER, (_MA.SETTLE,)),
        (_M.BACKOFF, _MI.REFUSED): (_M.BACKOFF, ()),
        (_M.BACKOFF, _MI.TIMEOUT): (_M.JOINING, (_MA.ATTACH,)),
        (_M.LINGERING, _MI.WANTED): (_M.MEMBER, ()),
        (_M.LINGERING, _MI.CLOSED): (_M.NONE, (_MA.DETACH,)),
        (_M.LINGERING, _MI.ATTACHED): (_M.LINGERING, ()),
        (_M.LINGERING, _MI.REFUSED): (_M.NONE, ()),
        (_M.LINGERING, _MI.TIMEOUT): (_M.NONE, (_MA.DETACH,)),
    },
)
# fmt: on


class Sender(enum.Enum):
    NONE = "none"
    QUIET = "quiet"
    BUSY = "busy"
    PERMANENT = "permanent"


class SenderInput(enum.Enum):
    MISS = "the pump has no entry for a packet"
    USED = "the pump used a NOTIFY entry"
    PINNED = "the link is up"
    TIMEOUT = "the idle time is over"
    DROPPED = "the link is down, or the table is full"


class SenderAction(enum.Enum):
    SEND = "publish SEND"
    NOTIFY = "publish NOTIFY"
    RESEND = "send the packet"
    ARM = "start the idle timer"
    FORGET = "withdraw the entry, and remove it"


_S, _SI, _SA = Sender, SenderInput, SenderAction

# fmt: off
SENDING: Final = Table("Group, sending", Sender.NONE, {
    (_S.NONE, _SI.MISS):         (_S.QUIET, (_SA.NOTIFY, _SA.RESEND, _SA.ARM)),
    (_S.NONE, _SI.USED):         (_S.NONE, ()),
    (_S.NONE, _SI.PINNED):       (_S.PERMANENT, (_SA.SEND,)),
    (_S.QUIET, _SI.MISS):        (_S.QUIET, (_SA.NOTIFY, _SA.RESEND)),
    (_S.QUIET, _SI.USED):        (_S.BUSY, (_SA.ARM,)),
    (_S.QUIET, _SI.TIMEOUT):     (_S.NONE, (_SA.FORGET,)),
    (_S.QUIET, _SI.DROPPED):     (_S.NONE, (_SA.FORGET,)),
    (_S.BUSY, _SI.MISS):         (_S.BUSY, (_SA.SEND, _SA.RESEND)),
    (_S.BUSY, _SI.USED):         (_S.BUSY, ()),
    (_S.BUSY, _SI.TIMEOUT):      (_S.QUIET, (_SA.NOTIFY, _SA.ARM)),
    (_S.BUSY, _SI.DROPPED):      (_S.NONE, (_SA.FORGET,)),
    (_S.PERMANENT, _SI.MISS):    (_S.PERMANENT, (_SA.SEND, _SA.RESEND)),
    (_S.PERMANENT, _SI.USED):    (_S.PERMANENT, ()),
    (_S.PERMANENT, _SI.DROPPED): (_S.NONE, (_SA.FORGET,)),
})
# fmt: on


class Kind(enum.Enum):
    FULL = "full"
    SEND_ONLY = "send-only"


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group as `ipoibu mcast` shows it; `idle_s` counts from the last known send to it, or is None."""

    mgid: Gid
    ips: tuple[IpAddress, ...]
    state: Member
    kind: Kind
    users: int
    idle_s: float | None


@dataclass(slots=True)
class _Group:
    mgid: Gid
    state: Member = Member.NONE
    users: Counter[IpAddress] = field(default_factory=Counter)
    backoff: Backoff = field(
        default_factory=lambda: Backoff(GROUP_BACKOFF_MIN_S, GROUP_BACKOFF_MAX_S)
    )


@dataclass(slots=True)
class _Sender:
    mgid: Gid
    state: Sender
    since: float


class Groups:
    """All groups of one link: at most `cap` IP groups to receive, and at most as many to send to.

    `join` refuses a group beyond the cap, because only our own host and its guests ask for it. The cap is
    for IP groups, because any number of them can share one MGID. Of the groups that the host sends to, the
    group used longest ago makes room, because the next packet brings it back.
    """

    def __init__(self, context: EngineContext, cap: int = GROUPS_MAX) -> None:
        self._context = context
        self._cap = cap
        self._membership = Machine(MEMBERSHIP, context.timers, self._ring)
        self._sending = Machine(SENDING, context.timers, self._ring_sender)
        self._groups: dict[Gid, _Group] = {}
        self._joined = 0  # IP groups
        self._senders: OrderedDict[IpAddress, _Sender] = OrderedDict()  # least recently used first
        self._is_open = False

    def __len__(self) -> int:
        return len(self._groups)

    def join(self, now: float, ip: IpAddress) -> bool:
        """Add a user of the group; False (counted, logged) when there are too many groups."""
        mgid = self._context.mgid(ip)
        group = self._groups.get(mgid)
        is_new = group is None or ip not in group.users
        is_full = self._joined >= self._cap or (group is None and len(self._groups) >= self._cap)
        if is_new and is_full:
            text = f"cannot join group {ip}: the interface has joined {self._cap} groups"
            self._context.warn("group_table_full", now, text)
            return False
        self._joined += is_new
        if group is None:
            group = self._groups[mgid] = _Group(mgid)
        was_wanted = bool(group.users)
        group.users[ip] += 1
        if not was_wanted:
            self._feed(now, group, MemberInput.WANTED)
        if self._is_open and group.state is Member.PARKED:
            self._feed(now, group, MemberInput.OPENED)
        return True

    def leave(self, now: float, ip: IpAddress) -> None:
        """Remove a user; the group stays joined for a second, in case a user comes back."""
        group = self._groups.get(self._context.mgid(ip))
        if group is None or not group.users[ip]:
            self._context.count("group_not_joined")
            return
        group.users[ip] -= 1
        if not group.users[ip]:
            del group.users[ip]
            self._joined -= 1
        if not group.users:
            self._feed(now, group, MemberInput.UNWANTED)

    def begin(self, now: float, ip: IpAddress) -> None:
        """Join the broadcast group before the link is up, because the link comes up by this join (B1)."""
        group = self._groups[self._context.mgid(ip)]
        if group.state is Member.PARKED:
            self._feed(now, group, MemberInput.OPENED)

    def open(self, now: float) -> None:
        """The link is up: join all groups that have users, and let broadcasts go out."""
        self._is_open = True
        for group in list(self._groups.values()):
            if group.state is Member.PARKED:
                self._feed(now, group, MemberInput.OPENED)
        self._feed_sender(now, LIMITED_BROADCAST, SenderInput.PINNED)

    def close(self, now: float) -> None:
        """The link is down: leave all groups; they keep their users for the next `open`."""
        self._is_open = False
        for ip in list(self._senders):
            self._feed_sender(now, ip, SenderInput.DROPPED)
        for group in list(self._groups.values()):
            self._feed(now, group, MemberInput.CLOSED)

    def renew(self, only: Gid | None = None) -> None:
        """Ask again for every group that we receive, the broadcast group first (B1), or for `only` one."""
        broadcast = self._context.mgid(LIMITED_BROADCAST)
        members = [
            group.mgid
            for group in self._groups.values()
            if group.state is Member.MEMBER and only in (None, group.mgid)
        ]
        for mgid in sorted(members, key=lambda mgid: mgid != broadcast):
            self._context.emit(Attach(mgid))

    def note_attached(self, now: float, mgid: Gid) -> None:
        if mgid in self._groups:
            self._feed(now, self._groups[mgid], MemberInput.ATTACHED)

    def note_attach_failed(self, now: float, mgid: Gid, reason: str) -> None:
        """The fabric refused the group; `reason` goes to the observer, and so to the log (M6)."""
        if mgid in self._groups:
            self._feed(now, self._groups[mgid], MemberInput.REFUSED, reason)

    def miss(self, now: float, ip: IpAddress, packet: bytes, via: IpAddress | None = None) -> None:
        """Take a packet to a group that is not published. `via` is the group whose MGID to use, if not that
        of `ip`: a subnet's broadcast address uses the MGID of 255.255.255.255."""
        self._feed_sender(now, ip, SenderInput.MISS, packet, via or ip)

    def note_used(self, now: float, ip: IpAddress) -> None:
        self._feed_sender(now, ip, SenderInput.USED)

    def withdraw(self, now: float, ip: IpAddress) -> None:
        """Stop sending to `ip` as a group."""
        if ip in self._senders:
            self._feed_sender(now, ip, SenderInput.DROPPED)

    def is_member(self, ip: IpAddress) -> bool:
        group = self._groups.get(self._context.mgid(ip))
        return group is not None and group.state is Member.MEMBER

    def has_groups_of(self, address: IpAddress) -> bool:
        """Return whether we receive the groups in which an owner of `address` would object to us."""
        if isinstance(address, IPv4Address):
            return True  # ARP uses the broadcast group, and the link is up
        return all(self.is_member(group) for group in (ALL_NODES, solicited_node(address)))

    def snapshot(self, now: float) -> Iterator[GroupInfo]:
        sent: dict[Gid, dict[IpAddress, float]] = {}
        for ip, sender in self._senders.items():
            if sender.state is not Sender.PERMANENT:  # the pump does not report its use
                sent.setdefault(sender.mgid, {})[ip] = now - sender.since
        for mgid in dict.fromkeys([*self._groups, *sent]):
            group = self._groups.get(mgid) or _Group(mgid)
            idle = sent.get(mgid, {})
            yield GroupInfo(
                mgid,
                tuple(dict.fromkeys([*group.users, *idle])),
                group.state,
                Kind.FULL if mgid in self._groups else Kind.SEND_ONLY,
                group.users.total(),
                min(idle.values(), default=None),
            )

    def _feed(self, now: float, group: _Group, fed: MemberInput, reason: str = "") -> None:
        before, actions = self._membership.feed(group, group.mgid, fed)
        if group.state is not before:
            detail = Kind.FULL.value
            transition = step(Topic.GROUP, group.mgid, before, group.state, fed, detail=detail)
            self._context.observe(replace(transition, cause=reason or transition.cause))
        for action in actions:
            match action:
                case MemberAction.ATTACH:
                    self._context.emit(Attach(group.mgid))
                case MemberAction.DETACH:
                    self._context.emit(Detach(group.mgid))
                case MemberAction.COMPLAIN:
                    self._context.count("group_join_refused")
                case MemberAction.SETTLE:
                    group.backoff.reset()
                case MemberAction.ARM:
                    self._membership.arm(group.mgid, now + self._wait_s(group))
        if group.state is Member.NONE:
            del self._groups[group.mgid]

    def _ring(self, now: float, mgid: Gid) -> None:
        self._feed(now, self._groups[mgid], MemberInput.TIMEOUT)

    def _wait_s(self, group: _Group) -> float:
        is_lingering = group.state is Member.LINGERING
        return GROUP_LEAVE_DELAY_S if is_lingering else group.backoff.next_s()

    def _feed_sender(
        self,
        now: float,
        ip: IpAddress,
        fed: SenderInput,
        packet: bytes = b"",
        via: IpAddress | None = None,
    ) -> None:
        sender = self._senders.get(ip)
        if sender is None:
            if SENDING.ignores(Sender.NONE, fed):
                return
            self._make_room(now)
            sender = _Sender(self._context.mgid(via or ip), Sender.NONE, now)
            self._senders[ip] = sender
        before, actions = self._sending.feed(sender, ip, fed)
        if Sender.NONE in (before, sender.state) and sender.state is not before:
            detail = Kind.SEND_ONLY.value
            self._context.observe(
                step(Topic.GROUP, sender.mgid, before, sender.state, fed, detail=detail)
            )
        if fed is not SenderInput.TIMEOUT:
            sender.since = now
            self._senders.move_to_end(ip)
        for action in actions:
            match action:
                case SenderAction.SEND:
                    self._publish(ip, sender, NeighAction.SEND)
                case SenderAction.NOTIFY:
                    self._publish(ip, sender, NeighAction.NOTIFY)
                case SenderAction.RESEND:
                    self._context.emit(SendPacket(packet, ip))
                case SenderAction.ARM:
                    self._sending.arm(ip, now + GROUP_SEND_ONLY_IDLE_S)
                case SenderAction.FORGET:
                    self._context.emit(Withdraw(ip))
                    del self._senders[ip]

    def _ring_sender(self, now: float, ip: IpAddress) -> None:
        self._feed_sender(now, ip, SenderInput.TIMEOUT)

    def _publish(self, ip: IpAddress, sender: _Sender, action: NeighAction) -> None:
        destination = self._context.group(sender.mgid)
        self._context.emit(Publish(ip, action, destination, self._context.config.mtu_bytes))

    def _make_room(self, now: float) -> None:
        if len(self._senders) < self._cap:
            return
        for ip, sender in self._senders.items():
            if sender.state is not Sender.PERMANENT:
                self._context.count("group_sender_evicted")
                self._feed_sender(now, ip, SenderInput.DROPPED)
                return
