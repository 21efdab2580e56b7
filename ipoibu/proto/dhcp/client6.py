# SPDX-License-Identifier: BSD-2-Clause
"""The DHCPv6 client of one interface: RFC 8415 §18.2, with one non-temporary address, sans-IO.

D3: the client asks from the interface's link-local address, so that it waits until that address has passed
duplicate address detection. All messages go to the multicast group of the servers and relay agents, whatever
a server says (its Server Unicast option is ignored, §18.2.10 leaves that to us). `Addresses` checks the
granted address before it is ours, whatever the policy of the interface's other addresses (D4).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Interface
from typing import Any, Final

from ipoibu.base.addr import IpAddress, IpInterface
from ipoibu.base.errors import BadFrame
from ipoibu.base.limits import (
    DHCP6_DELAY_S,
    DHCP6_JITTER,
    DHCP6_MAX_RT_LEAST_S,
    DHCP6_MAX_RT_MOST_S,
    DHCP6_SOL_MAX_RT_S,
    DHCP_PAUSE_S,
)
from ipoibu.proto.context import Dad, Dhcp6Identity, EngineContext
from ipoibu.proto.dhcp.grant import Granted, LeaseStatus
from ipoibu.proto.dhcp.holder import LeaseHolder, Terms
from ipoibu.proto.dhcp.state6 import HELD, MACHINE, RETRANSMISSIONS, Action, Input, State
from ipoibu.proto.effects import Forward, Lease6Changed
from ipoibu.proto.machine.backoff import Repeats
from ipoibu.proto.neigh.dad import Addresses
from ipoibu.wire import dhcp6, dhcp6_lease
from ipoibu.wire.dhcp6 import Address, Association, Code, Kind, Message, Option, Packet, Status
from ipoibu.wire.dhcp6_lease import WANTED, Lease6

Hold = Callable[[float, IpInterface, Dad], bool]
Leave = Callable[[float, IpInterface], None]

_LINK: Final = IPv6Address("fe80::")
_PREFERENCE_MAX: Final = 255  # §18.2.1: the client waits for no other server
_ASKING: Final = (State.REQUESTING, State.RENEWING, State.REBINDING)
_ENDING: Final = (State.DECLINING, State.RELEASING)
_TERMS: Final = Terms(
    waiting=State.WAITING,
    checking=State.CHECKING,
    bound=State.BOUND,
    held=HELD,
    judged=(State.WAITING, State.REQUESTING, State.CONFIRMING, State.CHECKING, *HELD),
    ready=Input.READY,
    recalled=Input.RECALLED,
    link_down=Input.LINK_DOWN,
    stop=Input.STOP,
    refused=Input.REFUSED,
    spent=Input.SPENT,
    expired=Input.EXPIRED,
    unique=Input.UNIQUE,
    conflict=Input.CONFLICT,
    no_room=Input.NO_ROOM,
)


@dataclass(frozen=True, slots=True)
class Grant6(Granted[Lease6, Message]):
    """A lease that a reply or an advertisement grants."""


@dataclass(frozen=True, slots=True)
class Lease6Info(LeaseStatus[State, Lease6]):
    """The state of the client, and its lease."""


class Dhcp6Client(LeaseHolder[State, Input, Action, Lease6, IPv6Interface]):
    """One client; it begins once a link-local address is usable.

    `hold(now, interface, policy)` has the engine take an address, False if there are too many; `leave` ends
    that.
    """

    topic = "dhcp6"
    title = "DHCPv6"
    nameless = "IPv6"

    def __init__(
        self,
        context: EngineContext,
        addresses: Addresses,
        identity: Dhcp6Identity,
        hold: Hold,
        leave: Leave,
    ) -> None:
        super().__init__(context, addresses, MACHINE, _TERMS, Repeats())
        self._identity = identity
        self._hold_address = hold
        self._leave_address = leave
        self._reply: Grant6 | None = None  # the reply that is fed now
        self._best: tuple[int, Grant6] | None = None  # the best advertisement, and its preference
        self._server = b""  # that is asked, or was the last to answer
        self._wanted: IPv6Address | None = None  # the address that we ask for
        self._longest_s = DHCP6_SOL_MAX_RT_S
        self._is_link_up = False
        self._is_ending = False
        self._xid: int | None = None
        self._began_s = self._asked_s = self._wait_s = 0.0

    # ---- inputs

    def recall(self, grant: Granted[Lease6, Any]) -> None:
        super().recall(grant)
        self._wanted = grant.lease.address.ip

    def link_up(self, now: float) -> None:
        self._is_link_up = True
        super().link_up(now)

    def link_down(self, now: float) -> None:
        self._is_link_up = False
        super().link_down(now)

    def stop(self, now: float) -> None:
        self._is_ending = True
        super().stop(now)

    def note_decided(self, now: float, ip: IpAddress, is_duplicate: bool) -> None:
        super().note_decided(now, ip, is_duplicate)
        if not is_duplicate:
            self._begin(now)

    def receive_untrusted(self, now: float, packet: bytes) -> bool:
        """Take an IP packet of the link; return whether it is a server's answer to a message of ours."""
        received = dhcp6.parse_untrusted(packet)
        if received is None:
            return False
        message = received.message
        is_reply = message.kind in (Kind.ADVERTISE, Kind.REPLY)
        if not is_reply or received.destination_port != dhcp6.CLIENT_PORT:
            return False
        if message.xid != self._xid or message.option(Code.CLIENT_ID) != self._identity.duid:
            return False
        server = dhcp6_lease.server_untrusted(message)
        self._learn_longest_untrusted(message)
        if message.kind is Kind.ADVERTISE and self.state is State.SOLICITING:
            self._note_advertised_untrusted(now, message)
        elif message.kind is Kind.REPLY and self.state in _ASKING:
            self._note_replied_untrusted(now, message, server)
        elif message.kind is Kind.REPLY and self.state is State.CONFIRMING:
            self._note_confirmed_untrusted(now, message)
        elif message.kind is Kind.REPLY and self.state in _ENDING and server == self._server:
            self._feed(now, Input.DONE)
        else:
            self._context.count("dhcp6_unexpected")
        return True

    # ---- snapshot

    @property
    def duid(self) -> bytes:
        return self._identity.duid

    @property
    def iaid(self) -> bytes:
        return self._identity.iaid

    def info(self, now: float) -> Lease6Info:
        grant = self._shown
        if grant is None:
            return Lease6Info(self.state, None, None, None)
        lease = grant.lease.aged(now - grant.since_s)
        return Lease6Info(self.state, lease, grant.renewal_s - now, grant.end_s - now)

    # ---- replies

    def _learn_longest_untrusted(self, message: Message) -> None:
        """§18.2.9, §21.24: of any server, also of one that has no address."""
        value = message.option(Code.SOL_MAX_RT)
        if value is not None:
            seconds = dhcp6.seconds_untrusted(value)
            if DHCP6_MAX_RT_LEAST_S <= seconds <= DHCP6_MAX_RT_MOST_S:
                self._longest_s = float(seconds)

    def _note_advertised_untrusted(self, now: float, message: Message) -> None:
        """§18.2.9: keep the best advertisement until the first wait is over; take the first one later."""
        status, text = dhcp6_lease.verdict_untrusted(message, self._identity.iaid)
        if status is not Status.SUCCESS:
            self._note_refused(now, status, text)
            return
        lease = Lease6.of_untrusted(message, self._identity.iaid, self._wanted)
        value = message.option(Code.PREFERENCE)
        preference = dhcp6.preference_untrusted(value) if value is not None else 0
        if self._best is None or preference > self._best[0]:
            self._best = preference, Grant6(lease, message, self._asked_s)
        if preference == _PREFERENCE_MAX or self._sent > 1:
            self._feed(now, Input.CHOSEN)

    def _note_replied_untrusted(self, now: float, message: Message, server: bytes) -> None:
        """§18.2.10.1."""
        if self.state is not State.REBINDING and server != self._server:
            self._context.count("dhcp6_unexpected")
            return
        iaid, held = self._identity.iaid, self._held
        status, text = dhcp6_lease.verdict_untrusted(message, iaid)
        if status is Status.NO_BINDING and self.state is not State.REQUESTING:
            self._server = server
            self._feed(now, Input.FORGOTTEN)
        elif status is Status.NOT_ON_LINK:
            self._feed(now, Input.REFUSED)
        elif status is Status.NO_ADDRS_AVAIL and self.state is State.REQUESTING:
            self._note_refused(now, status, text)
            self._feed(now, Input.REFUSED)
        elif status is not Status.SUCCESS:
            self._note_refused(now, status, text)
        else:
            self._note_granted_untrusted(
                now, message, held.ip if held is not None else self._wanted
            )

    def _note_granted_untrusted(
        self, now: float, message: Message, wanted: IPv6Address | None
    ) -> None:
        iaid, held = self._identity.iaid, self._held
        try:
            lease = Lease6.of_untrusted(message, iaid, wanted)
        except BadFrame:
            if held is None or not dhcp6_lease.takes_back_untrusted(message, iaid, held.ip):
                raise
            self._feed(now, Input.REFUSED)
            return
        self._reply = Grant6(lease, message, self._asked_s)
        self._server = lease.server
        is_same = held is None or lease.address == held
        self._feed(now, Input.GRANTED if is_same else Input.MOVED)
        self._reply = None

    def _note_confirmed_untrusted(self, now: float, message: Message) -> None:
        status, text = dhcp6_lease.verdict_untrusted(message, self._identity.iaid)
        if status is Status.SUCCESS:
            self._feed(now, Input.CONFIRMED)
        elif status is Status.NOT_ON_LINK:
            self._feed(now, Input.REFUSED)
        else:
            self._note_refused(now, status, text)

    def _note_refused(self, now: float, status: Status, text: str) -> None:
        """Count a server's failure, and log it ever more rarely."""
        self._context.count("dhcp6_refused")
        if self._silence.add():
            words = f" ({text[:80]})" if text else ""
            name = status.name.lower().replace("_", " ")
            self._log(now, f"a server refuses: {name}{words}{self._silence.times}")

    # ---- the machine

    def _begin(self, now: float) -> None:
        if self._is_link_up and not self._is_ending and self._source() is not None:
            super()._begin(now)

    def _feed(self, now: float, fed: Input) -> None:
        if fed is Input.REFUSED:
            self._wanted = None
        super()._feed(now, fed)

    def _act(self, now: float, action: Action) -> None:  # noqa: PLR0912, one case an action
        match action:
            case Action.BEGIN:
                self._xid = self._context.rng.getrandbits(24)
                if self.state is State.SOLICITING:
                    self._best = None
            case Action.TAKE:
                if self._best is not None:
                    _, offer = self._best
                    self._server, self._wanted = offer.lease.server, offer.lease.address.ip
                    self._best = None
            case Action.STORE:
                assert self._reply is not None, "a reply causes this action"
                self._grant = self._reply
            case Action.SOLICIT:
                self._tell_silence(now)
                self._send(now, Kind.SOLICIT, [self._association(), *self._wishes()])
            case Action.REQUEST:
                self._ask(now, Kind.REQUEST)
            case Action.CONFIRM:
                self._send(now, Kind.CONFIRM, [self._association()])
            case Action.RENEW:
                self._ask(now, Kind.RENEW)
            case Action.REBIND:
                self._send(now, Kind.REBIND, [self._association(), *self._wishes()])
            case Action.DECLINE:
                self._give_back(now, Kind.DECLINE)
            case Action.RELEASE:
                self._give_back(now, Kind.RELEASE)
            case Action.CHECK:
                self._check(now)
            case Action.BIND:
                self._bind(now)
            case Action.LEAVE:
                self._leave(now)
            case Action.LOSE:
                self._leave(now)
                self._grant = None
            case Action.ARM:
                self._arm(now)

    # ---- the address

    def _address(self) -> IPv6Interface:
        return self._lease.address

    def _take(self, now: float, interface: IPv6Interface) -> bool:
        return self._hold_address(now, interface, Dad.ON)

    def _drop(self, now: float, interface: IPv6Interface) -> None:
        self._leave_address(now, interface)

    def _bind(self, now: float) -> None:
        super()._bind(now)
        self._silence.clear()
        self._wanted, self._server = self._lease.address.ip, self._lease.server

    def _report(self, grant: Granted[Lease6, Any] | None) -> None:
        if grant is None:
            self._context.emit(Lease6Changed(None))
        else:
            self._context.emit(Lease6Changed(grant.lease, grant.since_s, grant.message))

    # ---- the timer

    def _alarm_s(self, now: float) -> float:
        end_s = self._grant.end_s if self._grant is not None else math.inf
        match self.state:
            case State.WAITING:
                return end_s
            case State.BOUND if self._grant is not None:
                return min(self._grant.renewal_s, end_s)
            case State.PAUSED:
                return now + DHCP_PAUSE_S
            case State.SOLICITING | State.CONFIRMING if self._sent == 0:
                return now + self._context.rng.uniform(0.0, DHCP6_DELAY_S)
        at = now + self._next_wait_s()
        total_s = RETRANSMISSIONS[self.state].total_s
        if total_s:
            at = min(at, self._began_s + total_s)
        if self.state is State.RENEWING and self._grant is not None:
            at = min(at, self._grant.rebinding_s)
        return at if self.state in _ENDING else min(at, end_s)

    def _next_wait_s(self) -> float:
        """§15; §18.2.1: the first wait for advertisements is never shorter than its base."""
        rule, rng = RETRANSMISSIONS[self.state], self._context.rng
        is_soliciting = self.state is State.SOLICITING
        longest_s = self._longest_s if is_soliciting else rule.longest_s
        jitter = rng.uniform(-DHCP6_JITTER, DHCP6_JITTER)
        if self._sent > 1:
            self._wait_s *= 2 + jitter
        elif is_soliciting:
            self._wait_s = rule.first_s * (1 + rng.uniform(DHCP6_JITTER / 100, DHCP6_JITTER))
        else:
            self._wait_s = rule.first_s * (1 + jitter)
        if longest_s and self._wait_s > longest_s:
            self._wait_s = longest_s * (1 + jitter)
        return self._wait_s

    def _expired(self, now: float) -> Input:
        grant = self._grant
        if grant is not None and now >= grant.end_s and self.state not in _ENDING:
            return Input.EXPIRED if self.state is not State.PAUSED else Input.TIMEOUT
        match self.state:
            case State.BOUND:
                return Input.DUE
            case State.RENEWING if grant is not None and now >= grant.rebinding_s:
                return Input.DUE
            case State.SOLICITING if self._best is not None:
                return Input.CHOSEN
            case State.PAUSED:
                return Input.TIMEOUT
        rule = RETRANSMISSIONS[self.state]
        is_late = rule.total_s and self._sent and now >= self._began_s + rule.total_s
        is_spent = rule.tries and self._sent >= rule.tries
        return Input.SPENT if is_late or is_spent else Input.TIMEOUT

    # ---- messages

    def _ask(self, now: float, kind: Kind) -> None:
        self._send(
            now, kind, [(Code.SERVER_ID, self._server), self._association(), *self._wishes()]
        )

    def _give_back(self, now: float, kind: Kind) -> None:
        self._wanted = self._lease.address.ip
        self._server = self._lease.server
        self._send(now, kind, [(Code.SERVER_ID, self._server), self._association()])
        self._wanted = None

    def _association(self) -> Option:
        """The IA_NA option with the address that we have or want; the times in it are the server's affair
        (§18.2.1, §21.4)."""
        wanted = self._held.ip if self._held is not None else self._wanted
        addresses: tuple[Option, ...] = ()
        if wanted is not None:
            addresses = ((Code.IA_ADDRESS, Address(wanted).pack()),)
        return Code.IA_NA, Association(self._identity.iaid, options=addresses).pack()

    def _wishes(self) -> list[Option]:
        """The options of messages that ask for a lease."""
        options: list[Option] = [(Code.WANTED, WANTED)]
        if self._identity.host_name:
            options.append((Code.CLIENT_NAME, dhcp6.pack_name(self._identity.host_name)))
        return options

    def _source(self) -> IPv6Address | None:
        """The link-local address that we ask from, once it is ours."""
        ip = self._addresses.source_for(_LINK, None)
        return ip if isinstance(ip, IPv6Address) and ip.is_link_local else None

    def _send(self, now: float, kind: Kind, options: list[Option]) -> None:
        """Send to all servers; without a link-local address, which the host may have removed, the message is
        not sent, and the timer tries again."""
        self._sent += 1
        self._asked_s = now
        if self._sent == 1:
            self._began_s = now
        source = self._source()
        if source is None or self._xid is None:
            self._context.count("dhcp6_sourceless")
            return
        elapsed = min(int((now - self._began_s) * 100), 0xFFFF)
        message = Message(
            kind,
            self._xid,
            (
                (Code.CLIENT_ID, self._identity.duid),
                (Code.ELAPSED_TIME, elapsed.to_bytes(2, "big")),
                *options,
            ),
        )
        ports = dhcp6.CLIENT_PORT, dhcp6.SERVER_PORT
        packet = Packet(source, ports[0], dhcp6.SERVERS, ports[1], message)
        self._context.emit(Forward(packet.pack()))

    # ---- the log

    def _place(self, lease: Lease6) -> str:
        return f"{lease.address.ip} of the server {lease.server.hex(':')}"


def grant6_untrusted(raw: bytes, since_s: float, identity: Dhcp6Identity) -> Grant6:
    """Read the message of a grant that a former client of this interface stored; `dhcp6_lease` if it was
    another client's."""
    message = dhcp6.message_untrusted(raw)
    if message.kind is not Kind.REPLY or message.option(Code.CLIENT_ID) != identity.duid:
        raise BadFrame("dhcp6_lease")
    return Grant6(Lease6.of_untrusted(message, identity.iaid), message, since_s)
