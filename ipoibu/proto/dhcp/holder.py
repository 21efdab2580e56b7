# SPDX-License-Identifier: BSD-2-Clause
"""What the clients for DHCP and DHCPv6 share: the grant that they know, the address that `Addresses` checks
for them, and how their machines are fed.

`Terms` names the states and inputs that both machines have, because each machine has enums of its own.
"""

from __future__ import annotations

import enum
import logging
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Interface
from typing import Any, Generic, TypeVar

from ipoibu.base.addr import IpAddress, IpInterface
from ipoibu.base.limits import DHCP_PAUSE_S
from ipoibu.proto.context import EngineContext
from ipoibu.proto.dhcp.grant import Granted, duration
from ipoibu.proto.effects import WatchDhcp
from ipoibu.proto.machine.backoff import Repeats
from ipoibu.proto.machine.table import Machine, Table
from ipoibu.proto.machine.transition import Topic, step
from ipoibu.proto.neigh.dad import Addresses
from ipoibu.wire.dhcp6_lease import Lease6
from ipoibu.wire.dhcp_lease import Lease

_S = TypeVar("_S", bound=enum.Enum)
_F = TypeVar("_F", bound=enum.Enum)  # the inputs
_A = TypeVar("_A", bound=enum.Enum)
_L = TypeVar("_L", bound=Lease | Lease6)
_I = TypeVar("_I", IPv4Interface, IPv6Interface)


@dataclass(frozen=True, slots=True)
class Terms(Generic[_S, _F]):
    """The states and inputs that mean the same in both machines."""

    waiting: _S
    checking: _S
    bound: _S
    held: tuple[_S, ...]  # the lease is ours
    judged: tuple[_S, ...]  # the address may be with `Addresses`, so that a verdict about it counts

    ready: _F
    recalled: _F
    link_down: _F
    stop: _F
    refused: _F
    spent: _F
    expired: _F
    unique: _F
    conflict: _F
    no_room: _F


