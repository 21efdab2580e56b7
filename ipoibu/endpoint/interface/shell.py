# SPDX-License-Identifier: BSD-2-Clause
"""The engine's shell: feeds the engine the pump's events and the time, and carries its effects out.

Everything here runs on one event loop, on one thread. The engine decides, the pump moves packets, and
this file only translates. The walk of a packet to an unknown neighbour:

1. `drain` reads the pump's events; EVENT_MISS has the packet and its next hop.
2. `EVENTS` has `Engine.miss` for it, which keeps the packet and returns effects.
3. `COMMANDS` makes the effect `SendFrame`, an ARP or ND request, a command of the pump.
4. The reply comes up as EVENT_FRAME, and goes to `Engine.frame`.
5. The effects `Publish` and `SendPacket` become commands, too: the neighbour's entry, then the packet.
   Later packets to that neighbour never leave the pump.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ipoibu import _core
from ipoibu.base.addr import Gid, IpAddress, Mac, Qpn
from ipoibu.base.limits import ROUTE_ASKED_GATEWAYS_MAX, ROUTE_HOPS_MAX
from ipoibu.base.route import AskRoute, NextHop, RouteChange, Target, address_of, key_of
from ipoibu.endpoint.datapath.connections import Connections
from ipoibu.endpoint.datapath.datapath import DataPath, Pump
from ipoibu.endpoint.datapath.heartbeat import Heartbeat
from ipoibu.endpoint.datapath.rerouting import Rerouting
from ipoibu.endpoint.interface.pings import Pinger
from ipoibu.fabric.effect_loop import TimedEffectLoop
from ipoibu.proto.effects import (
    AddressVerdict,
    Answered,
    AskArp,
    AskProxy,
    Attach,
    Count,
    Deliver,
    Detach,
    DropGuest,
    DropNeighbour,
    Effect,
    FindPath,
    Forward,
    JoinToSend,
    Lease6Changed,
    LeaseChanged,
    LeaveToSend,
    LinkChanged,
    Log,
    OwnAddress,
    Publish,
    Refuse,
    SendFrame,
    SendPacket,
    SetGuest,
    SetNeighbour,
    SetQueuePair,
    WatchDhcp,
    Withdraw,
)
from ipoibu.proto.engine import Engine, FrameSource
from ipoibu.proto.neigh import host_addresses
from ipoibu.proto.neigh import proxy_networks as proxied
from ipoibu.proto.neigh.dad import State

if TYPE_CHECKING:
    from ipoibu.endpoint.subnet.subnet import Request, Subnet
    from ipoibu.proto.ethernet.host import EthernetHost

_log = logging.getLogger(__name__)

_USABLE: Final = (State.ANNOUNCING, State.PREFERRED)
ROUTE_KINDS: Final = {
    "unicast": _core.ROUTE_ON_LINK,
    "broadcast": _core.ROUTE_BROADCAST,
    "unreachable": _core.ROUTE_UNREACHABLE,
}


class Shell:
    """Runs `engine` over a data path; every method runs on the loop's thread.

    The interface that owns the shell sets `rc` and `subnet`. The shell calls `on_failure` when the packet
    device failed, and `reports` has what the owner does about the effects that say what has become of an
    address, the link or a lease.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        engine: Engine,
        path: DataPath,
        counts: Counter[str],
        *,
        on_failure: Callable[[str], None],
        reports: Mapping[type[Effect], Callable[[Any], None]],
    ) -> None:
        self.rc = Connections(path.fabric)
        self.subnet: Subnet
        self.is_severed = False
        """True when the data path has ended and another one has yet to come."""
        self._loop = loop
        self._engine = engine
        self._path = path
        self._pump = path.pump
        self._counts = counts
        self._on_failure = on_failure
        self._reports = reports
        self._effects = TimedEffectLoop(loop, engine, self._carry_out)
        self.pinger = Pinger(loop, engine, self._effects.perform, path.port)
        self.heartbeat = Heartbeat()
        self._rerouting = Rerouting(loop, engine, self._effects.perform, path.pump)
        self._routes: dict[bytes, Target] = {}  # by prefix
        self._gateways: Counter[IpAddress] = Counter()  # how many routes lead to each
        self._asked: set[IpAddress] = set()  # gateways in the kernel's answers
        self._ask_route: AskRoute | None = None
        self._ask_arp: host_addresses.AskArp = lambda sender, target: None
        self._ask_proxy: proxied.AskRouteBehind = lambda sender, target: None

    # ---- life

    def start(self) -> None:
        """Start the pump, and read its events."""
        self._pump.start()
        if self._engine.ethernet is not None:
            self._pump.mac_set(self._engine.ethernet.mac.raw)
        self._loop.add_reader(self._pump.event_fd, self._woken)

    def living_pump(self) -> Pump | None:
        """Return the pump, None while the data path is severed."""
        return None if self.is_severed else self._pump

    def stop_reading(self) -> None:
        self._loop.remove_reader(self._pump.event_fd)

    def close(self) -> None:
        """Carry out no more effects."""
        self._rerouting.close()
        self._effects.stop()

    def sever(self) -> None:
        """The data path has ended: drop effects on it until `resume`."""
        self.is_severed = True
        self.rc, self._rerouting.pump = Connections(self._path.fabric), None

    def note_moved(self, path: DataPath) -> None:
        """The same data path has another active rail."""
        self._path = path
        self.pinger.follow(path.port)

    def resume(self, path: DataPath, rc: Connections) -> None:
        """Start another data path, and give it the routes."""
        self._path, self._pump, self.rc = path, path.pump, rc
        self._rerouting.pump = path.pump
        self.pinger.follow(path.port)
        self.is_severed = False
        self.start()
        for address in self._engine.owned():
            self._pump.own_set(key_of(address), True)
        if self._engine.watches_dhcp:
            self._pump.dhcp_watch()
        for prefix, target in self._routes.items():
            self._put_route(prefix, target)
        self.perform(self._engine.handed_off())

    # ---- inputs

    def _woken(self) -> None:
        self._pump.disarm_events()
        self.drain()

    def drain(self) -> None:
        """Read one batch of events, then return to the loop, so that timers and callers get their turn."""
        for event in self._pump.events():
            try:
                self._dispatch(event)
            except Exception:
                # A defect of ours loses one event; the interface goes on.
                self._counts["defect"] += 1
                _log.exception(
                    "%s: event %d was not handled", self._path.port.info.device, event.type
                )
        if self._pump.arm_events():
            self._loop.call_soon(self.drain)

    def _dispatch(self, event: _core.Event) -> None:
        effects = EVENTS[event.type](self, self._loop.time(), event)
        if effects is not None:
            self.perform(effects)

    def _note_refused(self, now: float, event: _core.Event) -> Iterable[Effect]:
        next_hop = address_of(event.next_hop)
        self.rc.withdrawn(next_hop)
        return self._engine.note_neigh_refused(now, next_hop, event.error)

    def _to_rc(self, _: float, event: _core.Event) -> None:
        self.rc.event(event)

    def _to_guests(self, now: float, event: _core.Event) -> Iterable[Effect] | None:
        ethernet = self._engine.ethernet
        return GUEST_EVENTS[event.type](ethernet, now, event) if ethernet is not None else None

    def _note_fabric_changed(self, _: float, event: _core.Event) -> None:
        device = self._path.port.info.device
        if event.working:
            _log.warning("%s: the queue pair works again", device)
        else:
            _log.error("%s: the queue pair failed; the interface recovers it", device)

    def _note_device_failed(self, _now: float, _event: _core.Event) -> None:
        self._on_failure("the packet device failed: it was deleted or closed")

    def _note_synced(self, _: float, event: _core.Event) -> None:
        self.heartbeat.note_answered()
        self._rerouting.note_answered(event.token)

    # ---- effects

    def perform(self, effects: Iterable[Effect]) -> None:
        """Carry effects out in order, and then those that they cause."""
        self._effects.perform(effects)

    def _carry_out(self, effect: Effect) -> Iterable[Effect] | None:
        kind = type(effect)
        if self.is_severed and kind in _LOST:
            self._counts["severed"] += 1  # a link that is down has no entries in the pump
            return None
        if self.is_severed and kind in _KEPT:
            return None  # `resume` gives it to the next data path
        if kind in COMMANDS:
            COMMANDS[kind](self._pump, effect)
            return None
        return EFFECTS[kind](self, effect)

    def _publish(self, effect: Publish) -> None:
        self._pump.neigh_set(
            key_of(effect.next_hop), effect.action, effect.destination, effect.mtu_bytes
        )
        self.rc.note_published(effect)

    def _withdraw(self, effect: Withdraw) -> None:
        self._pump.neigh_del(key_of(effect.next_hop))
        self.rc.withdrawn(effect.next_hop)

    def _send_packet(self, effect: SendPacket) -> None:
        if self._rerouting.is_under_way:
            self._pump.forward(effect.packet)
        else:
            self._pump.send_packet(effect.packet)

    def _refuse(self, effect: Refuse) -> None:
        if self._rerouting.refuse(effect):
            self._pump.deliver(effect.error)

    def _delivery_of(self, effect: AskArp) -> Iterable[Effect]:
        request = effect.request
        delivery = self._ask_arp(request.sender_ip, request.target_ip)
        return self._engine.note_arp_answer(
            self._loop.time(), request, delivery, effect.is_multicast
        )

    def _route_behind(self, effect: AskProxy) -> Iterable[Effect]:
        route = self._ask_proxy(effect.sender, effect.target)
        return self._engine.note_proxy_answer(self._loop.time(), effect, route)

    def _request(self, effect: Request) -> Iterable[Effect]:
        return self.subnet.request(effect)

    def _report(self, effect: Effect) -> None:
        self._reports[type(effect)](effect)

    def _report_and_announce(self, effect: Effect) -> None:
        self._report(effect)
        self.announce()

    def _count(self, effect: Count) -> None:
        self._counts[effect.reason] += 1

    def announce(self) -> None:
        """Announce our usable addresses to the peers of a mesh."""
        usable = [it.address for it in self._engine.addresses() if it.state in _USABLE]
        self._path.fabric.announce(usable)

    # ---- routes: the engine has no part in them

    def change_routes(self, changes: Sequence[RouteChange]) -> None:
        for prefix, target in changes:
            if target is not None and target.kind == "ask":
                self._forget_asked()
            before = self._routes.pop(prefix, None)
            self._count_gateways(target, 1)
            self._count_gateways(before, -1)
            if target is not None:
                self._routes[prefix] = target
            if self.is_severed:
                continue
            if target is not None:
                self._put_route(prefix, target)
            else:
                self._pump.route_del(prefix[1:], prefix[0])
        self._rerouting.note_changed(changes)

    def leave_out_routes(self, count: int) -> None:
        self._counts["routes_left_out"] += count

    def _count_gateways(self, target: Target | None, change: int) -> None:
        """Count the routes to each gateway, and report to the engine the first and the last one."""
        for hop in target.hops if target is not None else ():
            if hop.via is None:
                continue
            self._gateways[hop.via] += change
            count = self._gateways[hop.via]
            if count == 0:
                del self._gateways[hop.via]
            if count == (change > 0):  # the last route is gone, or the first route is new
                now = self._loop.time()
                self.perform(self._engine.note_gateway(now, hop.via, is_used=count > 0))

    def _put_route(self, prefix: bytes, target: Target) -> None:
        kind, gateway, hops = self._encode(target)
        self._pump.route_set(prefix[1:], prefix[0], kind, gateway, hops, target.fields)

    def _encode(self, target: Target) -> tuple[int, bytes | None, list[tuple[bytes | None, int]]]:
        """The kind, gateway and next hops that the pump takes."""
        hops = [(key_of(hop.via) if hop.via else None, hop.weight) for hop in target.hops]
        if len(hops) > ROUTE_HOPS_MAX:
            self._counts["route_hops_full"] += 1
        if len(hops) > 1:
            return _core.ROUTE_MULTIPATH, None, hops[:ROUTE_HOPS_MAX]
        if hops and hops[0][0] is not None:
            return _core.ROUTE_GATEWAY, hops[0][0], []
        if target.kind == "ask":
            return _core.ROUTE_ASK, None, []
        return ROUTE_KINDS[target.kind], None, []

    def _forget_asked(self) -> None:
        """The kernel's answers, which led to these gateways, are not valid any more."""
        for gateway in self._asked:
            self._count_gateways(Target("unicast", (NextHop(gateway),)), -1)
        self._asked.clear()

    def _note_asked(self, target: Target) -> None:
        for hop in target.hops:
            is_full = len(self._asked) >= ROUTE_ASKED_GATEWAYS_MAX
            if hop.via is not None and hop.via not in self._asked and not is_full:
                self._asked.add(hop.via)
                self._count_gateways(Target("unicast", (hop,)), 1)

    def answer_routes(self, ask: AskRoute) -> None:
        self._ask_route = self._rerouting.ask_route = ask

    def answer_arp(self, ask: host_addresses.AskArp) -> None:
        self._ask_arp = ask

    def answer_proxy(self, ask: proxied.AskRouteBehind) -> None:
        self._ask_proxy = ask

    def _answer_route(self, _: float, event: _core.Event) -> None:
        """Ask the kernel for the route of the packet's flow; a flow without an answer is on-link."""
        target = self._ask_route(event.data) if self._ask_route is not None else None
        if target is None:
            self._counts["route_unanswered"] += 1
            target = Target("unicast")
        self._note_asked(target)
        self._pump.route_answer(event.data, *self._encode(target))


