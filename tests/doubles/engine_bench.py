# SPDX-License-Identifier: BSD-2-Clause
"""One host alone: the test plays its peers, reads every frame that the host sends, and sets the time."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from ipoibu.base.addr import Gid, HwAddr, Qpn
from ipoibu.base.ib import Destination
from ipoibu.proto.effects import NeighAction
from ipoibu.proto.engine import FrameSource, LinkConfig
from ipoibu.proto.neigh.neighbours import NeighInfo
from ipoibu.wire import arp as arp_wire
from ipoibu.wire import encap, ndisc
from ipoibu.wire.encap import Encap, EtherType
from tests.doubles.simulation import TEMPLATE, Simulation, packet

OUR_V4: Final = IPv4Address("10.0.0.1")
OUR_V6: Final = IPv6Address("fe80::1")
PEER_V4: Final = IPv4Address("10.0.0.2")
PEER_V6: Final = IPv6Address("fe80::2")
PEER: Final = HwAddr(Qpn(0x777), Gid.parse("fe80::2:c903:0:7777"))
PEER_AGAIN: Final = HwAddr(Qpn(0x778), PEER.gid)  # the same port after a restart
_SETTLE_S: Final = 10.0  # probes and announcements are over


class Bench:
    """A host with 10.0.0.1/24 and fe80::1/64 by default; the test clears `sent`.

    After `ready` the host is up and its addresses are preferred.
    """

    def __init__(
        self, *addresses: str, template: LinkConfig = TEMPLATE, seed: int = 1, ready: bool = True
    ) -> None:
        self.simulation = Simulation(seed, template=template)
        self.sent: list[tuple[Destination, bytes]] = []
        self.simulation.network.observers.append(
            lambda _, destination, frame: self.sent.append((destination, frame))
        )
        self.host = self.simulation.host(*(addresses or (f"{OUR_V4}/24", f"{OUR_V6}/64")))
        if ready:
            self.run(_SETTLE_S)
            self.clear()

    @property
    def now(self) -> float:
        return self.simulation.now

    def run(self, duration_s: float) -> None:
        self.simulation.run(duration_s)

    def clear(self) -> None:
        """Forget all frames, counts, log lines and effects so far."""
        host = self.host
        for seen in (self.sent, host.effects, host.counts, host.log, host.received, host.delivered):
            seen.clear()

    def send(self, destination: str, payload: bytes = b"data") -> None:
        """Send a packet of the host's stack to `destination`."""
        source = OUR_V4 if ip_address(destination).version == 4 else OUR_V6
        self.host.send(packet(str(source), destination, payload))

    def arp(
        self, message: arp_wire.Arp, multicast: bool = False, sender: HwAddr | None = None
    ) -> None:
        """Deliver `message` to the host alone, or to the broadcast group; by default from the host that it
        names."""
        self._arrive(sender or message.sender_hwaddr, EtherType.ARP, message.pack(), multicast)

    def nd(
        self, message: ndisc.Message, multicast: bool = False, sender: HwAddr | None = None
    ) -> None:
        """Deliver `message` to the host alone, or to a group; by default from the host that it names, or else
        from `PEER`."""
        is_redirect = isinstance(message, ndisc.Redirect)
        named = PEER if is_redirect else message.lladdr or PEER
        self._arrive(sender or named, EtherType.IPV6, message.pack(), multicast)

    def raw(self, frame: bytes, sender: HwAddr = PEER) -> None:
        """Deliver any bytes to the host alone."""
        source = FrameSource(sender.qpn, sender.gid, self.host.hwaddr.gid)
        self.host.carry_out(self.host.engine.frame(self.now, source, frame))

    def sent_arp(self) -> list[tuple[Destination, arp_wire.Arp]]:
        return [
            (destination, arp_wire.parse_untrusted(parcel.payload))
            for destination, parcel in self._parcels()
            if parcel.type is EtherType.ARP
        ]

    def sent_nd(self) -> list[tuple[Destination, ndisc.Message]]:
        return [
            (destination, ndisc.parse_untrusted(parcel.payload))
            for destination, parcel in self._parcels()
            if parcel.type is EtherType.IPV6 and parcel.payload[7] == 255
        ]

    def action(self, destination: str) -> NeighAction | None:
        """Return the pump's action on packets to `destination`; None is a miss."""
        row = self.host.table.get(ip_address(destination))
        return row.action if row else None

    def neighbour(self, ip: str) -> NeighInfo | None:
        infos = {info.ip: info for info in self.host.engine.neighbours(self.now)}
        return infos.get(ip_address(ip))

    def _parcels(self) -> list[tuple[Destination, Encap]]:
        return [(destination, encap.parse_untrusted(frame)) for destination, frame in self.sent]

    def _arrive(self, sender: HwAddr, kind: EtherType, payload: bytes, multicast: bool) -> None:
        group = Gid.parse("ff12:401b:ffff::ffff:ffff")
        source = FrameSource(sender.qpn, sender.gid, group if multicast else self.host.hwaddr.gid)
        self.host.receive(source, Encap(kind, payload).pack())
