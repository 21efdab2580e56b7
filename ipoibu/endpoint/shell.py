# SPDX-License-Identifier: BSD-2-Clause
"""The engine's shell: feeds the engine the pump's events and the time, and carries its effects out.

Everything here runs on one event loop, on one thread. The engine decides, the pump moves packets, and
this file only translates. The walk of a packet to an unknown neighbour:

1. `drain` reads the pump's events; EVENT_MISS has the packet and its next hop.
2. `_dispatch` feeds it to `Engine.miss`, which keeps the packet and returns effects.
3. `_carry_out` makes the effect `SendFrame`, an ARP or ND request, a command of the pump.
4. The reply comes up as EVENT_FRAME, and `_dispatch` feeds it to `Engine.frame`.
5. The effects `Publish` and `SendPacket` become commands, too: the neighbour's entry, then the packet.
   Later packets to that neighbour never leave the pump.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ipoibu import _core
from ipoibu.addr import Gid, IpAddress, Mac, Qpn
from ipoibu.endpoint.datapath import DataPath, Pump
from ipoibu.endpoint.heartbeat import Heartbeat
from ipoibu.endpoint.ping import Pinger
from ipoibu.endpoint.rc_shell import EVENTS as RC_EVENTS
from ipoibu.endpoint.rc_shell import RcShell
from ipoibu.endpoint.rerouting import Rerouting
from ipoibu.errors import LinkError
from ipoibu.fabric.effect_loop import TimedEffectLoop
from ipoibu.limits import ROUTE_ASKED_GATEWAYS_MAX, ROUTE_HOPS_MAX
from ipoibu.proto import host_addresses, proxied
from ipoibu.proto.dad import State
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
from ipoibu.route import AskRoute, NextHop, RouteChange, Target, address_of, key_of

if TYPE_CHECKING:
    from ipoibu.endpoint.subnet import Subnet

_log = logging.getLogger(__name__)

_USABLE: Final = (State.ANNOUNCING, State.PREFERRED)
ROUTE_KINDS: Final = {
    "unicast": _core.ROUTE_ON_LINK,
    "broadcast": _core.ROUTE_BROADCAST,
    "unreachable": _core.ROUTE_UNREACHABLE,
}


class Shell:
    """Runs `engine` over a data path; every method runs on the loop's thread.

    The interface that owns the shell sets `rc` and `subnet`. The shell calls `on_address` with the result
    of an address's duplicate detection, `on_failure` when the packet device failed, `on_link` when the link
    came up or went down, and `on_lease` or `on_lease6` when DHCP or DHCPv6 granted a lease or lost it.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        engine: Engine,
        path: DataPath,
        counts: Counter[str],
        *,
        on_address: Callable[[IpAddress, bool], None],
        on_failure: Callable[[str], None],
        on_link: Callable[[bool], None],
        on_lease: Callable[[LeaseChanged], None],
        on_lease6: Callable[[Lease6Changed], None],
    ) -> None:
        self.rc: RcShell | None = None  # in connected mode
        self.subnet: Subnet | None = None  # where there is a subnet administrator
        self.is_severed = False
        """True when the data path has ended and another one has yet to come."""
        self._loop = loop
        self._engine = engine
        self._path = path
        self._pump = path.pump
        self._counts = counts
        self._on_address = on_address
        self._on_failure = on_failure
        self._on_link = on_link
        self._on_lease = on_lease
        self._on_lease6 = on_lease6
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
        if self._engine.handoff is not None:
            self._pump.mac_set(self._engine.handoff.mac.raw)
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
        self.subnet = None

    def sever(self) -> None:
        """The data path has ended: drop effects on it until `resume`."""
        self.is_severed = True
        self.rc = self._rerouting.pump = None

    def moved(self, path: DataPath) -> None:
        """The same data path has another active rail."""
        self._path = path
        self.pinger.follow(path.port)

    def resume(self, path: DataPath, rc: RcShell | None) -> None:
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
        now = self._loop.time()
        engine = self._engine
        kind = event.type
        if kind == _core.EVENT_FRAME:
            self.perform(engine.frame(now, _source(event), event.data))
        elif kind == _core.EVENT_CONTROL_LIMITED:
            self.perform(engine.control_limited(now, _source(event)))
        elif kind == _core.EVENT_DROPPED:
            self.perform(engine.dropped(now, _source(event), event.counter))
        elif kind == _core.EVENT_LINK_PACKET:
            source = _source(event) if event.sgid is not None else None
            self.perform(engine.link_packet(now, source, event.data))
        elif kind == _core.EVENT_RESOLUTION_LIMITED:
            self.perform(engine.resolution_limited(now, address_of(event.next_hop)))
        elif kind == _core.EVENT_SPOOFED:
            self.perform(engine.spoofed(now, address_of(event.next_hop), Mac(event.data)))
        elif kind == _core.EVENT_MISS:
            self.perform(engine.miss(now, address_of(event.next_hop), event.data))
        elif kind == _core.EVENT_ROUTE_ASK:
            self._answer_route(event.data)
        elif kind == _core.EVENT_WANTED:
            self.perform(engine.wanted(now, address_of(event.next_hop)))
        elif kind == _core.EVENT_USED:
            self.perform(engine.used(now, address_of(event.next_hop)))
        elif kind == _core.EVENT_NEIGH_REFUSED:
            next_hop = address_of(event.next_hop)
            if self.rc is not None:
                self.rc.withdrawn(next_hop)
            self.perform(engine.neigh_refused(now, next_hop, event.error))
        elif kind == _core.EVENT_HOST:
            self.perform(engine.host_packet(now, event.data))
        elif kind == _core.EVENT_DHCP_REPLY:
            self.perform(engine.dhcp_reply(now, event.data))
        elif kind == _core.EVENT_UNREACHABLE:
            self.perform(engine.unreachable(now, address_of(event.next_hop), event.data))
        elif kind == _core.EVENT_TOO_BIG:
            self.perform(engine.too_big(now, address_of(event.next_hop), event.data, event.mtu))
        elif kind in RC_EVENTS:
            if self.rc is not None:
                self.rc.event(event)
        elif kind == _core.EVENT_FABRIC:
            if event.working:
                _log.warning("%s: the queue pair works again", self._path.port.info.device)
            else:
                _log.error(
                    "%s: the queue pair failed; the interface recovers it",
                    self._path.port.info.device,
                )
        elif kind == _core.EVENT_SYNC:
            self.heartbeat.answered()
            self._rerouting.answered(event.token)
        elif kind == _core.EVENT_DEVICE:
            self._on_failure("the packet device failed: it was deleted or closed")

    # ---- effects

    def perform(self, effects: Iterable[Effect]) -> None:
        """Carry effects out in order, and then those that they cause."""
        self._effects.perform(effects)

    def _carry_out(self, effect: Effect) -> Iterable[Effect]:
        pump = self._pump
        match effect:
            case (
                Publish()
                | Withdraw()
                | SendFrame()
                | SendPacket()
                | Forward()
                | Refuse()
                | Deliver()
            ) if self.is_severed:
                self._counts["severed"] += 1  # a link that is down has no entries in the pump
            case Publish(next_hop, action, destination, mtu_bytes):
                pump.neigh_set(key_of(next_hop), action, destination, mtu_bytes)
                if self.rc is not None:
                    self.rc.published(effect)
            case Withdraw(next_hop):
                pump.neigh_del(key_of(next_hop))
                if self.rc is not None:
                    self.rc.withdrawn(next_hop)
            case (
                OwnAddress()
                | WatchDhcp()
                | SetGuest()
                | DropGuest()
                | SetQueuePair()
                | SetNeighbour()
                | DropNeighbour()
            ) if self.is_severed:
                pass  # `resume` gives them to the next data path
            case OwnAddress(address, is_ours):
                pump.own_set(key_of(address), is_ours)
            case AskArp(request, is_multicast):
                delivery = self._ask_arp(request.sender_ip, request.target_ip)
                return self._engine.arp_asked(self._loop.time(), request, delivery, is_multicast)
            case AskProxy():
                route = self._ask_proxy(effect.sender, effect.target)
                return self._engine.proxy_asked(self._loop.time(), effect, route)
            case SendFrame(destination, frame, source):
                pump.send_frame(destination, frame, source or 0)
            case SendPacket(packet) if not self._rerouting.is_under_way:
                pump.send_packet(packet)
            case SendPacket(packet) | Forward(packet):
                pump.forward(packet)
            case Refuse(_, _, error):
                if self._rerouting.refuse(effect):
                    pump.deliver(error)
            case WatchDhcp():
                pump.dhcp_watch()
            case Deliver(packet):
                pump.deliver(packet)
            case SetGuest(ip, mac, is_firm):
                pump.guest_set(key_of(ip), mac.raw, is_firm)
            case SetNeighbour(mac, hwaddr):
                pump.host_mac_set(hwaddr.gid.raw, hwaddr.qpn, mac.raw)
            case DropNeighbour(_, hwaddr):
                pump.host_mac_del(hwaddr.gid.raw, hwaddr.qpn)
            case DropGuest(ip):
                pump.guest_del(key_of(ip))
            case SetQueuePair(mac, qpn):
                pump.guest_qpn_set(mac.raw, qpn or 0)
            case Attach() | Detach() | FindPath() | JoinToSend() | LeaveToSend() if self.subnet:
                self.subnet.request(effect)
            case Attach(mgid):
                return self._attach(mgid)
            case Detach(mgid):
                self._path.fabric.detach(mgid)
            case AddressVerdict(address, duplicate):
                self._on_address(address, duplicate)
                self.announce()
            case LinkChanged(is_up):
                self._on_link(is_up)
            case LeaseChanged():
                self._on_lease(effect)
                self.announce()
            case Lease6Changed():
                self._on_lease6(effect)
                self.announce()
            case Answered(ip, hwaddr):
                self.pinger.answered(ip, hwaddr)
            case Count(reason):
                self._counts[reason] += 1
            case Log(level, text):
                _log.log(level, "%s", text)
        return ()

    def _attach(self, mgid: Gid) -> Iterable[Effect]:
        now = self._loop.time()
        try:
            self._path.fabric.attach(mgid)
        except LinkError as error:
            return self._engine.attach_failed(now, mgid, str(error))
        return self._engine.attached(now, mgid)

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
        self._rerouting.changed(changes)

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
                self.perform(self._engine.gateway_changed(now, hop.via, is_used=count > 0))

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

    def _answer_route(self, packet: bytes) -> None:
        """Ask the kernel for the route of the packet's flow; a flow without an answer is on-link."""
        target = self._ask_route(packet) if self._ask_route is not None else None
        if target is None:
            self._counts["route_unanswered"] += 1
            target = Target("unicast")
        self._note_asked(target)
        self._pump.route_answer(packet, *self._encode(target))


def _source(event: _core.Event) -> FrameSource:
    return FrameSource(
        Qpn(event.src_qpn),
        Gid(event.sgid) if event.sgid is not None else None,
        Gid(event.dgid) if event.dgid is not None else None,
    )
