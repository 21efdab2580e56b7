# SPDX-License-Identifier: BSD-2-Clause
"""A host with Ethernet hand-off in a simulation: what its pump does, in Python and with the same tables.

The pump passes up ARP, neighbour discovery, DHCP and membership reports, frames from an address or to a
destination that it does not know, and packets of the link for an address that no guest has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ipoibu.base.addr import HwAddr, IpAddress, Mac
from ipoibu.base.errors import BadFrame
from ipoibu.proto.effects import (
    Deliver,
    DropGuest,
    DropNeighbour,
    Effect,
    SendPacket,
    SetGuest,
    SetNeighbour,
)
from ipoibu.proto.engine import FrameSource
from ipoibu.proto.ethernet.macs import next_hop_of
from ipoibu.wire import encap, ethernet, ip, ndisc, udp
from ipoibu.wire.encap import EtherType
from ipoibu.wire.ethernet import BROADCAST, Frame, group_mac
from ipoibu.wire.mgid import LIMITED_BROADCAST
from tests.doubles.simulation import Host, is_control, is_dhcp_reply

_TYPES: Final = frozenset(bytes((kind,)) for kind in (130, 131, 132, 143, *ndisc.Kind))


class EthernetHost(Host):
    """`to_guests` gets each frame that leaves towards the guests; `guest` takes one of theirs."""

    to_guests: Callable[[bytes], None]
    guests: dict[IpAddress, tuple[Mac, bool]]
    sources: dict[tuple[int, bytes], Mac]

    def open(self, to_guests: Callable[[bytes], None]) -> None:
        """Call this before `start`."""
        self.to_guests = to_guests
        self.guests = {}
        self.sources = {}

    def guest(self, raw: bytes) -> None:
        """Take a frame of a guest."""
        packet = _plain_packet(raw)
        if packet is None:
            self.carry_out(self.engine.host_packet(self._clock.now, raw))
            return
        frame = ethernet.parse_untrusted(raw)
        mac, is_firm = self.guests.get(packet.source, (None, False))
        next_hop = _next_hop(frame, packet)
        if is_firm and mac != frame.source:
            self.counts["pump_spoofed"] += 1
        elif mac is None or next_hop not in self.table:
            self.carry_out(self.engine.host_packet(self._clock.now, raw))
        else:
            self._forward(next_hop, raw)

    def receive(self, source: FrameSource, frame: bytes) -> None:
        if is_control(frame):
            self.carry_out(self.engine.frame(self._clock.now, source, frame))
        elif (source.qpn, source.sgid) == (self.hwaddr.qpn, self.hwaddr.gid):
            pass  # our own multicast (E8)
        elif is_dhcp_reply(frame):
            self.carry_out(self.engine.dhcp_reply(self._clock.now, frame[4:]))
        else:
            self._from_link(source, encap.parse_untrusted(frame).payload)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case SetGuest(address, mac, is_firm):
                self.guests[address] = mac, is_firm
            case DropGuest(address):
                self.guests.pop(address, None)
            case SetNeighbour(mac, hwaddr):
                self.sources[_key(hwaddr)] = mac
            case DropNeighbour(mac):
                self.sources = {key: it for key, it in self.sources.items() if it != mac}
            case Deliver(raw):
                self.to_guests(raw)
            case SendPacket(raw, next_hop) if next_hop is not None:
                self._forward(next_hop, raw)
            case _:
                super()._carry_out(effect)

    def _forward(self, next_hop: IpAddress, data: bytes) -> None:
        row, packet = self.table[next_hop], data[ethernet.HEADER_LEN :]
        assert row.destination is not None
        if len(packet) > row.mtu_bytes:
            now = self._clock.now
            self.carry_out(self.engine.too_big(now, next_hop, data, row.mtu_bytes))
        else:
            self._transmit(row.destination, packet)

    def _from_link(self, source: FrameSource, packet: bytes) -> None:
        header = ip.parse_untrusted(packet)
        destination = header.destination
        mac, _ = self.guests.get(destination, (None, False))
        if destination.is_multicast or destination == LIMITED_BROADCAST:
            mac = group_mac(destination)
        engine_side = self.engine.ethernet
        assert engine_side is not None
        if mac is None:
            self.carry_out(engine_side.link_packet(self._clock.now, source, packet))
            return
        assert source.sgid is not None
        sender = self.sources.get((source.qpn, source.sgid.raw), engine_side.mac)
        kind = EtherType.IPV4 if header.source.version == 4 else EtherType.IPV6
        self.to_guests(Frame(mac, sender, kind, packet).pack())


def _plain_packet(raw: bytes) -> ip.Packet | None:
    """Return the IP packet of a frame; None for a frame that goes up whatever the tables say."""
    try:
        frame = ethernet.parse_untrusted(raw)
        if frame.ethertype not in (EtherType.IPV4, EtherType.IPV6):
            return None
        packet = ip.parse_untrusted(frame.payload)
        upper = packet.upper_untrusted()
    except BadFrame:
        return None
    is_report = packet.source.version == 4 and upper.protocol == ip.IGMP
    is_message = upper.protocol == ip.ICMPV6 and upper.payload[:1] in _TYPES
    is_dhcp = upper.protocol == udp.PROTOCOL and upper.payload[2:4] == bytes((0, 67))
    return None if is_report or is_message or is_dhcp else packet


def _next_hop(frame: Frame, packet: ip.Packet) -> IpAddress:
    """Return the key of the pump's neighbour table."""
    if frame.destination == BROADCAST:
        return LIMITED_BROADCAST
    return packet.destination if frame.destination.is_group else next_hop_of(frame.destination)


def _key(hwaddr: HwAddr) -> tuple[int, bytes]:
    return hwaddr.qpn, hwaddr.gid.raw