def _source(event: _core.Event) -> FrameSource:
    return FrameSource(
        Qpn(event.src_qpn),
        Gid(event.sgid) if event.sgid is not None else None,
        Gid(event.dgid) if event.dgid is not None else None,
    )


# ---- the tables: what a new event or effect adds a line to

# The events that only a pump with guests behind a TAP has.
GUEST_EVENTS: Final[dict[int, Callable[[EthernetHost, float, _core.Event], Iterable[Effect]]]] = {
    _core.EVENT_LINK_PACKET: lambda it, now, event: it.link_packet(
        now, _source(event) if event.sgid is not None else None, event.data
    ),
    _core.EVENT_SPOOFED: lambda it, now, event: it.note_spoofed(
        now, address_of(event.next_hop), Mac(event.data)
    ),
}

# The events of connections; `rc_shell.EVENTS` says what becomes of each.
RC_EVENTS: Final = (
    _core.EVENT_RC_WANTED,
    _core.EVENT_CONNECTION_BROKEN,
    _core.EVENT_CONNECTION_DROPPED,
    _core.EVENT_CONNECTION_GONE,
    _core.EVENT_CONNECTING,
)

# What becomes of each event of the pump (ext/pump/records/pump_abi.h). Most are an input of the engine.
EVENTS: Final[dict[int, Callable[[Shell, float, _core.Event], Iterable[Effect] | None]]] = {
    _core.EVENT_FRAME: lambda it, now, event: it._engine.frame(now, _source(event), event.data),
    _core.EVENT_CONTROL_LIMITED: lambda it, now, event: it._engine.reports.note_control_limited(
        now, _source(event)
    ),
    _core.EVENT_DROPPED: lambda it, now, event: it._engine.reports.note_dropped(
        now, _source(event), event.counter
    ),
    _core.EVENT_RESOLUTION_LIMITED: lambda it, now, event: (
        it._engine.reports.note_resolution_limited(now, address_of(event.next_hop))
    ),
    _core.EVENT_MISS: lambda it, now, event: it._engine.miss(
        now, address_of(event.next_hop), event.data
    ),
    _core.EVENT_WANTED: lambda it, now, event: it._engine.note_wanted(
        now, address_of(event.next_hop)
    ),
    _core.EVENT_USED: lambda it, now, event: it._engine.note_used(now, address_of(event.next_hop)),
    _core.EVENT_HOST: lambda it, now, event: it._engine.host_packet(now, event.data),
    _core.EVENT_DHCP_REPLY: lambda it, now, event: it._engine.dhcp_reply(now, event.data),
    _core.EVENT_UNREACHABLE: lambda it, now, event: it._engine.unreachable(
        now, address_of(event.next_hop), event.data
    ),
    _core.EVENT_TOO_BIG: lambda it, now, event: it._engine.too_big(
        now, address_of(event.next_hop), event.data, event.mtu
    ),
    _core.EVENT_NEIGH_REFUSED: Shell._note_refused,
    _core.EVENT_ROUTE_ASK: Shell._answer_route,
    _core.EVENT_FABRIC: Shell._note_fabric_changed,
    _core.EVENT_DEVICE: Shell._note_device_failed,
    _core.EVENT_SYNC: Shell._note_synced,
    **dict.fromkeys(RC_EVENTS, Shell._to_rc),
    **dict.fromkeys(GUEST_EVENTS, Shell._to_guests),
}

