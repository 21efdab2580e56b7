# SPDX-License-Identifier: BSD-2-Clause
"""Neighbour discovery between guests and the link: options of 8 bytes here, of 24 bytes there (N1, H3).

All five messages keep their IPv6 header and their other options. A signature of SEND (RFC 3971) becomes
invalid, because it covers the link-layer option.
"""

from __future__ import annotations

from ipaddress import IPv6Address
from typing import Final

from ipoibu.base.addr import HWADDR_LEN, MAC_LEN, HwAddr, Mac
from ipoibu.base.errors import BadFrame
from ipoibu.proto.context import EngineContext, FrameSource
from ipoibu.proto.effects import Deliver
from ipoibu.proto.ethernet.guests import Guests
from ipoibu.proto.ethernet.macs import Macs
from ipoibu.proto.ethernet.queue_pairs import QueuePairs
from ipoibu.wire import lladdr, ndisc
from ipoibu.wire.encap import EtherType
from ipoibu.wire.ethernet import BROADCAST, Frame, group_mac
from ipoibu.wire.mgid import solicited_node
from ipoibu.wire.ndisc import (
    ALL_NODES,
    NeighbourAdvertisement,
    NeighbourSolicitation,
    Redirect,
    Relinked,
    RouterAdvertisement,
    RouterSolicitation,
)
from ipoibu.wire.ndopt import LinkLayer, Option

_PADDING: Final = bytes(2)  # RFC 4391 §9.3: before the hardware address


