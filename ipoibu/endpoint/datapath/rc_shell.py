# SPDX-License-Identifier: BSD-2-Clause
"""Connected mode of one interface (C1): carries the policy of `proto.rc.policy` out on real queue pairs.

The neighbours that the engine publishes are the hosts that the policy may connect to. All IP addresses of
a host share one destination, for which the pump gets one TX mode.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from ipoibu import _core
from ipoibu.base.addr import RC_FLAG, Gid, HwAddr, IpAddress, Qpn
from ipoibu.base.errors import LinkError
from ipoibu.base.ib import Destination
from ipoibu.base.limits import CONNECTION_ACTIVITY_S, NEIGH_PENDING_BYTES, NEIGH_PENDING_TOTAL_BYTES
from ipoibu.base.route import address_of
from ipoibu.endpoint.datapath.connections import Connections
from ipoibu.fabric.base import Fabric, RcQueuePair
from ipoibu.fabric.cm.service import CmService
from ipoibu.fabric.effect_loop import TimedEffectLoop
from ipoibu.proto.effects import Count, Log, Publish
from ipoibu.proto.machine.transition import Observer, ignore
from ipoibu.proto.machine.waiting import Waiting
from ipoibu.proto.rc.connection import CloseQp, OpenQp, ProgramQp, RcConfig, RcEffect
from ipoibu.proto.rc.events import Event, Handle
from ipoibu.proto.rc.peer import TxMode, TxRoute
from ipoibu.proto.rc.policy import RcPolicy

_log = logging.getLogger(__name__)

_TX_MODES: Final = {
    TxMode.UD: _core.TX_UD,
    TxMode.UD_NOTIFY: _core.TX_UD_NOTIFY,
    TxMode.UD_CONNECTING: _core.TX_UD_CONNECTING,
}
_WAITS: Final = (TxMode.UD_NOTIFY, TxMode.UD_CONNECTING)  # a connection may come


@dataclass(slots=True)
class _RcHost:
    destination: Destination
    tx_mode: TxMode = TxMode.UD_NOTIFY
    next_hops: set[IpAddress] = field(default_factory=set)


@dataclass(slots=True)
class _RcQp:
    """A queue pair; `number` names it to the pump, and is 0 until the pump has it."""

    connection: RcQueuePair
    number: int = 0
    used: tuple[int, ...] = (0, 0, 0, 0)


class RcShell(Connections):
    """Runs `RcPolicy` between engine, pump, fabric and CM.

    Every method runs on the loop's thread.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pump: _core.Pump,
        fabric: Fabric,
        cm: CmService,
        *,
        config: RcConfig,
        counts: Counter[str],
        observe: Observer = ignore,
    ) -> None:
        super().__init__(fabric)
        self._loop = loop
        self._observe = observe
        self._pump = pump
        self._cm = cm
        self._counts = counts
        self._numbers = itertools.count(1)
        self._hosts: dict[HwAddr, _RcHost] = {}  # the key is the address without flags (A6)
        self._by_next_hop: dict[IpAddress, HwAddr] = {}
        self._rc_qps: dict[Handle, _RcQp] = {}
        self._by_number: dict[int, Handle] = {}
        self._leaving: dict[int, RcQueuePair] = {}
        self._waiting: Waiting[HwAddr, bytes] = Waiting(
            NEIGH_PENDING_BYTES, NEIGH_PENDING_TOTAL_BYTES, self._note_pushed_out
        )
        self._closed = False
        self._activity: asyncio.TimerHandle | None = None
        self._activity_s = min(CONNECTION_ACTIVITY_S, config.idle_s / 4)
        self._policy = self._begin(config)
        self._effects = TimedEffectLoop(loop, self._policy, self._carry_out)

    def _begin(self, config: RcConfig) -> RcPolicy:
        policy = RcPolicy(
            config, random.Random(), self._cm.serials, self._observe, self._fabric.admits
        )
        self._subscriber = self._cm.subscribe(
            policy.service_ids, partial(self._deliver, policy), config.pkey
        )
        return policy

    # ---- life

    def open(self) -> None:
        """The link is up. Hosts may be known already, by a restart: they may have connections from now on."""
        self._effects.perform(self._policy.open(self._now()))
        for bare in self._hosts:
            self._steer(self._policy.route(replace(bare, flags=RC_FLAG)))
        if self._activity is None:
            self._activity = self._loop.call_later(self._activity_s, self._report_activity)

    def down(self) -> None:
        self._effects.perform(self._policy.close(self._now()))

    def rename(self, hwaddr: HwAddr) -> None:
        self._go_on(self._cm, replace(self._policy.config, hwaddr=replace(hwaddr, flags=0)))

    def move(self, cm: Callable[[], CmService], config: Callable[[], RcConfig]) -> None:
        self._go_on(cm(), config())

    def _go_on(self, cm: CmService, config: RcConfig) -> None:
        self.down()
        self._cm.unsubscribe(self._subscriber)
        self._cm = cm
        self._policy = self._effects.machine = self._begin(config)
        self.open()

    def close(self) -> None:
        self.down()
        self._closed = True
        self._cm.unsubscribe(self._subscriber)
        self._effects.stop()
        if self._activity is not None:
            self._activity.cancel()

    def release(self) -> None:
        for connection in (
            *(rc_qp.connection for rc_qp in self._rc_qps.values()),
            *self._leaving.values(),
        ):
            connection.close()
        self._rc_qps.clear()
        self._leaving.clear()

    # ---- from the engine

    def note_published(self, publish: Publish) -> None:
        hwaddr, destination = publish.hwaddr, publish.destination
        if hwaddr is None or destination is None or not hwaddr.flags & RC_FLAG:
            self.withdrawn(publish.next_hop)
            return
        bare = replace(hwaddr, flags=0)
        former = self._by_next_hop.get(publish.next_hop)
        if former == bare and self._hosts[bare].destination == destination:
            return
        if former is not None:
            self.withdrawn(publish.next_hop)
        host = self._hosts.get(bare)
        is_new = host is None or host.destination != destination
        if host is None:
            host = self._hosts[bare] = _RcHost(destination)
        host.destination = destination
        host.next_hops.add(publish.next_hop)
        self._by_next_hop[publish.next_hop] = bare
        if is_new:
            self._steer(self._policy.route(hwaddr))

    def withdrawn(self, next_hop: IpAddress) -> None:
        bare = self._by_next_hop.pop(next_hop, None)
        if bare is None:
            return
        host = self._hosts[bare]
        host.next_hops.discard(next_hop)
        if not host.next_hops:
            del self._hosts[bare]
            self._note_pushed_out(bare, len(self._waiting.take(bare)))
            self._pump.tx_mode_set(host.destination, _core.TX_UD)
            self._effects.perform(self._policy.forget(self._now(), bare))

    def forget(self, hwaddr: HwAddr) -> None:
        if not self._closed:
            self._effects.perform(self._policy.forget(self._now(), hwaddr))

    # ---- from the pump

    def event(self, event: _core.Event) -> None:
        """Take one of `EVENTS`."""
        EVENTS[event.type](self, event)

    def _note_wanted(self, event: _core.Event) -> None:
        bare = HwAddr(Qpn(event.qpn), Gid(event.gid))
        host = self._hosts.get(bare)
        if host is not None:
            hwaddr = replace(bare, flags=RC_FLAG)
            self._effects.perform(self._policy.note_wanted(self._now(), hwaddr, host.destination))

    def _broken(self, event: _core.Event) -> None:
        handle = self._by_number.get(event.connection)
        if handle is not None:
            self._effects.perform(self._policy.broken(self._now(), handle))

    def _note_dropped(self, event: _core.Event) -> None:
        handle = self._by_number.get(event.connection)
        if handle is not None:
            self._policy.note_dropped(self._now(), handle, event.counter)

    def _note_gone(self, event: _core.Event) -> None:
        connection = self._leaving.pop(event.connection, None)
        if connection is not None:
            connection.close()

    def _hold(self, event: _core.Event) -> None:
        """Keep a packet that a datagram cannot carry until the mode of its host changes, unless it has just
        changed."""
        bare = self._by_next_hop.get(address_of(event.next_hop))
        if bare is None or self._hosts[bare].tx_mode not in _WAITS:
            self._pump.forward(event.data)
        elif not self._waiting.add(bare, event.data, len(event.data)):
            self._note_pushed_out(bare, 1)

    def _note_pushed_out(self, _: HwAddr, packets: int) -> None:
        self._counts["connection_wait_lost"] += packets

    # ---- from the CM

    def _deliver(self, policy: RcPolicy, event: Event) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the interface ends
            self._loop.call_soon_threadsafe(self._note_managed, policy, event)

    def _note_managed(self, policy: RcPolicy, event: Event) -> None:
        if policy is self._policy and not self._closed:  # else we have moved meanwhile
            self._effects.perform(self._policy.event(self._now(), event))

    # ---- effects

    def _carry_out(self, effect: RcEffect) -> list[RcEffect]:
        match effect:
            case OpenQp(handle):
                return self._open_qp(handle)
            case ProgramQp():
                return self._program_qp(effect)
            case CloseQp(handle):
                self._close_qp(handle)
            case TxRoute():
                self._steer(effect)
            case Count(reason):
                self._counts[reason] += 1
            case Log(level, text):
                _log.log(level, "%s", text)
            case _:
                self._cm.request(self._subscriber, effect)
        return []

    def _open_qp(self, handle: Handle) -> list[RcEffect]:
        try:
            connection = self._fabric.open_connection()
        except LinkError as error:
            return self._policy.note_open_failed(self._now(), handle, str(error))
        self._rc_qps[handle] = _RcQp(connection)
        return self._policy.note_opened(self._now(), handle, connection.qpn)

    def _program_qp(self, effect: ProgramQp) -> list[RcEffect]:
        rc_qp = self._rc_qps[effect.handle]
        rc_qp.number = next(self._numbers)
        self._by_number[rc_qp.number] = effect.handle
        self._pump.connection_add(rc_qp.number, rc_qp.connection.native, effect.has_superframes)
        try:
            rc_qp.connection.program(effect.attributes)
        except LinkError as error:
            _log.warning("%s: cannot start the connection: %s", effect.handle, error)
            return self._policy.broken(self._now(), effect.handle)
        return []

    def _close_qp(self, handle: Handle) -> None:
        rc_qp = self._rc_qps.pop(handle, None)
        if rc_qp is None:
            return
        if rc_qp.number == 0:
            rc_qp.connection.close()
            return
        del self._by_number[rc_qp.number]
        rc_qp.connection.stop()
        self._leaving[rc_qp.number] = rc_qp.connection
        self._pump.connection_del(rc_qp.number)

    def _steer(self, route: TxRoute) -> None:
        host = self._hosts.get(route.hwaddr)
        if host is None:
            return  # the host is no neighbour: we send it no packets
        host.tx_mode = route.tx_mode
        self._set_tx_mode(host.destination, route)
        if route.tx_mode is not TxMode.UD_CONNECTING:
            for packet in self._waiting.take(route.hwaddr):
                self._pump.forward(packet)  # its route may have changed meanwhile: it may miss

    def _set_tx_mode(self, destination: Destination, route: TxRoute) -> None:
        if route.tx_mode is not TxMode.RC:
            self._pump.tx_mode_set(destination, _TX_MODES[route.tx_mode])
            return
        assert route.handle is not None, "mode RC has a connection"
        rc_qp = self._rc_qps.get(route.handle)
        if rc_qp is not None:
            self._pump.tx_mode_set(
                destination,
                _core.TX_RC,
                rc_qp.number,
                route.mtu_bytes,
                route.superframe_bytes,
            )

    # ---- time

    def _now(self) -> float:
        return self._loop.time()

    def _report_activity(self) -> None:
        self._activity = self._loop.call_later(self._activity_s, self._report_activity)
        self._note_activity()

    def _note_activity(self) -> None:
        used = []
        for handle, rc_qp in self._rc_qps.items():
            counters = self._pump.connection_counters(rc_qp.number) or rc_qp.used
            if counters != rc_qp.used:
                rc_qp.used = counters
                used.append(handle)
        self._effects.perform(self._policy.active(self._now(), used))

    # ---- status

    @property
    def port_counts(self) -> Counter[str]:
        return self._cm.counters()

    def snapshot(self) -> list[dict[str, Any]]:
        self._note_activity()
        return [
            {
                "role": info.handle.role.value,
                "state": info.state.value,
                "peer": str(info.hwaddr),
                "qpn": str(info.qpn) if info.qpn is not None else None,
                "remote_qpn": str(info.remote_qpn) if info.remote_qpn is not None else None,
                "mtu": info.mtu_bytes,
                "path_mtu": info.path_mtu_bytes,
                "superframes": info.has_superframes,
                "age_s": round(info.age_s, 3),
                "idle_s": round(info.idle_s, 3),
            }
            | self._traffic(info.handle)
            for info in self._policy.snapshot(self._now())
        ]

    def _traffic(self, handle: Handle) -> dict[str, int | None]:
        rc_qp = self._rc_qps.get(handle)
        counters = self._pump.connection_counters(rc_qp.number) if rc_qp else None
        names = ("tx_messages", "tx_bytes", "rx_messages", "rx_bytes")
        retries = rc_qp.connection.retries if rc_qp else None
        return dict(zip(names, counters or (0, 0, 0, 0), strict=True)) | {"retries": retries}


EVENTS: Final[dict[int, Callable[[RcShell, _core.Event], None]]] = {
    _core.EVENT_RC_WANTED: RcShell._note_wanted,
    _core.EVENT_CONNECTION_BROKEN: RcShell._broken,
    _core.EVENT_CONNECTION_DROPPED: RcShell._note_dropped,
    _core.EVENT_CONNECTION_GONE: RcShell._note_gone,
    _core.EVENT_CONNECTING: RcShell._hold,
}