_E = TypeVar("_E", bound=Effect)


def _command(
    kind: type[_E], command: Callable[[Pump, _E], object]
) -> tuple[type, Callable[[Pump, Any], object]]:
    return kind, command


# The effects that are one command to the pump.
COMMANDS: Final = dict(
    (
        _command(OwnAddress, lambda pump, it: pump.own_set(key_of(it.address), it.is_ours)),
        _command(
            SendFrame, lambda pump, it: pump.send_frame(it.destination, it.frame, it.source or 0)
        ),
        _command(Forward, lambda pump, it: pump.forward(it.packet)),
        _command(WatchDhcp, lambda pump, _: pump.dhcp_watch()),
        _command(Deliver, lambda pump, it: pump.deliver(it.packet)),
        _command(SetGuest, lambda pump, it: pump.guest_set(key_of(it.ip), it.mac.raw, it.is_firm)),
        _command(DropGuest, lambda pump, it: pump.guest_del(key_of(it.ip))),
        _command(SetQueuePair, lambda pump, it: pump.guest_qpn_set(it.mac.raw, it.qpn or 0)),
        _command(
            SetNeighbour,
            lambda pump, it: pump.host_mac_set(it.hwaddr.gid.raw, it.hwaddr.qpn, it.mac.raw),
        ),
        _command(
            DropNeighbour, lambda pump, it: pump.host_mac_del(it.hwaddr.gid.raw, it.hwaddr.qpn)
        ),
    )
)

