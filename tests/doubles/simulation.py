# SPDX-License-Identifier: BSD-2-Clause
"""Hosts with real engines and simulated pumps on a simulated network, in virtual time.

    simulation = Simulation(seed=1, faults=TERRIBLE)
    a, b = simulation.host("10.0.0.1/24"), simulation.host("10.0.0.2/24")
    simulation.run(5)
    a.send(packet("10.0.0.1", "10.0.0.2", b"hello"))
    simulation.run_until(lambda: b.got(b"hello"), 10)

An hour of a link takes milliseconds, and the same seed gives the same events.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from ipaddress import ip_address, ip_interface
from typing import Final, TypeVar

from ipoibu.base.addr import DEFAULT_PKEY, Gid, HwAddr, IpAddress, IpInterface, Qpn
from ipoibu.base.ib import Destination, PartitionParams
from ipoibu.base.limits import DEFAULT_IB_MTU, DEFAULT_QKEY
from ipoibu.proto.effects import (
    AddressVerdict,
    Attach,
    Count,
    Deliver,
    Detach,
    Effect,
    Forward,
    Log,
    NeighAction,
    Publish,
    Refuse,
    SendFrame,
    SendPacket,
    Withdraw,
)
from ipoibu.proto.engine import Engine, FrameSource, LinkConfig
from ipoibu.proto.machine.transition import Transition
from ipoibu.wire import ip, ndisc, udp
from ipoibu.wire.encap import Encap, EtherType
from tests.doubles.network import PERFECT, Faults, Network, VirtualClock

EXPERIMENTAL: Final = 253  # RFC 3692: an IP protocol for experiments
PARAMS: Final = PartitionParams(DEFAULT_PKEY, DEFAULT_QKEY, DEFAULT_IB_MTU)
TEMPLATE: Final = LinkConfig(PARAMS, HwAddr(Qpn(0), Gid(bytes(16))))

_FIRST_QPN: Final = 0x000048
_ND_TYPES: Final = frozenset(ndisc.Kind)


def packet(source: str, destination: str, payload: bytes) -> bytes:
    """Return an IP packet of the version of its addresses."""
    pair = ip_address(source), ip_address(destination)
    if pair[0].version == 4 and pair[1].version == 4:
        return ip.Ipv4(pair[0], pair[1], EXPERIMENTAL, payload).pack()
    if pair[0].version == 6 and pair[1].version == 6:
        return ip.Ipv6(pair[0], pair[1], EXPERIMENTAL, payload).pack()
    raise ValueError(f"{source} and {destination} are of different IP versions")


class Host:
    """One engine, with the next-hop table of its pump.

    Tests read the public attributes: `effects` in their order, `received` and `delivered` packets,
    `counts`, `log`, `verdicts`, `transitions`, the pump's `table`, the fabric's `groups`. The fabric
    refuses to attach the groups in `refused`.
    """

    def __init__(
        self, clock: VirtualClock, network: Network, config: LinkConfig, rng: random.Random
    ) -> None:
        self.transitions: list[Transition] = []
        self.engine = Engine(config, rng, self.transitions.append)
        self.config = config
        self.table: dict[IpAddress, Publish] = {}
        self.effects: list[Effect] = []
        self.groups: set[Gid] = set()
        self.refused: set[Gid] = set()
        self.received: list[bytes] = []
        self.delivered: list[bytes] = []
        self.counts: Counter[str] = Counter()
        self.log: list[str] = []
        self.verdicts: dict[IpAddress, bool] = {}
        self._clock = clock
        self._network = network
        self._notified: set[IpAddress] = set()
        self._alarm: float | None = None

    @property
    def hwaddr(self) -> HwAddr:
        return self.config.hwaddr

    def is_attached(self, mgid: Gid) -> bool:
        return mgid in self.groups

    def start(self, interfaces: Iterable[IpInterface] = ()) -> None:
        """Plug in, start the engine and give it addresses."""
        self._network.plug(self)
        self.carry_out(self.engine.start(self._clock.now))
        for interface in interfaces:
            self.add(interface)

    def kill(self) -> None:
        """Vanish without a message, as in a crash."""
        self._network.unplug(self)
        self._alarm = None

    def add(self, interface: IpInterface) -> None:
        self.carry_out(self.engine.address_added(self._clock.now, interface))

    def remove(self, interface: IpInterface) -> None:
        self.carry_out(self.engine.address_removed(self._clock.now, interface))

    def join(self, group: str) -> None:
        self.carry_out(self.engine.join(self._clock.now, ip_address(group)))

    def leave(self, group: str) -> None:
        self.carry_out(self.engine.leave(self._clock.now, ip_address(group)))

    def send(self, data: bytes) -> None:
        """Take a packet from the local stack; every destination is on the link."""
        next_hop = ip.parse_untrusted(data).destination
        if next_hop in self.table:
            self._forward(next_hop, data)
        else:
            self.carry_out(self.engine.miss(self._clock.now, next_hop, data))

    def report(self, data: bytes) -> None:
        """Take an IGMP or MLD packet from the local stack."""
        self.carry_out(self.engine.host_packet(self._clock.now, data))

    def got(self, payload: bytes) -> bool:
        """Return whether a packet with this payload has arrived."""
        return any(ip.parse_untrusted(data).payload == payload for data in self.received)

    def receive(self, source: FrameSource, frame: bytes) -> None:
        """Take a datagram from the network; the engine gets those that the pump does not deliver itself."""
        if is_control(frame):
            self.carry_out(self.engine.frame(self._clock.now, source, frame))
        elif (source.qpn, source.sgid) == (self.hwaddr.qpn, self.hwaddr.gid):
            pass  # our own multicast (E8)
        elif self.engine.watches_dhcp and is_dhcp_reply(frame):
            self.carry_out(self.engine.dhcp_reply(self._clock.now, frame[4:]))
        else:
            self.received.append(frame[4:])

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Carry out the engine's effects, then set the alarm for its next deadline."""
        for effect in effects:
            self.effects.append(effect)
            self._carry_out(effect)
        deadline = self.engine.deadline()
        if deadline != self._alarm:
            self._alarm = deadline
            if deadline is not None:
                self._clock.at(deadline, lambda: self._ring(deadline))

    def _ring(self, alarm: float) -> None:
        if alarm == self._alarm:  # otherwise the deadline has moved, and there is another alarm
            self._alarm = None
            self.carry_out(self.engine.timer(self._clock.now))

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Publish():
                self.table[effect.next_hop] = effect
                self._notified.discard(effect.next_hop)
            case Withdraw():
                del self.table[effect.next_hop]  # a KeyError here is an engine's error
            case SendFrame():
                self._network.send(self.hwaddr, effect.destination, effect.frame)
            case SendPacket():
                next_hop = ip.parse_untrusted(effect.packet).destination
                if next_hop in self.table:
                    self._forward(next_hop, effect.packet)
                else:
                    self.counts["pump_miss_again"] += 1
            case Forward():
                self.send(effect.packet)
            case Deliver():
                self.delivered.append(effect.packet)
            case Refuse():
                self.delivered.append(effect.error)
            case Attach():
                self._clock.at(self._clock.now, lambda: self._attach(effect.mgid))
            case Detach():
                self.groups.discard(effect.mgid)
            case AddressVerdict():
                self.verdicts[effect.address] = effect.duplicate
            case Count():
                self.counts[effect.reason] += 1
            case Log():
                self.log.append(effect.text)

    def _attach(self, mgid: Gid) -> None:
        if mgid in self.refused:
            self.carry_out(self.engine.note_attach_failed(self._clock.now, mgid, "no room"))
        else:
            self.groups.add(mgid)
            self.carry_out(self.engine.note_attached(self._clock.now, mgid))

    def _forward(self, next_hop: IpAddress, data: bytes) -> None:
        """Send a packet by the pump's entry of its next hop."""
        row, now = self.table[next_hop], self._clock.now
        if row.action is NeighAction.HOLD:
            self.counts["pump_hold"] += 1
        elif row.action is NeighAction.UNREACHABLE:
            self.carry_out(self.engine.unreachable(now, next_hop, data))
        elif len(data) > row.mtu_bytes:
            self.carry_out(self.engine.too_big(now, next_hop, data, row.mtu_bytes))
        else:
            assert row.destination is not None
            self._transmit(row.destination, data)
            if row.action is NeighAction.NOTIFY and next_hop not in self._notified:
                self._notified.add(next_hop)
                self.carry_out(self.engine.note_used(now, next_hop))

    def _transmit(self, destination: Destination, data: bytes) -> None:
        kind = EtherType.IPV4 if data[0] >> 4 == 4 else EtherType.IPV6
        self._network.send(self.hwaddr, destination, Encap(kind, data).pack())


