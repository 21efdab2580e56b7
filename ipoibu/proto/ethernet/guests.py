# SPDX-License-Identifier: BSD-2-Clause
"""The addresses of the guests: which MAC has which, and who may use an address.

A guest that names an address in ARP or neighbour discovery holds it (`FIRM`): the pump drops packets of
others from it, and another guest gets it by an announcement, or once the holder is silent. The source of
a guest's packet alone holds nothing (`LOOSE`), since guests may route for others. An administrator's
binding changes for nobody: other guests cannot use the address, and the guest no other address of that
family but link-local ones.
"""

from __future__ import annotations

import itertools
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Final

from ipoibu.base.addr import HwAddr, IpAddress, Mac
from ipoibu.base.limits import (
    ETHERNET_ANNOUNCE_S,
    ETHERNET_ANNOUNCED_AT_ONCE,
    ETHERNET_ANSWER_S,
    ETHERNET_ASKS_BURST,
    ETHERNET_ASKS_PER_S,
    ETHERNET_CHECK_S,
    ETHERNET_CHECKS,
    ETHERNET_DAD_S,
    ETHERNET_GUEST_ADDRESSES_MAX,
    ETHERNET_GUESTS_MAX,
    ETHERNET_PROBE_S,
)
from ipoibu.proto.context import EngineContext, is_host
from ipoibu.proto.effects import DropGuest, Log, SetGuest
from ipoibu.proto.ethernet.binding import MACHINE, Action, Input, State
from ipoibu.proto.ethernet.queue_pairs import QueuePairs
from ipoibu.proto.ethernet.refusals import Reason, RefusalInfo, Refusals
from ipoibu.proto.ethernet_config import StaticBindings
from ipoibu.proto.groups.groups import Groups
from ipoibu.proto.machine.ratelimit import TokenBucket
from ipoibu.proto.machine.table import Machine
from ipoibu.proto.machine.transition import GuestChange, Topic, step
from ipoibu.wire.mgid import solicited_node

_LOOSE: Final = (State.TENTATIVE, State.SEEN)
_FIRM: Final = (State.CLAIMED, State.CHECKING)
_HELD: Final = (State.SEEN, State.CLAIMED, State.CHECKING, State.STATIC)  # packets go to a guest
_WAIT_S: Final = {
    State.SEEN: ETHERNET_CHECK_S,
    State.CLAIMED: ETHERNET_CHECK_S,
    State.CHECKING: ETHERNET_ANSWER_S,
}


@dataclass(frozen=True, slots=True)
class GuestInfo:
    """An address of a guest; `heard_s` counts from its last message that came to the engine. `hwaddr` is its
    hardware address towards the link, None if it shares the interface's."""

    ip: IpAddress
    mac: Mac
    state: State
    heard_s: float
    hwaddr: HwAddr | None = None


@dataclass(slots=True)
class _Binding:
    mac: Mac
    heard: float
    state: State = State.NONE
    asked: int = 0
    is_joined: bool = False
    is_router: bool | None = None  # None: no advertisement of the guest has said so
    is_to_announce: bool = False  # once we know that


class _OfGuest:
    """The addresses of one guest, in the order in which they make room: each kind from the longest silent."""

    __slots__ = ("firm", "loose", "others")

    def __init__(self) -> None:
        self.loose: OrderedDict[IpAddress, None] = OrderedDict()
        self.firm: OrderedDict[IpAddress, None] = OrderedDict()
        self.others: dict[IpAddress, None] = {}

    def __len__(self) -> int:
        return len(self.loose) + len(self.firm) + len(self.others)

    def __iter__(self) -> Iterator[IpAddress]:
        return itertools.chain(self.loose, self.firm, self.others)

    def discard(self, ip: IpAddress) -> None:
        for part in (self.loose, self.firm, self.others):
            part.pop(ip, None)

    def file(self, ip: IpAddress, state: State) -> None:
        """Put the address at the end of its kind."""
        self.discard(ip)
        if state in _LOOSE:
            self.loose[ip] = None
        elif state in _FIRM:
            self.firm[ip] = None
        else:
            self.others[ip] = None