# What the shell does about each of the others; it may cause further effects.
EFFECTS: Final[dict[type[Effect], Callable[[Shell, Any], Iterable[Effect] | None]]] = {
    Publish: Shell._publish,
    Withdraw: Shell._withdraw,
    SendPacket: Shell._send_packet,
    Refuse: Shell._refuse,
    AskArp: Shell._delivery_of,
    AskProxy: Shell._route_behind,
    Attach: Shell._request,
    Detach: Shell._request,
    FindPath: Shell._request,
    JoinToSend: Shell._request,
    LeaveToSend: Shell._request,
    AddressVerdict: Shell._report_and_announce,
    LinkChanged: Shell._report,
    LeaseChanged: Shell._report_and_announce,
    Lease6Changed: Shell._report_and_announce,
    Answered: lambda it, effect: it.pinger.note_answered(effect.ip, effect.hwaddr),
    Count: Shell._count,
    Log: lambda it, effect: _log.log(effect.level, "%s", effect.text),
}

# Without a data path: those that are counted, and those that the next one gets.
_LOST: Final = frozenset((Publish, Withdraw, SendFrame, SendPacket, Forward, Refuse, Deliver))
_KEPT: Final = frozenset(
    (OwnAddress, WatchDhcp, SetGuest, DropGuest, SetQueuePair, SetNeighbour, DropNeighbour)
)
