# SPDX-License-Identifier: BSD-2-Clause
"""The DHCP client of one interface: RFC 2131 over IP over InfiniBand (RFC 4390), sans-IO.

D1: every message has hardware type 32, length 0 and a client identifier; `wire.dhcp` writes the first two.
D2: until the address is ours, the client asks for replies by broadcast: a server cannot send to a host
without an address whose hardware address it does not get.

The client's messages to all servers go to the broadcast group; one to the server of its lease goes as any
packet of the host, by its routes. `Addresses` probes for the address before it is ours (RFC 5227),
whatever the policy of the interface's other addresses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface
from typing import Any, Final

from ipoibu.base.errors import BadFrame
from ipoibu.base.limits import (
    DHCP_LINK_MTU,
    DHCP_PAUSE_S,
    DHCP_RELEASE_S,
    DHCP_RENEW_JITTER,
    DHCP_RENEW_RETRY_S,
    DHCP_RETRY_JITTER_S,
    DHCP_RETRY_MAX_S,
    DHCP_RETRY_MIN_S,
)
from ipoibu.proto.context import Dad, DhcpIdentity, EngineContext
from ipoibu.proto.dhcp.grant import Granted, LeaseStatus
from ipoibu.proto.dhcp.holder import LeaseHolder, Terms
from ipoibu.proto.dhcp.state import HELD, MACHINE, TRIES, Action, Input, State
from ipoibu.proto.effects import Forward, LeaseChanged
from ipoibu.proto.machine.backoff import Backoff
from ipoibu.proto.neigh.dad import Addresses
from ipoibu.wire import dhcp
from ipoibu.wire.dhcp import Code, Kind, Message, Op, Option, Packet
from ipoibu.wire.dhcp_lease import PARAMETERS, Lease
from ipoibu.wire.encap import EtherType
from ipoibu.wire.mgid import LIMITED_BROADCAST

_UNSPECIFIED: Final = IPv4Address("0.0.0.0")
_REPLIES: Final = {Kind.OFFER: Input.OFFER, Kind.ACK: Input.ACK, Kind.NAK: Input.NAK}
_TERMS: Final = Terms(
    waiting=State.WAITING,
    checking=State.CHECKING,
    bound=State.BOUND,
    held=HELD,
    judged=(State.REBOOTING, State.CHECKING, *HELD, State.RELEASING),
    ready=Input.READY,
    recalled=Input.RECALLED,
    link_down=Input.LINK_DOWN,
    stop=Input.STOP,
    refused=Input.NAK,
    spent=Input.SPENT,
    expired=Input.EXPIRED,
    unique=Input.UNIQUE,
    conflict=Input.CONFLICT,
    no_room=Input.NO_ROOM,
)


@dataclass(frozen=True, slots=True)
class Grant(Granted[Lease, Message]):
    """A lease that an acknowledgement or an offer grants."""

    def __post_init__(self) -> None:
        if self.lease != Lease.of_untrusted(self.message):
            raise ValueError("the lease is not that of the message")


@dataclass(frozen=True, slots=True)
class LeaseInfo(LeaseStatus[State, Lease]):
    """The state of the client, and its lease."""


class DhcpClient(LeaseHolder[State, Input, Action, Lease, IPv4Interface]):
    """One client."""

    topic = "dhcp"
    title = "DHCP"
    nameless = "none"

    def __init__(
        self,
        context: EngineContext,
        addresses: Addresses,
        identity: DhcpIdentity,
    ) -> None:
        self._backoff = Backoff(DHCP_RETRY_MIN_S, DHCP_RETRY_MAX_S)
        super().__init__(context, addresses, MACHINE, _TERMS, self._backoff.refusals)
        self._identity = identity
        self._offer: Grant | None = None  # the reply that is fed now
        self._hint: IPv4Address | None = None  # the address that we had: RFC 2131 §3.5
        self._xid = 0
        self._began_s = self._asked_s = 0.0
        self._secs = 0

    # ---- inputs

    def receive_untrusted(self, now: float, packet: bytes) -> bool:
        """Take an IP packet of the link; return whether it is a server's answer to a message of ours."""
        received = dhcp.parse_untrusted(packet)
        if received is None:
            return False
        message = received.message
        is_reply = message.op is Op.REPLY and received.destination_port == dhcp.CLIENT_PORT
        if not is_reply or message.xid != self._xid or not self._names_us(message):
            return False
        kind = message.kind
        fed = _REPLIES.get(kind) if kind is not None else None
        # What changes nothing is not read: our number is no secret, and a message may be long.
        is_awaited = fed is not None and not MACHINE.ignores(self.state, fed)
        if fed is None or not is_awaited or not self._is_valid_untrusted(fed, message):
            self._context.count("dhcp_unexpected")
            return True
        self._feed(now, fed)
        self._offer = None
        return True

    # ---- snapshot

    @property
    def client_id(self) -> bytes:
        return self._identity.client_id

    def info(self, now: float) -> LeaseInfo:
        grant = self._shown
        if grant is None:
            return LeaseInfo(self.state, None, None, None)
        return LeaseInfo(self.state, grant.lease, grant.renewal_s - now, grant.end_s - now)

    # ---- replies

    def _names_us(self, message: Message) -> bool:
        """RFC 6842: a server returns the client identifier; those of before do not."""
        return message.option(Code.CLIENT_ID) in (None, self._identity.client_id)

    def _is_valid_untrusted(self, fed: Input, message: Message) -> bool:
        """Return whether the reply fits what we asked, and keep the lease in it."""
        grant = self._grant
        if fed is Input.NAK:
            server = message.option(Code.SERVER)
            is_chosen = self.state in (State.REQUESTING, State.RENEWING)
            return not is_chosen or grant is None or server in (None, grant.lease.server.packed)
        lease = Lease.of_untrusted(message)
        if fed is Input.ACK and grant is not None:
            if self.state is State.REQUESTING and lease.server != grant.lease.server:
                return False
            if lease.address.ip != grant.lease.address.ip:
                return False
        self._offer = Grant(lease, message, self._asked_s)
        return True

    # ---- the machine

    def _start_over(self) -> None:
        super()._start_over()
        self._backoff.reset()

    def _act(self, now: float, action: Action) -> None:
        match action:
            case Action.BEGIN:
                self._xid = self._context.rng.getrandbits(32)
                self._began_s = now
            case Action.DISCOVER:
                self._secs = self._elapsed(now)
                hint = [] if self._hint is None else [(Code.REQUESTED_ADDRESS, self._hint.packed)]
                self._broadcast(now, Kind.DISCOVER, [*hint, *self._wishes()])
                self._tell_silence(now)
            case Action.TAKE | Action.STORE:
                assert self._offer is not None, "a reply causes this action"
                self._grant = self._offer
            case Action.REQUEST:
                self._request(now)
            case Action.CHECK:
                self._check(now)
            case Action.BIND:
                self._bind(now)
            case Action.RENEW:
                self._secs = self._elapsed(now)
                self._unicast(now, Kind.REQUEST, self._wishes())
            case Action.REBIND:
                self._secs = self._elapsed(now)
                self._broadcast(now, Kind.REQUEST, self._wishes(), source=self._lease.address.ip)
            case Action.DECLINE:
                self._secs = 0
                self._broadcast(now, Kind.DECLINE, [*self._wanted(), *self._chosen()])
                self._hint = None
            case Action.RELEASE:
                self._secs = 0
                self._unicast(now, Kind.RELEASE, self._chosen())
            case Action.LOSE:
                self._leave(now)
                self._grant = None
            case Action.ARM:
                self._arm(now)

    def _request(self, now: float) -> None:
        """RFC 2131 §4.3.2: in REQUESTING the message names the server, in REBOOTING it must not."""
        if self.state is State.REQUESTING:
            options = [*self._wanted(), *self._chosen()]
        else:
            options = [*self._wanted()]
            self._secs = self._elapsed(now)
        self._broadcast(now, Kind.REQUEST, [*options, *self._wishes()])

    # ---- the address

    def _address(self) -> IPv4Interface:
        return self._lease.address

    def _take(self, now: float, interface: IPv4Interface) -> bool:
        return self._addresses.add(now, interface, policy=Dad.ON)

    def _drop(self, now: float, interface: IPv4Interface) -> None:
        self._addresses.remove(interface)

    def _bind(self, now: float) -> None:
        super()._bind(now)
        self._hint = self._lease.address.ip

    def _report(self, grant: Granted[Lease, Any] | None) -> None:
        if grant is None:
            self._context.emit(LeaseChanged(None))
        else:
            self._context.emit(LeaseChanged(grant.lease, grant.since_s, grant.message))

    # ---- the timer

    def _alarm_s(self, now: float) -> float:
        grant = self._grant
        match self.state:
            case State.WAITING:
                return grant.end_s if grant is not None else math.inf
            case State.BOUND if grant is not None:
                return grant.renewal_s
            case State.RENEWING if grant is not None:
                return self._before(now, grant.rebinding_s)
            case State.REBINDING if grant is not None:
                return self._before(now, grant.end_s)
            case State.PAUSED:
                return now + DHCP_PAUSE_S
            case State.RELEASING:
                return now + DHCP_RELEASE_S
        jitter = self._context.rng.uniform(-DHCP_RETRY_JITTER_S, DHCP_RETRY_JITTER_S)
        at = now + self._backoff.next_s() + jitter
        return min(at, grant.end_s) if self.state is State.REBOOTING and grant is not None else at

    def _before(self, now: float, end_s: float) -> float:
        """RFC 2131 §4.4.5: half of the time that is left, but at least a minute, and not after the end."""
        if end_s == math.inf:
            wait_s = DHCP_RENEW_RETRY_S
        else:
            wait_s = max(DHCP_RENEW_RETRY_S, (end_s - now) / 2)
        jitter = self._context.rng.uniform(1 - DHCP_RENEW_JITTER, 1 + DHCP_RENEW_JITTER)
        return min(end_s, now + wait_s * jitter)

    def _expired(self, now: float) -> Input:
        grant = self._grant
        is_over = grant is not None and now >= grant.end_s
        match self.state:
            case State.WAITING:
                return Input.EXPIRED
            case State.BOUND:
                return Input.DUE
            case State.RENEWING if grant is not None and now >= grant.rebinding_s:
                return Input.DUE
            case State.REBINDING | State.REBOOTING if is_over:
                return Input.EXPIRED
        is_spent = self.state in TRIES and self._sent >= TRIES[self.state]
        return Input.SPENT if is_spent else Input.TIMEOUT

    # ---- messages

    def _elapsed(self, now: float) -> int:
        return min(int(now - self._began_s), 0xFFFF)

    def _wanted(self) -> list[Option]:
        return [(Code.REQUESTED_ADDRESS, self._lease.address.ip.packed)]

    def _chosen(self) -> list[Option]:
        return [(Code.SERVER, self._lease.server.packed)]

    def _wishes(self) -> list[Option]:
        """The options of messages that ask for a lease."""
        size = max(self._context.config.mtu_bytes, DHCP_LINK_MTU)
        options: list[Option] = [
            (Code.MAX_MESSAGE_BYTES, min(size, 0xFFFF).to_bytes(2, "big")),
            (Code.PARAMETERS, PARAMETERS),
        ]
        if self._identity.host_name:
            options.append((Code.HOST_NAME, self._identity.host_name.encode("ascii")))
        return options

    def _message(self, kind: Kind, options: list[Option]) -> Message:
        """RFC 2131 §4.4.1, table 5; D1, D2."""
        is_ours = self.state in HELD or kind is Kind.RELEASE
        return Message(
            Op.REQUEST,
            self._xid,
            (
                (Code.MESSAGE_TYPE, bytes((kind,))),
                (Code.CLIENT_ID, self._identity.client_id),
                *options,
            ),
            secs=self._secs,
            flags=0 if is_ours or kind is Kind.DECLINE else dhcp.BROADCAST_FLAG,
            ciaddr=self._lease.address.ip if is_ours else _UNSPECIFIED,
        )

    def _broadcast(
        self,
        now: float,
        kind: Kind,
        options: list[Option],
        source: IPv4Address = _UNSPECIFIED,
    ) -> None:
        self._note_sent(now, kind)
        packet = self._packet(source, LIMITED_BROADCAST, self._message(kind, options))
        group = self._context.group(self._context.mgid(LIMITED_BROADCAST))
        self._context.send(group, EtherType.IPV4, packet)

    def _unicast(self, now: float, kind: Kind, options: list[Option]) -> None:
        self._note_sent(now, kind)
        lease = self._lease
        packet = self._packet(lease.address.ip, lease.server, self._message(kind, options))
        self._context.emit(Forward(packet))

    def _note_sent(self, now: float, kind: Kind) -> None:
        self._sent += 1
        if kind is Kind.REQUEST:
            self._asked_s = now  # RFC 2131 §4.4.1: a lease counts from its request

    @staticmethod
    def _packet(source: IPv4Address, destination: IPv4Address, message: Message) -> bytes:
        return Packet(source, dhcp.CLIENT_PORT, destination, dhcp.SERVER_PORT, message).pack()

    # ---- the log

    def _place(self, lease: Lease) -> str:
        return f"{lease.address} of the server {lease.server}"


def grant_untrusted(raw: bytes, since_s: float) -> Grant:
    """Read the message of a grant that a former client of this interface stored."""
    message = dhcp.message_untrusted(raw)
    if message.kind is not Kind.ACK:
        raise BadFrame("dhcp_lease")
    return Grant(Lease.of_untrusted(message), message, since_s)