H = TypeVar("H", bound=Host)


class Simulation:
    """Hosts on one link; `seed` determines all random choices.

    `template` is the configuration of every host, except for its hardware address.
    """

    def __init__(
        self, seed: int, faults: Faults = PERFECT, template: LinkConfig = TEMPLATE
    ) -> None:
        self.clock = VirtualClock()
        self.rng = random.Random(seed)
        self.network = Network(self.clock, random.Random(self.rng.random()), faults)
        self.hosts: list[Host] = []
        self.template = template
        self._qpn = _FIRST_QPN

    @property
    def now(self) -> float:
        return self.clock.now

    def host(self, *addresses: str) -> Host:
        """Return a started host with a port of its own and these addresses, each with its prefix length."""
        number = len(self.hosts) + 1
        gid = Gid.parse(f"fe80::211:22ff:fe00:{number:x}")
        host = self._make(gid)
        self.hosts.append(host)
        host.start(ip_interface(address) for address in addresses)
        return host

    def plug(self, kind: type[H], config: LinkConfig) -> H:
        """Return a host of any kind, not started, with a port of its own."""
        gid = Gid.parse(f"fe80::211:22ff:fe00:{len(self.hosts) + 1:x}")
        self._qpn += 1
        config = replace(config, hwaddr=HwAddr(Qpn(self._qpn), gid))
        host = kind(self.clock, self.network, config, random.Random(self.rng.random()))
        self.hosts.append(host)
        return host

    def restart(self, host: Host, *addresses: str) -> Host:
        """Kill the host and start another on its port, with a new queue pair (A5)."""
        host.kill()
        fresh = self._make(host.hwaddr.gid)
        self.hosts[self.hosts.index(host)] = fresh
        fresh.start(ip_interface(address) for address in addresses)
        return fresh

    def run(self, duration_s: float) -> None:
        """Let time pass."""
        until_s = self.now + duration_s
        while self.clock.step(until_s):
            pass

    def run_until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Let time pass until the condition holds; returns whether it did in time."""
        until_s = self.now + timeout_s
        while not condition():
            if not self.clock.step(until_s):
                return condition()
        return True

    def _make(self, gid: Gid) -> Host:
        self._qpn += 1
        config = replace(self.template, hwaddr=HwAddr(Qpn(self._qpn), gid))
        return Host(self.clock, self.network, config, random.Random(self.rng.random()))


def is_control(frame: bytes) -> bool:
    """Return whether a frame is ARP or neighbour discovery; the pump handles all others."""
    kind = int.from_bytes(frame[:2], "big")
    if kind == EtherType.IPV6:
        return len(frame) > 44 and frame[10] == ip.ICMPV6 and frame[44] in _ND_TYPES
    return kind == EtherType.ARP


def is_dhcp_reply(frame: bytes) -> bool:
    """Return whether a frame is a UDP datagram from a DHCP or DHCPv6 server's port to a client's."""
    if int.from_bytes(frame[:2], "big") == EtherType.IPV6:
        return frame[10] == udp.PROTOCOL and frame[44:48] == bytes((2, 35, 2, 34))
    is_ipv4 = int.from_bytes(frame[:2], "big") == EtherType.IPV4
    return is_ipv4 and frame[13] == udp.PROTOCOL and frame[24:28] == bytes((0, 67, 0, 68))