class Guests:
    """At most `cap` addresses; of those that no guest claims, the longest silent makes room first. A guest
    that holds one has a queue pair of its own, as far as there are some.

    `ask(ip, mac)` asks a guest whether it has an address; `announce(ip, is_router)` tells the link that
    we receive for it.
    """

    def __init__(
        self,
        context: EngineContext,
        groups: Groups,
        static: StaticBindings,
        *,
        ask: Callable[[IpAddress, Mac], None],
        announce: Callable[[IpAddress, bool], None],
        queue_pairs: QueuePairs,
        cap: int = ETHERNET_GUESTS_MAX,
        cap_of_guest: int = ETHERNET_GUEST_ADDRESSES_MAX,
    ) -> None:
        self._context = context
        self._groups = groups
        self._ask = ask
        self._announce = announce
        self._queue_pairs = queue_pairs
        self._cap = cap
        self._cap_of_guest = cap_of_guest
        self._machine = Machine(MACHINE, context.timers, self._ring)
        self._bindings: dict[IpAddress, _Binding] = {}
        self._loose: OrderedDict[IpAddress, None] = OrderedDict()  # silent for longest first
        self._firm: OrderedDict[IpAddress, None] = OrderedDict()
        self._of_mac: dict[Mac, _OfGuest] = {}
        self._static: StaticBindings = {}
        self._refusals = Refusals(context.observe)
        self._asks = TokenBucket(ETHERNET_ASKS_PER_S, ETHERNET_ASKS_BURST)
        self._to_announce: OrderedDict[IpAddress, None] = OrderedDict()
        self.bind(0.0, static)

    def __len__(self) -> int:
        return len(self._bindings)

    def is_guest(self, mac: Mac) -> bool:
        """Return whether a guest has this MAC."""
        return mac in self._of_mac or mac in self._static

    def mac(self, ip: IpAddress) -> Mac | None:
        """Return the MAC of the guest to which packets for `ip` go."""
        binding = self._bindings.get(ip)
        if binding is None or binding.state is State.TENTATIVE:
            return None
        return binding.mac

    def is_firm(self, ip: IpAddress) -> bool:
        """Return whether a guest holds the address."""
        binding = self._bindings.get(ip)
        return binding is not None and binding.state not in _LOOSE

    def prober(self, ip: IpAddress) -> Mac | None:
        """Return the guest that probes for the address."""
        binding = self._bindings.get(ip)
        return binding.mac if binding is not None and binding.state is State.TENTATIVE else None

    def bind(self, now: float, static: StaticBindings) -> None:
        """Replace the administrator's bindings."""
        wanted = {ip: mac for mac, ips in static.items() for ip in ips}
        self._static = static
        for ip, binding in list(self._bindings.items()):
            if binding.state is State.STATIC and wanted.get(ip) != binding.mac:
                self._feed(now, ip, binding, Input.RELEASED)
        for ip, mac in sorted(wanted.items(), key=str):
            former = self._bindings.get(ip)
            if former is not None and former.state is State.STATIC:
                continue
            if former is not None:
                self._feed(now, ip, former, Input.DROPPED)
            self._feed(now, ip, self._add(now, ip, mac), Input.PINNED)

    # -- what guests do --------------------------------------------------------------------------

    def note_probed(self, now: float, ip: IpAddress, mac: Mac) -> bool:
        """A guest probes for `ip`; return whether it may."""
        if not self._may_use(now, mac, ip):
            return False
        binding = self._bindings.get(ip)
        if binding is None:
            binding = self._make(now, ip, mac, is_claim=False)
        if binding is not None and binding.mac == mac:
            self._feed(now, ip, binding, Input.PROBED)
        return True

    def note_seen(self, now: float, ip: IpAddress, mac: Mac) -> bool:
        """A packet of `mac` comes from `ip`; return whether it may pass."""
        if not self._may_use(now, mac, ip):
            return False
        binding = self._bindings.get(ip)
        if binding is None:
            binding = self._make(now, ip, mac, is_claim=False)
        if binding is None:
            return True
        if binding.mac != mac:
            if binding.state not in _LOOSE:
                self._refusals.note(now, ip, mac, Reason.HELD, binding.mac)
            return binding.state in _LOOSE
        self._feed(now, ip, binding, Input.SOURCE)
        return True

    def note_claimed(
        self,
        now: float,
        ip: IpAddress,
        mac: Mac,
        *,
        announces: bool,
        is_router: bool | None = None,
    ) -> bool:
        """`mac` names `ip` as its own; return whether the address is now the guest's.

        `is_router` is the Router flag of the guest's advertisement (RFC 4861 §4.4), if it is one.
        """
        if not is_host(ip) or not self._may_use(now, mac, ip):
            return False
        binding = self._bindings.get(ip)
        if binding is None:
            binding = self._make(now, ip, mac, is_claim=True)
            if binding is None:
                return True  # there is no room to remember it
        if binding.mac != mac:
            self._feed(now, ip, binding, Input.MOVED if announces else Input.RIVAL, mac)
            if binding.mac != mac:
                self._refusals.note(now, ip, mac, Reason.HELD, binding.mac)
                return False
            binding.is_router = is_router
            return True
        if is_router is not None:
            binding.is_router = is_router
        if binding.state in (State.CLAIMED, State.STATIC):
            self._identify(now, mac)  # there may be a queue pair for it now
        self._feed(now, ip, binding, Input.CLAIM)
        if binding.is_to_announce and is_router is not None:
            self._announce_or_ask(now, ip, binding)
        return True

    def note_spoofed(self, now: float, ip: IpAddress, mac: Mac) -> None:
        """The pump dropped a packet of `mac` from `ip`, which another guest has."""
        self._context.note_drop(now, mac, "tx_spoofed")
        binding = self._bindings.get(ip)
        if binding is not None and binding.mac != mac:
            reason = Reason.BOUND if binding.state is State.STATIC else Reason.HELD
            self._refusals.note(now, ip, mac, reason, binding.mac)

    def note_arrived(self, now: float, mac: Mac) -> None:
        """A guest came to this host with its addresses, as a hypervisor says after a migration."""
        firm = [ip for ip in self._of_mac.get(mac, ()) if self.is_firm(ip)]
        if firm and not self._to_announce:
            self._context.timers.arm(self._announce_some, None, now + ETHERNET_ANNOUNCE_S)
        self._to_announce.update(dict.fromkeys(firm))

    # -- what hosts of the link do ---------------------------------------------------------------

    def note_contested(self, now: float, ip: IpAddress, *, announces: bool) -> bool:
        """A host of the link names `ip` as its own; return whether guests may hear of it."""
        binding = self._bindings.get(ip)
        if binding is None:
            return True
        if binding.state is State.STATIC:
            return False
        self._feed(now, ip, binding, Input.LEFT if announces else Input.CONTESTED)
        return True

    def link_up(self, now: float) -> None:
        """Announce all addresses that guests hold: our hardware address may be another one."""
        self._to_announce = OrderedDict.fromkeys(ip for ip in self._bindings if self.is_firm(ip))
        self._announce_some(now, None)

    def link_down(self) -> None:
        self._to_announce.clear()
        self._context.timers.cancel(self._announce_some, None)

    # -- snapshots -------------------------------------------------------------------------------

    def snapshot(self, now: float) -> Iterator[GuestInfo]:
        for ip, it in self._bindings.items():
            hwaddr = self._queue_pairs.own(it.mac)
            yield GuestInfo(ip, it.mac, it.state, now - it.heard, hwaddr)

    def refusals(self, now: float) -> Iterator[RefusalInfo]:
        """Return who used an address that it may not."""
        return self._refusals.snapshot(now)

    def pump_entries(self) -> list[SetGuest]:
        """Return what the pump knows."""
        known = [(ip, it) for ip, it in self._bindings.items() if it.state is not State.TENTATIVE]
        return [SetGuest(ip, it.mac, it.state not in _LOOSE) for ip, it in known]

    # -- inside ----------------------------------------------------------------------------------

    def _may_use(self, now: float, mac: Mac, ip: IpAddress) -> bool:
        """Return whether the administrator's bindings admit it."""
        binding = self._bindings.get(ip)
        if binding is not None and binding.state is State.STATIC:
            if binding.mac != mac:
                self._refusals.note(now, ip, mac, Reason.BOUND, binding.mac)
            return binding.mac == mac
        own = self._static.get(mac, frozenset())
        is_bound = any(it.version == ip.version and not it.is_link_local for it in own)
        if is_bound and not ip.is_link_local:
            self._refusals.note(now, ip, mac, Reason.OTHERS, None)
            return False
        return True

    def _make(self, now: float, ip: IpAddress, mac: Mac, *, is_claim: bool) -> _Binding | None:
        """Return a new binding; None if there is no room. Only a claim takes the place of another one."""
        own = self._of_mac.get(mac) or _OfGuest()
        if len(own) >= self._cap_of_guest:
            loose = next(iter(own.loose), None)
            firm = next(iter(own.firm), None) if is_claim else None
            self._evict(now, loose or firm)
        elif len(self._bindings) >= self._cap:
            firm = next(iter(self._firm), None) if is_claim else None
            self._evict(now, next(iter(self._loose), None) or firm)
        if len(self._bindings) >= self._cap or len(own) >= self._cap_of_guest:
            self._context.warn("ethernet_guests_full", now, f"no room for {ip} of guest {mac}")
            return None
        return self._add(now, ip, mac)

    def _evict(self, now: float, ip: IpAddress | None) -> None:
        if ip is not None:
            self._context.count("ethernet_guest_evicted")
            self._feed(now, ip, self._bindings[ip], Input.DROPPED)

    def _add(self, now: float, ip: IpAddress, mac: Mac) -> _Binding:
        binding = self._bindings[ip] = _Binding(mac, now)
        self._of_mac.setdefault(mac, _OfGuest()).file(ip, binding.state)
        return binding

    def _detach(self, ip: IpAddress, mac: Mac) -> None:
        own = self._of_mac[mac]
        own.discard(ip)
        if not own:
            del self._of_mac[mac]
            self._queue_pairs.release(mac)

    def _feed(
        self, now: float, ip: IpAddress, binding: _Binding, fed: Input, rival: Mac | None = None
    ) -> None:
        holder = binding.mac
        before, actions = self._machine.feed(binding, ip, fed)
        if fed in (Input.SOURCE, Input.CLAIM, Input.PROBED, Input.MOVED):
            binding.heard = now
        for action in actions:
            match action:
                case Action.TAKE:
                    self._take(ip, binding, rival)
                case Action.LOOSE:
                    self._context.emit(SetGuest(ip, binding.mac, is_firm=False))
                case Action.FIRM:
                    binding.asked = 0
                    self._context.emit(SetGuest(ip, binding.mac, is_firm=True))
                    self._identify(now, binding.mac)
                case Action.JOIN:
                    self._join(now, ip, binding)
                case Action.ASK:
                    self._ask_guest(now, ip, binding)
                case Action.ANNOUNCE:
                    self._announce_or_ask(now, ip, binding)
                case Action.ARM:
                    self._machine.arm(ip, now + _wait_s(ip, binding.state))
                case Action.FORGET:
                    self._forget(now, ip, binding)
        self._file(ip, binding)
        self._report(ip, binding, before, holder, fed)

    def _report(
        self, ip: IpAddress, binding: _Binding, before: State, holder: Mac, fed: Input
    ) -> None:
        """Tell the observer how the address has changed."""
        after, has_moved = binding.state, binding.mac != holder
        if after is before and not has_moved:
            return
        was_held, is_held = before in _HELD, after in _HELD
        change = ""
        if was_held != is_held:
            change = GuestChange.LEARNED if is_held else GuestChange.GONE
        elif has_moved:
            change = GuestChange.MOVED
        former = holder if change == GuestChange.MOVED else None
        self._context.observe(
            step(
                Topic.GUEST,
                ip,
                before,
                after,
                fed,
                hwaddr=binding.mac,
                detail=change,
                former=former,
            )
        )

    def _identify(self, now: float, mac: Mac) -> None:
        """Give a guest that holds an address a queue pair, if it has none; hosts know its other addresses
        by the interface's."""
        if self._queue_pairs.assign(mac) and len(self._of_mac[mac]) > 1:
            self.note_arrived(now, mac)

    def _take(self, ip: IpAddress, binding: _Binding, rival: Mac | None) -> None:
        if rival is None:
            return
        text = f"{ip} moved from guest {binding.mac} to guest {rival}"
        self._context.emit(Log(logging.INFO, text))
        self._context.count("ethernet_guest_moved")
        self._detach(ip, binding.mac)
        binding.mac = rival
        binding.is_router, binding.is_to_announce = None, False
        self._of_mac.setdefault(rival, _OfGuest()).file(ip, binding.state)

    def _join(self, now: float, ip: IpAddress, binding: _Binding) -> None:
        if isinstance(ip, IPv6Address) and not binding.is_joined:
            binding.is_joined = self._groups.join(now, solicited_node(ip))

    def _ask_guest(self, now: float, ip: IpAddress, binding: _Binding) -> None:
        binding.asked += 1
        if self._asks.take(now):
            self._ask(ip, binding.mac)
        else:
            self._context.count("ethernet_ask_limited")

    def _announce_or_ask(self, now: float, ip: IpAddress, binding: _Binding) -> None:
        """Announce the address. Without the Router flag hosts would leave a guest that is their router
        (RFC 4861 §7.2.5), so we ask a guest of which we do not know it first."""
        binding.is_to_announce = ip.version == 6 and binding.is_router is None
        if not binding.is_to_announce:
            self._announce(ip, bool(binding.is_router))
        elif self._asks.take(now):
            self._ask(ip, binding.mac)

    def _forget(self, now: float, ip: IpAddress, binding: _Binding) -> None:
        del self._bindings[ip]
        self._detach(ip, binding.mac)
        self._to_announce.pop(ip, None)
        self._context.emit(DropGuest(ip))
        if isinstance(ip, IPv6Address) and binding.is_joined:
            self._groups.leave(now, solicited_node(ip))

    def _file(self, ip: IpAddress, binding: _Binding) -> None:
        """Put the address at the end of the order in which addresses make room."""
        self._loose.pop(ip, None)
        self._firm.pop(ip, None)
        if binding.state in _LOOSE:
            self._loose[ip] = None
        elif binding.state in _FIRM:
            self._firm[ip] = None
        if ip in self._bindings:
            self._of_mac[binding.mac].file(ip, binding.state)

    def _ring(self, now: float, ip: IpAddress) -> None:
        binding = self._bindings[ip]
        is_over = binding.state is State.CHECKING and binding.asked >= ETHERNET_CHECKS
        self._feed(now, ip, binding, Input.SILENT if is_over else Input.TIMEOUT)

    def _announce_some(self, now: float, key: None) -> None:
        for ip in list(self._to_announce)[:ETHERNET_ANNOUNCED_AT_ONCE]:
            del self._to_announce[ip]
            self._announce_or_ask(now, ip, self._bindings[ip])
        if self._to_announce:
            self._context.timers.arm(self._announce_some, key, now + ETHERNET_ANNOUNCE_S)


def _wait_s(ip: IpAddress, state: State) -> float:
    if state is State.TENTATIVE:
        return ETHERNET_PROBE_S if ip.version == 4 else ETHERNET_DAD_S
    return _WAIT_S[state]
