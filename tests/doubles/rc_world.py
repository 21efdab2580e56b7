# SPDX-License-Identifier: BSD-2-Clause
"""Hosts with real connection policies and managers on a simulated network, in virtual time.

    world = World(seed=1, faults=TERRIBLE)
    a, b = world.host(), world.host()
    a.send(b.hwaddr)
    world.run(10)
    assert a.route(b).tx_mode is TxMode.RC

Management datagrams go through the network and its faults. `World` models the queue pairs: a message
arrives if both ends were programmed for each other, else the sender's queue pair breaks, as a real one.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from ipoibu.base.addr import RC_FLAG, Gid, HwAddr, PKey, Qpn
from ipoibu.base.ib import Destination, RcAttributes
from ipoibu.base.limits import CONNECTION_ACTIVITY_S
from ipoibu.proto.cm.cm import Cm, CmConfig, MadSource
from ipoibu.proto.context import FrameSource
from ipoibu.proto.effects import Count, Log
from ipoibu.proto.machine.transition import Transition
from ipoibu.proto.rc.connection import CloseQp, OpenQp, ProgramQp, RcConfig, RcEffect
from ipoibu.proto.rc.events import (
    Accept,
    CmEffect,
    Confirm,
    Connect,
    Disconnect,
    Ended,
    Established,
    Handle,
    Reject,
    Replied,
    Requested,
    SendMad,
)
from ipoibu.proto.rc.peer import TxMode, TxRoute
from ipoibu.proto.rc.policy import RcPolicy
from ipoibu.wire.mad import GSI_QPN
from tests.doubles.network import PERFECT, Faults, Network, VirtualClock

PKEY: Final = PKey(0xFFFF)
IB_MTU: Final = 2048
CONFIG: Final = RcConfig(HwAddr(Qpn(0), Gid(bytes(16))), IB_MTU - 4, IB_MTU)
CM_CONFIG: Final = CmConfig(Gid(bytes(16)), 0, IB_MTU)

_FIRST_QPN: Final = 0x000048


@dataclass(slots=True)
class Qp:
    """A connected queue pair; `attributes` once it is programmed."""

    qpn: Qpn
    attributes: RcAttributes | None = None
    has_superframes: bool = False


class RcHost:
    """One interface, its connections, its port's manager, its queue pairs.

    Tests read the public attributes: `effects` and `events` in their order, `qps` by handle, `routes` from
    the policy, `received` messages by sender, `counts`, `log`,
    `transitions`. A host with `has_qps` False cannot make queue
    pairs; for the roles in `slow` it does not report that it has made one.
    """

    def __init__(
        self, world: World, config: RcConfig, cm_config: CmConfig, rng: random.Random
    ) -> None:
        self.world = world
        self.transitions: list[Transition] = []
        self.connections = RcPolicy(
            config, random.Random(rng.random()), observe=self.transitions.append
        )
        self.cm = Cm(cm_config, random.Random(rng.random()))
        self.effects: list[RcEffect | CmEffect] = []
        self.events: list[Requested | Replied | Established | Ended] = []
        self.qps: dict[Handle, Qp] = {}
        self.routes: dict[HwAddr, TxRoute] = {}
        self.received: list[tuple[HwAddr, bool]] = []
        self.datagrams: Counter[HwAddr] = Counter()
        self.counts: Counter[str] = Counter()
        self.log: list[str] = []
        self.has_qps = True
        self._used: set[Handle] = set()
        self._alarm: float | None = None

    @property
    def hwaddr(self) -> HwAddr:
        """The GSI of the port, to which the network delivers."""
        return HwAddr(Qpn(GSI_QPN), self.interface.gid)

    @property
    def interface(self) -> HwAddr:
        """The interface's own address, as its neighbours know it."""
        return replace(self.connections.config.hwaddr, flags=RC_FLAG)

    @property
    def now(self) -> float:
        return self.world.clock.now

    def is_attached(self, mgid: Gid) -> bool:
        return False

    def start(self) -> None:
        self.world.network.plug(self)
        self.cm.listen(dict.fromkeys(self.connections.service_ids, PKEY))
        self.carry_out(self.connections.open(self.now))

    def stop(self) -> None:
        """Take the link down in good order."""
        self.carry_out(self.connections.close(self.now))

    def kill(self) -> None:
        """Vanish without a message, as in a crash."""
        self.world.network.unplug(self)
        self.world.hosts.remove(self)
        self._alarm = None

    def route(self, other: RcHost) -> TxRoute:
        return self.connections.route(other.interface)

    def send(self, other: RcHost | HwAddr) -> None:
        """Send a unicast packet to a neighbour that announced RC, by the present route."""
        peer = other if isinstance(other, HwAddr) else other.interface
        route = self.connections.route(peer)
        if route.tx_mode is TxMode.RC:
            assert route.handle is not None
            self._transmit(route.handle, bool(route.superframe_bytes))
            return
        self.datagrams[peer] += 1
        if route.tx_mode is TxMode.UD_NOTIFY:
            destination = Destination(peer.gid, peer.qpn)
            self.carry_out(self.connections.note_wanted(self.now, peer, destination))

    def receive(self, source: FrameSource, frame: bytes) -> None:
        came = MadSource(source.qpn, source.sgid)
        self.carry_out(self.cm.note_received(self.now, came, frame))

    def carry_out(self, effects: Iterable[RcEffect | CmEffect]) -> None:
        """Carry out the effects of policy and manager, then set the alarm for the next deadline."""
        queue = deque(effects)
        while queue:
            effect = queue.popleft()
            self.effects.append(effect)
            queue.extend(self._carry_out(effect))
        pending = (self.cm.deadline(), self.connections.deadline())
        deadline = min((at for at in pending if at is not None), default=None)
        if deadline != self._alarm:
            self._alarm = deadline
            if deadline is not None:
                self.world.clock.at(deadline, lambda: self._ring(deadline))

    def report_activity(self) -> None:
        """Report the connections in use, as the endpoint does every `CONNECTION_ACTIVITY_S`."""
        used, self._used = self._used, set()
        self.carry_out(self.connections.active(self.now, used))

    def _ring(self, alarm: float) -> None:
        if alarm == self._alarm:
            self._alarm = None
            self.carry_out([*self.cm.timer(self.now), *self.connections.timer(self.now)])

    def _carry_out(self, effect: RcEffect | CmEffect) -> list[RcEffect | CmEffect]:
        answers: list[RcEffect | CmEffect] = []
        match effect:
            case OpenQp():
                if self.has_qps:
                    qp = self.qps[effect.handle] = Qp(self.world.new_qpn())
                    answers += self.connections.note_opened(self.now, effect.handle, qp.qpn)
                else:
                    answers += self.connections.note_open_failed(
                        self.now, effect.handle, "none left"
                    )
            case ProgramQp():
                qp = self.qps[effect.handle]
                qp.attributes, qp.has_superframes = effect.attributes, effect.has_superframes
            case CloseQp():
                del self.qps[effect.handle]  # a KeyError here is the policy's error
            case Connect() | Confirm() | Accept() | Reject() | Disconnect():
                answers += self.cm.request(self.now, effect)
            case Requested() | Replied() | Established() | Ended():
                self.events.append(effect)
                answers += self.connections.event(self.now, effect)
            case SendMad():
                self.world.network.send(self.hwaddr, effect.destination, effect.raw)
            case TxRoute():
                self.routes[effect.hwaddr] = effect
            case Count():
                self.counts[effect.reason] += 1
            case Log():
                self.log.append(effect.text)
        return answers

    def _transmit(self, handle: Handle, has_superframes: bool) -> None:
        qp = self.qps[handle]
        assert qp.attributes is not None, "a route by an unprogrammed queue pair"
        peer = self.world.find(qp.attributes.destination)
        if peer is None or not _are_joined(qp, self.interface.gid, *peer):
            self.carry_out(self.connections.broken(self.now, handle))
            return
        host, other, theirs = peer
        self._used.add(handle)
        host._used.add(other)
        host.received.append((self.interface, has_superframes == theirs.has_superframes))


