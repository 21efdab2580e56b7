# SPDX-License-Identifier: BSD-2-Clause
"""One engine with Ethernet hand-off: the test plays its guests and the hosts of the link."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from ipoibu.base.addr import MULTICAST_QPN, Gid, HwAddr, IpAddress, Mac, Qpn
from ipoibu.base.ib import Destination
from ipoibu.proto.effects import (
    Attach,
    Count,
    Deliver,
    Detach,
    DropGuest,
    DropNeighbour,
    Effect,
    Publish,
    SendFrame,
    SendPacket,
    SetGuest,
    SetNeighbour,
    SetQueuePair,
    Withdraw,
)
from ipoibu.proto.engine import Engine, FrameSource
from ipoibu.proto.ethernet.host import EthernetHost
from ipoibu.proto.ethernet_config import EthernetConfig, StaticBindings
from ipoibu.proto.machine.transition import Transition
from ipoibu.proto.paths import SaPath
from ipoibu.wire import arp, encap, ethernet, ethernet_arp, ndisc
from ipoibu.wire.encap import Encap, EtherType
from ipoibu.wire.ethernet import BROADCAST, Frame, group_mac
from ipoibu.wire.ethernet_arp import EthernetArp
from ipoibu.wire.ndopt import LinkLayer, Option
from tests.doubles.simulation import TEMPLATE, packet

OUR: Final = HwAddr(Qpn(0x48), Gid.parse("fe80::211:22ff:fe00:1"))
PEER: Final = HwAddr(Qpn(0x777), Gid.parse("fe80::2:c903:0:7777"))
OTHER: Final = HwAddr(Qpn(0x888), Gid.parse("fe80::2:c903:0:8888"))
GUEST: Final = Mac.parse("52:54:00:00:00:01")
GUEST2: Final = Mac.parse("52:54:00:00:00:02")
GUEST_IP: Final = IPv4Address("10.0.0.11")
GUEST2_IP: Final = IPv4Address("10.0.0.12")
PEER_IP: Final = IPv4Address("10.0.0.2")
GUEST_V6: Final = IPv6Address("fe80::11")
PEER_V6: Final = IPv6Address("fe80::2")
NOBODY: Final = IPv4Address(0)
BROADCAST_GID: Final = Gid.parse("ff12:401b:ffff::ffff:ffff")


class Lan:
    """The engine is up. The attributes are the tables of its pump, and what it sent since `clear`."""

    def __init__(
        self,
        static: StaticBindings | None = None,
        *,
        mtu_bytes: int = 0,
        has_sa: bool = False,
        guest_qpns: tuple[Qpn, ...] = (),
    ) -> None:
        config = replace(
            TEMPLATE,
            hwaddr=OUR,
            guest_qpns=guest_qpns,
            ethernet=EthernetConfig(static or {}),
            mtu_bytes=mtu_bytes,
            has_sa=has_sa,
        )
        self._has_sa = has_sa
        self.observed: list[Transition] = []
        self.engine = Engine(config, random.Random(1), self.observed.append)
        self.now = 0.0
        self.counts: Counter[str] = Counter()
        self.frames: list[Frame] = []  # to guests
        self.sent: list[tuple[Destination, Encap]] = []  # messages to the link
        self.packets: list[tuple[bytes, IpAddress | None]] = []  # frames that guests sent on
        self.senders: list[Qpn | None] = []  # the queue pairs of these messages, None: ours
        self.guests: dict[IpAddress, tuple[Mac, bool]] = {}
        self.queue_pairs: dict[Mac, Qpn] = {}
        self.sources: dict[Mac, HwAddr] = {}
        self.table: dict[IpAddress, Publish] = {}
        self.groups: set[Gid] = set()
        self.effects: list[Effect] = []
        self.carry_out(self.engine.start(self.now))
        assert self.engine.is_up

    @property
    def ethernet(self) -> EthernetHost:
        assert self.engine.ethernet is not None
        return self.engine.ethernet

    @property
    def mac(self) -> Mac:
        """The interface's own MAC."""
        return self.ethernet.mac

    def carry_out(self, effects: Iterable[Effect]) -> None:  # noqa: PLR0912, one case an effect
        for effect in effects:
            self.effects.append(effect)
            match effect:
                case Count(reason):
                    self.counts[reason] += 1
                case Deliver(raw):
                    self.frames.append(ethernet.parse_untrusted(raw))
                case SendFrame(destination, frame, sender):
                    self.sent.append((destination, encap.parse_untrusted(frame)))
                    self.senders.append(sender)
                case SetQueuePair(mac, None):
                    del self.queue_pairs[mac]
                case SetQueuePair(mac, Qpn() as qpn):
                    assert qpn not in self.queue_pairs.values()
                    self.queue_pairs[mac] = qpn
                case SendPacket(raw, next_hop):
                    self.packets.append((raw, next_hop))
                case SetGuest(ip, mac, is_firm):
                    self.guests[ip] = mac, is_firm
                case DropGuest(ip):
                    self.guests.pop(ip, None)
                case SetNeighbour(mac, hwaddr):
                    self.sources[mac] = hwaddr
                case DropNeighbour(mac):
                    del self.sources[mac]
                case Publish(next_hop):
                    self.table[next_hop] = effect
                case Withdraw(next_hop):
                    self.table.pop(next_hop, None)  # under an SA it may not be there yet
                case Attach(mgid):
                    self.groups.add(mgid)
                    path = SaPath(Destination(mgid, Qpn(MULTICAST_QPN), dlid=0xC000))
                    joined = path if self._has_sa else None
                    self.carry_out(self.engine.note_attached(self.now, mgid, joined))
                case Detach(mgid):
                    self.groups.discard(mgid)

    def clear(self) -> None:
        for seen in (
            self.frames,
            self.sent,
            self.senders,
            self.packets,
            self.counts,
            self.effects,
        ):
            seen.clear()

    def run(self, duration_s: float) -> None:
        end = self.now + duration_s
        while (at := self.engine.deadline()) is not None and at <= end:
            self.now = at
            self.carry_out(self.engine.timer(at))
        self.now = end

    # -- guests ----------------------------------------------------------------------------------

    def guest(self, frame: Frame) -> None:
        self.carry_out(self.engine.host_packet(self.now, frame.pack()))

    def guest_arp(
        self,
        message: EthernetArp,
        destination: Mac = BROADCAST,
        source: Mac | None = None,
    ) -> None:
        sender = source or message.sender_mac
        self.guest(Frame(destination, sender, EtherType.ARP, message.pack()))

    def asks(self, target: IPv4Address, mac: Mac = GUEST, ip: IPv4Address = GUEST_IP) -> None:
        """A guest asks for `target`; with its own address it announces that."""
        self.guest_arp(EthernetArp(arp.REQUEST, mac, ip, ethernet_arp.NOBODY, target))

    def guest_nd(
        self, message: ndisc.Message, mac: Mac = GUEST, destination: Mac | None = None
    ) -> None:
        receiver = destination or group_mac(message.destination)
        self.guest(Frame(receiver, mac, EtherType.IPV6, message.pack()))

    def guest_packet(
        self, destination: Mac, source: IpAddress, target: IpAddress, mac: Mac = GUEST
    ) -> bytes:
        """A guest's packet that the pump did not pass on; return the frame."""
        kind = EtherType.IPV4 if source.version == 4 else EtherType.IPV6
        frame = Frame(destination, mac, kind, packet(str(source), str(target), b"data"))
        self.guest(frame)
        return frame.pack()

    # -- hosts of the link -----------------------------------------------------------------------

    def source(self, hwaddr: HwAddr, group: Gid | None = None) -> FrameSource:
        return FrameSource(hwaddr.qpn, hwaddr.gid, group or OUR.gid)

    def link_arp(
        self, message: arp.Arp, *, multicast: bool = False, sender: HwAddr | None = None
    ) -> None:
        source = self.source(sender or message.sender_hwaddr, BROADCAST_GID if multicast else None)
        frame = Encap(EtherType.ARP, message.pack()).pack()
        self.carry_out(self.engine.frame(self.now, source, frame))

    def link_nd(self, message: ndisc.Message, sender: HwAddr = PEER) -> None:
        group = BROADCAST_GID if message.destination.is_multicast else None
        frame = Encap(EtherType.IPV6, message.pack()).pack()
        self.carry_out(self.engine.frame(self.now, self.source(sender, group), frame))

    def link_packet(self, source: IpAddress, target: IpAddress, sender: HwAddr = PEER) -> bytes:
        """A packet of the link for which the pump knows no guest."""
        raw = packet(str(source), str(target), b"data")
        self.carry_out(self.ethernet.link_packet(self.now, self.source(sender), raw))
        return raw

    # -- what happened ---------------------------------------------------------------------------

    def sent_arp(self) -> list[tuple[Destination, arp.Arp]]:
        return [
            (destination, arp.parse_untrusted(it.payload))
            for destination, it in self.sent
            if it.type is EtherType.ARP
        ]

    def sent_nd(self) -> list[tuple[Destination, ndisc.Message]]:
        return [
            (destination, ndisc.parse_untrusted(it.payload))
            for destination, it in self.sent
            if it.type is EtherType.IPV6
        ]

    def arp_frames(self) -> list[tuple[Frame, EthernetArp]]:
        return [
            (it, ethernet_arp.parse_untrusted(it.payload))
            for it in self.frames
            if it.ethertype == EtherType.ARP
        ]

    def nd_frames(self) -> list[tuple[Frame, ndisc.Message, Mac | None]]:
        """Neighbour discovery to guests, with the MAC in its link-layer option."""
        found = []
        for frame in self.frames:
            if frame.ethertype == EtherType.IPV6 and frame.payload[7] == 255:
                relinked = ndisc.relinked_untrusted(frame.payload)
                address = relinked.address
                found.append((frame, relinked.message, Mac(address) if address else None))
        return found

    def meet(self, peer: HwAddr = PEER, ip: IPv4Address = PEER_IP) -> Mac:
        """A host of the link asks for a guest; return its MAC."""
        self.link_arp(arp.request(peer, ip, GUEST_IP), multicast=True)
        return self.arp_frames()[-1][1].sender_mac


def with_option(mac: Mac, kind: LinkLayer = LinkLayer.SOURCE) -> tuple[Option, ...]:
    """Return the link-layer option of a guest's message."""
    return (Option(kind, mac.raw),)
