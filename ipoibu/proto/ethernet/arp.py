# SPDX-License-Identifier: BSD-2-Clause
"""ARP between guests and the link: RFC 826 with 6-byte addresses here, with 20-byte ones there (R1, H1, H2).

A message keeps its addresses of IPv4. Towards the link the sender is the guest by its queue pair, or the
interface for a guest that has none; towards the guests it is the MAC of the neighbour. So a guest answers
for its address itself, defends it itself (RFC 5227) and announces it itself.
"""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Final

from ipoibu.base.addr import HwAddr, Mac
from ipoibu.proto.context import EngineContext, FrameSource
from ipoibu.proto.effects import Deliver
from ipoibu.proto.ethernet.guests import Guests
from ipoibu.proto.ethernet.macs import Macs
from ipoibu.proto.ethernet.queue_pairs import QueuePairs
from ipoibu.wire import arp, ethernet, ethernet_arp
from ipoibu.wire.encap import EtherType
from ipoibu.wire.ethernet import BROADCAST, Frame
from ipoibu.wire.ethernet_arp import EthernetArp
from ipoibu.wire.mgid import LIMITED_BROADCAST

_NO_ADDRESS: Final = IPv4Address(0)


class GuestArp:
    """Translates ARP; the caller has checked the source MAC of a guest's frame."""

    def __init__(
        self, context: EngineContext, macs: Macs, guests: Guests, queue_pairs: QueuePairs
    ) -> None:
        self._context = context
        self._macs = macs
        self._guests = guests
        self._queue_pairs = queue_pairs

    # -- from guests -----------------------------------------------------------------------------

    def note_sent_untrusted(self, now: float, frame: Frame) -> None:
        """Take a guest's message; `BadFrame` for an invalid one."""
        message = ethernet_arp.parse_untrusted(frame.payload)
        is_announcement = message.is_announcement and frame.destination.is_group
        if message.sender_mac != frame.source:
            self._context.drop(now, frame.source, "ethernet_spoofed")
        elif message.is_probe:
            if self._guests.note_probed(now, message.target_ip, frame.source):
                self._forward(frame, message)
            else:
                self._context.drop(now, frame.source, "ethernet_spoofed")
        elif self._guests.note_claimed(
            now, message.sender_ip, frame.source, announces=is_announcement
        ):
            self._forward(frame, message)
        else:
            self._context.drop(now, frame.source, "ethernet_spoofed")

    def _forward(self, frame: Frame, message: EthernetArp) -> None:
        if frame.destination == self._macs.own:
            return  # the answer to our own question
        receiver = self._macs.hwaddr(frame.destination)
        is_request = message.operation == arp.REQUEST
        if receiver is None and not frame.destination.is_group and not is_request:
            self._context.count("ethernet_unknown_mac")
            return
        if is_request and not message.is_announcement and self._is_inside(message):
            return  # the bridge has passed it to the guest that has the address
        target = self._macs.hwaddr(message.target_mac) or receiver
        translated = arp.Arp(
            message.operation,
            self._queue_pairs.hwaddr(frame.source),
            message.sender_ip,
            arp.NOBODY if target is None else target,
            message.target_ip,
        )
        # A unicast request to a MAC that we do not know, as after a restart, asks all hosts.
        self._send(translated, receiver)

    def _is_inside(self, message: EthernetArp) -> bool:
        mac = self._guests.mac(message.target_ip)
        return mac is not None and not message.is_probe and self._guests.is_firm(message.target_ip)

    # -- from the link ---------------------------------------------------------------------------

    def receive_untrusted(self, now: float, source: FrameSource, payload: bytes) -> None:
        """Take a message of the link, without its encapsulation header; `BadFrame` for an invalid one."""
        message = arp.parse_untrusted(payload)
        sender = message.sender_hwaddr
        is_multicast = source.dgid is not None and source.dgid.is_multicast
        if self._context.is_ours(sender):
            self._context.drop(now, source, "echo")
            return
        is_answer = message.operation == arp.REPLY and not is_multicast
        if source.contradicts(sender) and not is_answer:
            text = f"ARP of {message.sender_ip} names {sender}, but comes from {source}"
            self._context.warn("neigh_contradiction", now, text)
            return
        announces = message.sender_ip == message.target_ip and is_multicast
        is_probe = message.sender_ip == _NO_ADDRESS
        guest = self._answered(message)  # before the answer ends what the guest wanted
        if not is_probe and not self._guests.note_contested(
            now, message.sender_ip, announces=announces
        ):
            self._context.drop(now, source, "ethernet_spoofed")
            return
        self._pass_on(now, message, guest, is_multicast=is_multicast)

    def _answered(self, message: arp.Arp) -> Mac | None:
        """Return the guest to which the link speaks: an answer to a probe names no IP address of it, and
        guests look for their MAC in it (RFC 826, RFC 5227 §2.1.1)."""
        if message.operation == arp.REPLY and message.target_ip == _NO_ADDRESS:
            return self._guests.prober(message.sender_ip)
        return self._guests.mac(message.target_ip)

    def _pass_on(
        self, now: float, message: arp.Arp, guest: Mac | None, *, is_multicast: bool
    ) -> None:
        mac = self._macs.learn(now, message.sender_hwaddr)
        receiver = BROADCAST if is_multicast or guest is None else guest
        is_request = message.operation == arp.REQUEST
        target = ethernet_arp.NOBODY if is_request or guest is None else guest
        translated = EthernetArp(
            message.operation, mac, message.sender_ip, target, message.target_ip
        )
        frame = Frame(receiver, mac, EtherType.ARP, translated.pack())
        self._context.emit(Deliver(frame.pack()))

    # -- of our own ------------------------------------------------------------------------------

    def ask(self, ip: IPv4Address, mac: Mac) -> None:
        """Ask a guest (or with `BROADCAST` all guests) for `ip`, as a probe does: no cache changes."""
        question = EthernetArp(arp.REQUEST, self._macs.own, _NO_ADDRESS, ethernet_arp.NOBODY, ip)
        frame = ethernet.Frame(mac, self._macs.own, EtherType.ARP, question.pack())
        self._context.emit(Deliver(frame.pack()))

    def announce(self, ip: IPv4Address) -> None:
        """Tell the link that we receive for a guest's address (A5)."""
        self._send(arp.request(self._hwaddr(ip), ip, ip), None)

    def search(self, sender: IPv4Address, target: IPv4Address) -> None:
        """Ask the link for `target` in the name of a guest."""
        self._send(arp.request(self._hwaddr(sender), sender, target), None)

    def _hwaddr(self, ip: IPv4Address) -> HwAddr:
        return self._queue_pairs.hwaddr(self._guests.mac(ip))

    def _send(self, message: arp.Arp, receiver: HwAddr | None) -> None:
        context = self._context
        if receiver is None:
            destination = context.group(context.mgid(LIMITED_BROADCAST))
        else:
            destination = context.unicast(receiver)
        context.send(destination, EtherType.ARP, message.pack(), message.sender_hwaddr)