class LeaseHolder(ABC, Generic[_S, _F, _A, _L, _I]):
    """The client without its messages; `state` is its machine's subject. `topic` is the kind of its log
    lines, `title` begins them, and `nameless` stands for an address that is not known yet."""

    topic: str
    title: str
    nameless: str

    def __init__(
        self,
        context: EngineContext,
        addresses: Addresses,
        table: Table[_S, _F, _A],
        terms: Terms[_S, _F],
        silence: Repeats,
    ) -> None:
        self.state = table.initial
        self._context = context
        self._addresses = addresses
        self._machine = Machine(table, context.timers, self._ring)
        self._terms = terms
        self._silence = silence  # of servers
        self._grant: Granted[_L, Any] | None = None
        self._held: _I | None = None  # what `Addresses` has of us
        self._is_reported = False  # whether our caller knows of a lease
        self._is_watching = False
        self._sent = 0  # in this state

    # ---- inputs

    def recall(self, grant: Granted[_L, Any]) -> None:
        """Ask for this lease first, which a former client of this interface had; before the link is up."""
        self._grant = grant
        self._is_reported = True

    def link_up(self, now: float) -> None:
        """The link carries traffic: ask for a lease, or for the one that we know."""
        if not self._is_watching:
            self._is_watching = True
            self._context.emit(WatchDhcp())
        self._begin(now)

    def link_down(self, now: float) -> None:
        self._feed(now, self._terms.link_down)

    def stop(self, now: float) -> None:
        """Give the address back; the client is ready when its state is WAITING."""
        self._feed(now, self._terms.stop)

    def note_decided(self, now: float, ip: IpAddress, is_duplicate: bool) -> None:
        """Take the result of duplicate address detection, of any address of the interface."""
        is_ours = self._held is not None and ip == self._held.ip
        if is_ours and self.state in self._terms.judged:
            self._feed(now, self._terms.conflict if is_duplicate else self._terms.unique)

    # ---- snapshot

    @property
    def has_lease(self) -> bool:
        return self.state in self._terms.held

    @property
    def is_watching(self) -> bool:
        """Return whether replies have to come to `receive_untrusted`."""
        return self._is_watching

    def is_checking(self, interface: IpInterface) -> bool:
        """Return whether we check this address, which our caller does not have yet."""
        is_early = self.state is self._terms.checking and not self._is_reported
        return is_early and interface == self._held

    @property
    def _shown(self) -> Granted[_L, Any] | None:
        """The grant of an address that our caller has, or had before the link went down."""
        is_hidden = self._held is None or self.state is self._terms.checking
        return None if is_hidden else self._grant

    # ---- the machine

    @abstractmethod
    def _act(self, now: float, action: _A) -> None: ...

    def _begin(self, now: float) -> None:
        """Ask for a lease, or for the one that we know, if we wait."""
        if self.state is not self._terms.waiting:
            return
        if self._grant is not None and self._grant.end_s <= now:
            self._feed(now, self._terms.expired)
        has_grant = self._grant is not None
        self._feed(now, self._terms.recalled if has_grant else self._terms.ready)

    def _feed(self, now: float, fed: _F) -> None:
        before, actions = self._machine.feed(self, self.topic, fed)
        if self.state is not before:
            self._start_over()
            grant = self._grant
            subject = grant.lease.address.ip if grant is not None else self.nameless
            self._context.observe(step(Topic.LEASE, subject, before, self.state, fed))
        if self.state is not before or fed is self._terms.expired:
            self._tell(now, fed)
        for action in actions:
            self._act(now, action)

    def _start_over(self) -> None:
        """Count the messages of another state."""
        self._sent = 0

    # ---- the address

    @abstractmethod
    def _take(self, now: float, interface: _I) -> bool:
        """Have an address checked, whatever the policy for others; return False if there are too many."""

    @abstractmethod
    def _drop(self, now: float, interface: _I) -> None:
        """End that."""

    @abstractmethod
    def _report(self, grant: Granted[_L, Any] | None) -> None:
        """Emit that the lease is ours, or None: that we have none any more."""

    @abstractmethod
    def _address(self) -> _I:
        """Return the address in the lease."""

    @property
    def _lease(self) -> _L:
        assert self._grant is not None, "this state has a lease"
        return self._grant.lease

    def _check(self, now: float) -> None:
        if not self._hold(now):
            self._feed(now, self._terms.no_room)
        elif self._addresses.is_ours(self._lease.address.ip):  # the link has been down meanwhile
            self._feed(now, self._terms.unique)

    def _hold(self, now: float) -> bool:
        """Have the address checked as it is in the lease now."""
        before, wanted = self._held, self._address()
        if before == wanted and wanted.ip in self._addresses:
            return True
        if not self._take(now, wanted):
            return False
        self._held = wanted
        if before is not None and before != wanted:
            self._drop(now, before)
        return True

    def _bind(self, now: float) -> None:
        self._hold(now)
        self._is_reported = True
        self._report(self._grant)

    def _leave(self, now: float) -> None:
        """Use the address no longer."""
        if self._held is not None:
            self._drop(now, self._held)
            self._held = None
        if self._is_reported:
            self._is_reported = False
            self._report(None)

    # ---- the timer

    @abstractmethod
    def _alarm_s(self, now: float) -> float:
        """Return when the timer of this state rings; infinity: never."""

    @abstractmethod
    def _expired(self, now: float) -> _F:
        """Return what the timer of this state means."""

    def _arm(self, now: float) -> None:
        at = self._alarm_s(now)
        if at < math.inf:
            self._machine.arm(self.topic, at)

    def _ring(self, now: float, key: str) -> None:
        self._feed(now, self._expired(now))

    # ---- the log

    @abstractmethod
    def _place(self, lease: _L) -> str:
        """Return the address and the server of the lease, as the log shows them."""

    def _tell(self, now: float, fed: _F) -> None:
        """Log what an operator has to know of a step."""
        grant, terms = self._grant, self._terms
        if grant is None:
            return
        place = self._place(grant.lease)
        if fed is terms.unique and self.state is terms.bound:
            self._log(now, f"{place} for {duration(grant.lease.lease_s)}", logging.INFO)
        elif fed is terms.conflict:
            pause = f"asking again in {DHCP_PAUSE_S:.0f} s"
            self._log(now, f"another host has {place}: declined; {pause}")
        elif fed is terms.refused:
            self._log(now, f"a server refuses {place}")
        elif fed is terms.expired:
            self._log(now, f"the lease of {place} has expired")
        elif fed is terms.spent and self.state is terms.checking:
            self._log(now, f"no server answers: using {place}, whose lease goes on")

    def _tell_silence(self, now: float) -> None:
        """Log, ever more rarely, that no server answers."""
        if self._sent > 1 and self._silence.add():
            self._log(now, f"no server answers{self._silence.times}; asking on")

    def _log(self, now: float, text: str, level: int = logging.WARNING) -> None:
        self._context.log(self.topic, now, level, f"{self.title}: {text}")