class GuestNd:
    """Translates neighbour discovery; the caller has checked the source MAC of a guest's frame."""

    def __init__(
        self, context: EngineContext, macs: Macs, guests: Guests, queue_pairs: QueuePairs
    ) -> None:
        self._context = context
        self._macs = macs
        self._guests = guests
        self._queue_pairs = queue_pairs

    # -- from guests -----------------------------------------------------------------------------

    def note_sent_untrusted(self, now: float, frame: Frame) -> None:
        """Take a guest's message, a whole IPv6 packet of a `ndisc.Kind`; `BadFrame` for an
        invalid one."""
        relinked = ndisc.relinked_untrusted(frame.payload)
        mac = None if relinked.address is None else _mac_untrusted(relinked.address)
        if not self._may_send(now, frame, relinked, mac):
            self._context.drop(now, frame.source, "ethernet_spoofed")
        elif frame.destination != self._macs.own:
            self._forward(frame, relinked, mac)

    def _may_send(self, now: float, frame: Frame, relinked: Relinked, mac: Mac | None) -> bool:
        """Note what the message says about its sender; return whether the guest may say it."""
        message, source = relinked.message, relinked.message.source
        is_redirect = isinstance(message, Redirect)  # which names another host
        if mac is not None and mac != frame.source and not is_redirect:
            return False
        if isinstance(message, NeighbourSolicitation) and source.is_unspecified:
            return self._guests.note_probed(now, message.target, frame.source)
        if isinstance(message, NeighbourAdvertisement):
            # Without Override it is an answer in the place of the owner, a proxy's (RFC 4861 §7.2.8, H4).
            announces = message.override and not message.solicited
            if not self._guests.note_claimed(
                now,
                message.target,
                frame.source,
                announces=announces,
                is_router=message.router,
            ):
                return False
        if source.is_unspecified:
            return True
        return self._guests.note_claimed(now, source, frame.source, announces=False)

    def _forward(self, frame: Frame, relinked: Relinked, mac: Mac | None) -> None:
        message = relinked.message
        receiver = self._macs.hwaddr(frame.destination)
        group: IPv6Address | None = None
        if message.destination.is_multicast:
            group = message.destination
        elif receiver is None and isinstance(message, NeighbourSolicitation):
            group = solicited_node(message.target)  # after a restart: ask all hosts
        elif receiver is None:
            self._context.count("ethernet_unknown_mac")
            return
        named = None if mac is None else self._hwaddr(mac)
        packet = relinked.pack(None if named is None else _PADDING + named.pack())
        self._send(packet, receiver, group, self._queue_pairs.hwaddr(frame.source))

    def _hwaddr(self, mac: Mac) -> HwAddr | None:
        """Return the hardware address by which the link reaches the host with this MAC."""
        return self._macs.hwaddr(mac) or (
            self._queue_pairs.hwaddr(mac) if self._guests.is_guest(mac) else None
        )

    # -- from the link ---------------------------------------------------------------------------

    def receive_untrusted(self, now: float, source: FrameSource, packet: bytes) -> None:
        """Take a message of the link; `BadFrame` if it breaks a rule of N2."""
        relinked = ndisc.relinked_untrusted(packet)
        hwaddr = None if relinked.address is None else _hwaddr_untrusted(relinked.address)
        if hwaddr is not None and self._context.is_ours(hwaddr):
            if not isinstance(relinked.message, Redirect):
                self._context.drop(now, source, "echo")
                return
        elif hwaddr is not None and self._contradicts(source, hwaddr, relinked):
            text = f"neighbour discovery names {hwaddr}, but comes from {source}"
            self._context.warn("neigh_contradiction", now, text)
            if not isinstance(relinked.message, RouterAdvertisement | RouterSolicitation):
                return
            hwaddr = None  # which any sender may leave out (RFC 4861 §4.1, §4.2)
        if not self._may_receive(now, relinked):
            self._context.drop(now, source, "ethernet_spoofed")
            return
        self._pass_on(now, source, relinked, hwaddr)

    def _contradicts(self, source: FrameSource, hwaddr: HwAddr, relinked: Relinked) -> bool:
        message = relinked.message
        if isinstance(message, Redirect):
            return False
        is_answer = isinstance(message, NeighbourAdvertisement) and message.solicited
        return source.contradicts(hwaddr) and not is_answer

    def _may_receive(self, now: float, relinked: Relinked) -> bool:
        message = relinked.message
        if isinstance(message, NeighbourAdvertisement):
            announces = message.override and not message.solicited
            return self._guests.note_contested(now, message.target, announces=announces)
        if message.source.is_unspecified or relinked.address is None:
            return True
        return self._guests.note_contested(now, message.source, announces=False)

    def _pass_on(
        self, now: float, source: FrameSource, relinked: Relinked, hwaddr: HwAddr | None
    ) -> None:
        message = relinked.message
        destination = message.destination
        if destination.is_multicast:
            receiver = group_mac(destination)
        else:
            # A guest whose address we do not know yet finds out by its destination address.
            receiver = self._guests.mac(destination) or BROADCAST
        sender = self.sender_mac(now, source)
        named: Mac | None = None
        if hwaddr is not None and not self._context.is_ours(hwaddr):
            named = self._macs.learn(now, hwaddr)
            if not isinstance(message, Redirect):
                sender = named
        elif hwaddr is not None:
            # A router of the link names a guest.
            named = self._queue_pairs.mac(hwaddr) or self._guests.mac(_target(message))
        packet = relinked.pack(None if named is None else named.raw)
        self._deliver(receiver, sender, packet)

    def sender_mac(self, now: float, source: FrameSource) -> Mac:
        """Return the MAC of a datagram's sender; the interface's if it had no GRH (E4)."""
        if source.sgid is None:
            return self._macs.own
        return self._macs.learn(now, HwAddr(source.qpn, source.sgid))

    # -- of our own ------------------------------------------------------------------------------

    @property
    def own_address(self) -> IPv6Address:
        """The link-local address from which we ask guests, made of our MAC (RFC 4291, appendix A)."""
        raw = self._macs.own.raw
        identifier = bytes((raw[0] ^ 0x02,)) + raw[1:3] + b"\xff\xfe" + raw[3:]
        return IPv6Address(b"\xfe\x80" + bytes(6) + identifier)

    def ask(self, ip: IPv6Address, mac: Mac) -> None:
        """Ask a guest (or with `BROADCAST` all guests) for `ip`."""
        to_all = mac == BROADCAST
        destination = solicited_node(ip) if to_all else ip
        option = Option(LinkLayer.SOURCE, self._macs.own.raw)
        message = NeighbourSolicitation(self.own_address, destination, ip, options=(option,))
        self._deliver(group_mac(destination) if to_all else mac, self._macs.own, message.pack())

    def announce(self, ip: IPv6Address, is_router: bool) -> None:
        """Tell the link that we receive for a guest's address (A5)."""
        hwaddr = self._queue_pairs.hwaddr(self._guests.mac(ip))
        message = NeighbourAdvertisement(ip, ALL_NODES, ip, hwaddr, router=is_router, override=True)
        self._send(message.pack(), None, ALL_NODES, hwaddr)

    def search(self, sender: IPv6Address, target: IPv6Address) -> None:
        """Ask the link for `target` in the name of a guest."""
        group = solicited_node(target)
        hwaddr = self._queue_pairs.hwaddr(self._guests.mac(sender))
        message = NeighbourSolicitation(sender, group, target, hwaddr)
        self._send(message.pack(), None, group, hwaddr)

    def _deliver(self, receiver: Mac, sender: Mac, packet: bytes) -> None:
        frame = Frame(receiver, sender, EtherType.IPV6, packet)
        self._context.emit(Deliver(frame.pack()))

    def _send(
        self, packet: bytes, receiver: HwAddr | None, group: IPv6Address | None, source: HwAddr
    ) -> None:
        context = self._context
        if len(packet) > context.config.mtu_bytes:
            context.count("ethernet_too_long")
        elif group is not None:
            context.send(context.group(context.mgid(group)), EtherType.IPV6, packet, source)
        elif receiver is not None:
            context.send(context.unicast(receiver), EtherType.IPV6, packet, source)


def _target(message: ndisc.Message) -> IPv6Address:
    if isinstance(message, Redirect | NeighbourAdvertisement | NeighbourSolicitation):
        return message.target
    return message.source


def _mac_untrusted(body: bytes) -> Mac:
    if len(body) != MAC_LEN:
        raise BadFrame("lladdr_length")
    mac = Mac(body)
    if not mac.is_host:
        raise BadFrame("lladdr_not_unicast")
    return mac


def _hwaddr_untrusted(body: bytes) -> HwAddr:
    if len(body) != len(_PADDING) + HWADDR_LEN:
        raise BadFrame("lladdr_length")
    return lladdr.parse_untrusted(body[len(_PADDING) :])