def _are_joined(qp: Qp, gid: Gid, host: RcHost, handle: Handle, other: Qp) -> bool:
    """Return whether each of two queue pairs is programmed for the other."""
    ours, theirs = qp.attributes, other.attributes
    if ours is None or theirs is None:
        return False
    return (
        theirs.destination.qpn == qp.qpn
        and theirs.destination.gid == gid
        and ours.send_psn == theirs.receive_psn
        and ours.receive_psn == theirs.send_psn
        and ours.path_mtu_bytes == theirs.path_mtu_bytes
    )


class World:
    """Hosts on one link; `seed` determines all random choices."""

    def __init__(
        self,
        seed: int,
        faults: Faults = PERFECT,
        config: RcConfig = CONFIG,
        cm_config: CmConfig = CM_CONFIG,
    ) -> None:
        self.clock = VirtualClock()
        self.rng = random.Random(seed)
        self.network = Network(self.clock, random.Random(self.rng.random()), faults)
        self.hosts: list[RcHost] = []
        self.config = config
        self.cm_config = cm_config
        self._qpn = _FIRST_QPN
        self._number = 0
        self.clock.at(CONNECTION_ACTIVITY_S, self._activity)

    @property
    def now(self) -> float:
        return self.clock.now

    def new_qpn(self) -> Qpn:
        """Return a new number; unlike an adapter, the world never uses a number twice."""
        self._qpn += 1
        return Qpn(self._qpn)

    def host(self, gid: Gid | None = None) -> RcHost:
        """Return a started host, on the port `gid` or on a new port."""
        self._number += 1
        gid = gid or Gid.parse(f"fe80::211:22ff:fe00:{self._number:x}")
        guid = int.from_bytes(gid.interface_id, "big")
        host = RcHost(
            self,
            replace(self.config, hwaddr=HwAddr(self.new_qpn(), gid)),
            replace(self.cm_config, gid=gid, ca_guid=guid),
            self.rng,
        )
        self.hosts.append(host)
        host.start()
        return host

    def restart(self, host: RcHost) -> RcHost:
        """Kill the host and start another on its port, with a new queue pair (A5)."""
        host.kill()
        return self.host(host.interface.gid)

    def find(self, destination: Destination) -> tuple[RcHost, Handle, Qp] | None:
        """Return the host and queue pair that a packet to `destination` would reach."""
        for host in self.hosts:
            if host.interface.gid == destination.gid:
                for handle, qp in host.qps.items():
                    if qp.qpn == destination.qpn:
                        return host, handle, qp
        return None

    def run(self, duration_s: float) -> None:
        """Let time pass."""
        until_s = self.now + duration_s
        while self.clock.step(until_s):
            pass

    def _activity(self) -> None:
        for host in self.hosts:
            host.report_activity()
        self.clock.at(self.now + CONNECTION_ACTIVITY_S, self._activity)
