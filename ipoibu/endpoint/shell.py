# SPDX-License-Identifier: BSD-2-Clause
"""The engine's shell: feeds it what the pump, the port and the clock say, and carries its effects out.

Everything here runs on one event loop, on one thread. The engine decides, the pump moves packets, and
this file only translates: pump events into engine inputs, engine effects into pump commands.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from ipoibu import _core
from ipoibu.addr import Gid, HwAddr, IpAddress, IpNetwork, Qpn
from ipoibu.endpoint.datapath import DataPath
from ipoibu.endpoint.rc_shell import EVENTS as CONNECTED_EVENTS
from ipoibu.endpoint.rc_shell import RcShell
from ipoibu.endpoint.subnet import Subnet
from ipoibu.errors import LinkError
from ipoibu.fabric.effect_loop import TimedEffectLoop
from ipoibu.proto.dad import State
from ipoibu.proto.effects import (
    AddressVerdict,
    Attach,
    Count,
    Deliver,
    Detach,
    Effect,
    FindPath,
    JoinToSend,
    LeaveToSend,
    Log,
    Publish,
    SendFrame,
    SendPacket,
    Withdraw,
)
from ipoibu.proto.engine import Engine, FrameSource

_log = logging.getLogger(__name__)

_USABLE: Final = (State.ANNOUNCING, State.PREFERRED)
PORT_POLL_S: Final = 1.0  # a port that went down or came back is noticed this late at most
ROUTE_KINDS: Final = {
    "unicast": _core.ROUTE_ON_LINK,
    "broadcast": _core.ROUTE_BROADCAST,
    "unreachable": _core.ROUTE_UNREACHABLE,
}
_MAPPED: Final = bytes(10) + b"\xff\xff"


def key_of(address: IpAddress) -> bytes:
    """The 16-byte form that the C tables use: IPv4 as ::ffff:a.b.c.d."""
    return _MAPPED + address.packed if address.version == 4 else address.packed


def address_of(key: bytes) -> IpAddress:
    """The inverse of `key_of`."""
    if key.startswith(_MAPPED):
        return ipaddress.IPv4Address(key[12:])
    return ipaddress.IPv6Address(key)


class Shell:
    """Runs `engine` over `pump` and `fabric`; every method on the loop's thread.

    `on_address` hears duplicate address detection's verdicts, `on_failure` that the data path ended.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        engine: Engine,
        path: DataPath,
        *,
        on_address: Callable[[IpAddress, bool], None],
        on_failure: Callable[[str], None],
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.retired: Counter[str] = Counter()  # what the pumps counted that there were before
        self.connected: RcShell | None = None  # in connected mode
        self.subnet: Subnet | None = None  # where there is a subnet administrator
        self.loop = loop
        self._engine = engine
        self._path = path
        self._pump = path.pump
        self._port = path.port
        self._on_address = on_address
        self._on_failure = on_failure
        self._effects = TimedEffectLoop(loop, engine, self._carry_out)
        self._port_timer: asyncio.TimerHandle | None = None
        self._port_active = True
        self._gid = path.port.info.gid
        self._is_severed = False
        self._routes: dict[IpNetwork, tuple[IpAddress | None, str]] = {}

    # ---- life

    def start(self) -> None:
        self._run()
        self._port_timer = self.loop.call_later(PORT_POLL_S, self._poll_port)
        self.perform(self._engine.start(self.loop.time()))
        if self.connected is not None:
            self.connected.open()
        self._path.fabric.listen(self._learned)
        self._drain()

    def stop(self) -> None:
        self.perform(self._engine.stop(self.loop.time()))
        if self.subnet is not None:
            self.subnet.close()
        self._stop_reading()
        self._effects.stop()
        if self._port_timer is not None:
            self._port_timer.cancel()
        if self.connected is not None:
            self.connected.close()
        self._pump.stop()
        if self.connected is not None:
            self.connected.release()

    def _run(self) -> None:
        self._pump.start()
        self.loop.add_reader(self._pump.event_fd, self._woken)
        if self._path.event_fd is not None:
            self.loop.add_reader(self._path.event_fd, self._look_at_port)

    def _stop_reading(self) -> None:
        self.loop.remove_reader(self._pump.event_fd)
        if self._path.event_fd is not None:
            self.loop.remove_reader(self._path.event_fd)

    # ---- a new data path under the interface

    def sever(self) -> None:
        """The link goes down and the queue pair ends; nothing passes until `resume`."""
        self.perform(self._engine.port_event(self.loop.time(), "down"))
        if self.connected is not None:
            self.connected.close()
        self._stop_reading()
        self._pump.stop()
        if self.connected is not None:
            self.connected.release()
            self.connected = None
        self._path.fabric.close()
        self._is_severed = True

    def resume(self, path: DataPath, connected: RcShell | None) -> None:
        """Go on with another data path, which is ours from now on; the engine knows the link already."""
        self.retired.update(self._pump.counters())
        self.retired["commands_dropped"] += self._pump.commands_dropped
        self._path.close()
        self._path, self._pump, self.connected = path, path.pump, connected
        self._gid = self._port.info.gid
        self._is_severed = False
        self._run()
        for network, (via, kind) in self._routes.items():
            self._put_route(network, via, kind)
        if self._port_active:
            self.perform(self._engine.port_event(self.loop.time(), "up"))
            if connected is not None:
                connected.open()
        self._drain()

    # ---- inputs

    def _woken(self) -> None:
        self._pump.disarm_events()
        self._drain()

    def _drain(self) -> None:
        """One batch, then back to the loop, so that timers and callers get their turn."""
        for event in self._pump.events():
            try:
                self._dispatch(event)
            except Exception:
                # A defect of ours. One event is lost; the interface must not stop with it.
                self.counts["defect"] += 1
                _log.exception("%s: event %d was not handled", self._port.info.device, event.type)
        if self._pump.arm_events():
            self.loop.call_soon(self._drain)

    def _dispatch(self, event: _core.Event) -> None:
        now = self.loop.time()
        engine = self._engine
        kind = event.type
        if kind == _core.EVENT_FRAME:
            source = FrameSource(
                Qpn(event.src_qpn),
                Gid(event.sgid) if event.sgid is not None else None,
                Gid(event.dgid) if event.dgid is not None else None,
            )
            self.perform(engine.frame(now, source, event.data))
        elif kind == _core.EVENT_MISS:
            self.perform(engine.miss(now, address_of(event.next_hop), event.data))
        elif kind == _core.EVENT_USED:
            self.perform(engine.used(now, address_of(event.next_hop)))
        elif kind == _core.EVENT_HOST:
            self.perform(engine.host_packet(now, event.data))
        elif kind == _core.EVENT_UNREACHABLE:
            self.perform(engine.unreachable(now, event.data))
        elif kind == _core.EVENT_TOO_BIG:
            self.perform(engine.too_big(now, address_of(event.next_hop), event.data, event.mtu))
        elif kind in CONNECTED_EVENTS:
            if self.connected is not None:
                self.connected.event(event)
        elif kind == _core.EVENT_FABRIC:
            if event.working:
                _log.warning("%s: the queue pair works again", self._port.info.device)
            else:
                _log.error("%s: the queue pair failed; recovering it", self._port.info.device)
        elif kind == _core.EVENT_DEVICE:
            self._on_failure("the packet device failed: it was deleted or closed")

    def _poll_port(self) -> None:
        self._port_timer = self.loop.call_later(PORT_POLL_S, self._poll_port)
        self._look_at_port()

    def _look_at_port(self) -> None:
        """A second is over, or the device says that something has happened."""
        try:
            active = self._port.active()
        except LinkError as error:
            if self._port_timer is not None:
                self._port_timer.cancel()
            if self._path.event_fd is not None:
                self.loop.remove_reader(self._path.event_fd)
            self._on_failure(str(error))
            return
        now = self.loop.time()
        gid = self._port.info.gid
        if self._is_severed:
            self._port_active = active  # `resume` looks at both
            return
        if gid != self._gid and self._rename_connected(self._path.hwaddr):
            self._gid = gid
            self.perform(self._engine.port_event(now, "gid", self._path.hwaddr))
        if active != self._port_active:
            self._port_active = active
            event = "up" if active else "down"
            _log.warning("%s: the port is %s", self._port.info.device, event)
            self.perform(self._engine.port_event(now, event))
            if self.connected is not None:
                self.connected.open() if active else self.connected.down()

    def _rename_connected(self, hwaddr: HwAddr) -> bool:
        """Whether connections go on from the new address; where it cannot be listened on yet, the next
        look tries again."""
        try:
            if self.connected is not None:
                self.connected.rename(hwaddr)
        except LinkError as error:
            _log.warning("%s: its new address is not taken yet: %s", hwaddr.gid, error)
            return False
        return True

    # ---- effects

    def perform(self, effects: Iterable[Effect]) -> None:
        """Carry effects out in order, and those that they cause."""
        self._effects.perform(effects)

    def _carry_out(self, effect: Effect) -> Iterable[Effect]:
        pump = self._pump
        match effect:
            case Publish() | Withdraw() | SendFrame() | SendPacket() | Deliver() if (
                self._is_severed
            ):
                self.counts["severed"] += 1  # a link that is down has published nothing
            case Publish(next_hop, forward, destination, mtu_bytes):
                pump.neigh_set(key_of(next_hop), forward, destination, mtu_bytes)
                if self.connected is not None:
                    self.connected.published(effect)
            case Withdraw(next_hop):
                pump.neigh_del(key_of(next_hop))
                if self.connected is not None:
                    self.connected.withdrawn(next_hop)
            case SendFrame(destination, frame):
                pump.send_frame(destination, frame)
            case SendPacket(packet):
                pump.send_packet(packet)
            case Deliver(packet):
                pump.deliver(packet)
            case Attach() | Detach() | FindPath() | JoinToSend() | LeaveToSend() if self.subnet:
                self.subnet.request(effect)
            case Attach(mgid):
                return self._attach(mgid)
            case Detach(mgid):
                self._path.fabric.detach(mgid)
            case AddressVerdict(address, duplicate):
                self._on_address(address, duplicate)
                self.announce()
            case Count(reason):
                self.counts[reason] += 1
            case Log(level, text):
                _log.log(level, "%s", text)
        return ()

    def _attach(self, mgid: Gid) -> Iterable[Effect]:
        now = self.loop.time()
        try:
            self._path.fabric.attach(mgid)
        except LinkError as error:
            return self._engine.attach_failed(now, mgid, str(error))
        return self._engine.attached(now, mgid)

    def other_groups(self) -> tuple[Gid, ...]:
        """Groups that are received, though neither the host nor the application has joined them."""
        return self.subnet.others() if self.subnet is not None else ()

    # ---- a mesh

    def announce(self) -> None:
        """Announce to the peers of a mesh which addresses we may use now."""
        usable = [it.address for it in self._engine.addresses() if it.state in _USABLE]
        self._path.fabric.announce(usable)

    def _learned(self, hwaddr: HwAddr, addresses: tuple[IpAddress, ...]) -> None:
        def learn() -> None:
            self.perform(self._engine.learned(self.loop.time(), hwaddr, addresses))

        with contextlib.suppress(RuntimeError):  # the loop is closed: the interface ends
            self.loop.call_soon_threadsafe(learn)

    # ---- routes: the engine has no part in them

    def set_route(self, network: IpNetwork, via: IpAddress | None, kind: str) -> None:
        if self.subnet is not None:  # else there is no other data path to come
            self._routes[network] = via, kind
        if not self._is_severed:
            self._put_route(network, via, kind)

    def _put_route(self, network: IpNetwork, via: IpAddress | None, kind: str) -> None:
        number = ROUTE_KINDS[kind] if via is None else _core.ROUTE_GATEWAY
        self._pump.route_set(
            key_of(network.network_address),
            _prefix_len(network),
            number,
            key_of(via) if via is not None else None,
        )

    def remove_route(self, network: IpNetwork) -> None:
        self._routes.pop(network, None)
        if self._is_severed:
            return
        self._pump.route_del(key_of(network.network_address), _prefix_len(network))


def _prefix_len(network: IpNetwork) -> int:
    return network.prefixlen + (96 if network.version == 4 else 0)
