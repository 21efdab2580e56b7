# SPDX-License-Identifier: BSD-2-Clause
"""ARP for neighbours and addresses: RFC 826, RFC 5227, RFC 4391 §9.2 (R1-R3).

The effect of a message on the neighbour cache, in the terms of RFC 4861 §7.2.5:

    a unicast reply to us         solicited, override     confirms an entry, or replaces its address
    any other message to an       introduction            makes an entry, or moves one (R2)
    address that we answer for
    any other message             override                moves an existing entry (R2), as the
                                                          gratuitous ARP of a restarted peer does (A5)
    a probe (sender 0.0.0.0)      none, by RFC 5227 §2.1; see `Neighbours.suspect`
    a hardware address that is    none, unless it answers our question (a proxy's answer)
    not the datagram's sender
"""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Final

from ipoibu.base.addr import HwAddr, IpAddress
from ipoibu.proto.context import EngineContext, FrameSource, is_host
from ipoibu.proto.effects import AskArp, AskProxy
from ipoibu.proto.neigh.dad import Addresses
from ipoibu.proto.neigh.host_addresses import Delivery, HostAddresses
from ipoibu.proto.neigh.moves import Moves
from ipoibu.proto.neigh.neighbours import Neighbours
from ipoibu.proto.neigh.proxy_entries import ProxyEntries
from ipoibu.proto.neigh.proxy_networks import ProxyNetworks, ProxyRoute
from ipoibu.wire import arp
from ipoibu.wire.encap import EtherType
from ipoibu.wire.mgid import LIMITED_BROADCAST

_NO_ADDRESS: Final = IPv4Address(0)


class ArpResolver:
    """Sends and receives ARP for IPv4; a `Resolver`."""

    def __init__(
        self,
        context: EngineContext,
        neighbours: Neighbours,
        addresses: Addresses,
        host: HostAddresses,
        *,
        proxies: ProxyEntries,
        proxied: ProxyNetworks,
        moves: Moves,
    ) -> None:
        self._context = context
        self._neighbours = neighbours
        self._addresses = addresses
        self._host = host
        self._proxies = proxies
        self._proxied = proxied
        self._moves = moves

    def solicit(
        self, now: float, target: IpAddress, known: HwAddr | None, preferred: IpAddress | None
    ) -> None:
        source = self._host.source_for(target, preferred)
        if source is None:
            self._context.count("arp_no_source")
            return
        self._ask(_v4(source), _v4(target), known)

    def probe(self, address: IpAddress) -> None:
        """RFC 5227 §2.1.1: the probe comes from 0.0.0.0, so that no host changes its cache."""
        self._ask(_NO_ADDRESS, _v4(address))

    def announce(self, address: IpAddress) -> None:
        """RFC 5227 §2.3: send a request for our own address, which every receiver merges (R2)."""
        self._ask(_v4(address), _v4(address))

    def receive_untrusted(self, now: float, source: FrameSource, payload: bytes) -> None:
        """Take one ARP message, without the encapsulation header; `BadFrame` for an invalid one."""
        message = arp.parse_untrusted(payload)
        sender, hwaddr = message.sender_ip, message.sender_hwaddr
        if hwaddr.same_queue_pair(self._context.hwaddr):
            self._context.drop(now, source, "echo")
        elif self._neighbours.refuses(
            now, sender, hwaddr, source, is_answer=self._is_answer(source, message)
        ):
            pass
        elif sender in self._addresses:
            self._addresses.note_claimed(now, sender, hwaddr)
        elif sender == _NO_ADDRESS:
            self._take_probe(now, source, message)
        elif not self._is_sender(sender):
            self._context.drop(now, source, "arp_sender")
        elif self._is_answer(source, message):
            self._neighbours.note_advertised(now, sender, hwaddr, solicited=True, override=True)
        elif self._asks_kernel(message):
            self._note_sender(now, message)
            self._context.emit(AskArp(message, _is_multicast(source)))
        elif not self._answers(sender, message.target_ip):
            self._note_sender(now, message)
            self._ask_proxy(now, message, _is_multicast(source))
        else:
            self._neighbours.note_introduced(now, sender, hwaddr)
            if message.operation == arp.REQUEST:
                is_ours = self._host.answers(sender, message.target_ip)
                self._answer_soon(now, message, is_multicast=_is_multicast(source), is_ours=is_ours)

    def note_arp_answer(
        self, now: float, request: arp.Arp, delivery: Delivery | None, is_multicast: bool
    ) -> None:
        """Take what the kernel does with packets to the address that `request` asks for."""
        sender = request.sender_ip
        if not self._host.answers_by(delivery, sender, request.target_ip):
            self._ask_proxy(now, request, is_multicast)
            return
        if sender != _NO_ADDRESS:
            self._neighbours.note_introduced(now, sender, request.sender_hwaddr)
        is_ours = delivery == "local"
        self._answer_soon(now, request, is_multicast=is_multicast, is_ours=is_ours)

    def _answer_soon(
        self, now: float, request: arp.Arp, *, is_multicast: bool, is_ours: bool
    ) -> None:
        if is_ours:
            self._answer(request)
        else:
            self._proxied.answer(now, AskProxy(request, request.sender_hwaddr, is_multicast))

    def note_proxy_answer(self, now: float, question: AskProxy, route: ProxyRoute | None) -> None:
        """Take the kernel's route to the address that a request asks for."""
        request = question.request
        if isinstance(request, arp.Arp) and self._proxied.note_answer(now, question, route):
            self._neighbours.note_introduced(now, request.sender_ip, request.sender_hwaddr)

    def answer(self, question: AskProxy) -> None:
        """Answer a request as a proxy."""
        if isinstance(question.request, arp.Arp):
            self._answer(question.request)

    def _note_sender(self, now: float, message: arp.Arp) -> None:
        """Take the message as an announcement of its sender (R2)."""
        sender, hwaddr = message.sender_ip, message.sender_hwaddr
        self._proxied.note_claimed(now, sender, hwaddr)
        self._neighbours.note_advertised(now, sender, hwaddr, solicited=False, override=True)
        if sender == message.target_ip:
            self._moves.note_heard(now)

    def _ask_proxy(self, now: float, message: arp.Arp, is_multicast: bool) -> None:
        if (
            message.operation == arp.REQUEST
            and not self._addresses.is_directed_broadcast(message.target_ip)
            and self._proxied.concerns(message.sender_ip, message.target_ip)
        ):
            question = AskProxy(message, message.sender_hwaddr, is_multicast)
            if self._proxied.may_ask(now, question):
                self._context.emit(question)

    def _is_answer(self, source: FrameSource, message: arp.Arp) -> bool:
        is_reply = message.operation == arp.REPLY and not _is_multicast(source)
        return is_reply and self._host.is_ours(message.target_ip)

    def _asks_kernel(self, message: arp.Arp) -> bool:
        return (
            message.operation == arp.REQUEST
            and message.target_ip not in self._proxies
            and self._host.asks_kernel(message.sender_ip, message.target_ip)
        )

    def _answers(self, sender: IPv4Address, target: IPv4Address) -> bool:
        return target in self._proxies or self._host.answers(sender, target)

    def _is_sender(self, ip: IPv4Address) -> bool:
        """Return whether another host may have `ip`."""
        return (
            is_host(ip) and not self._addresses.is_directed_broadcast(ip) and ip not in self._host
        )

    def _take_probe(self, now: float, source: FrameSource, message: arp.Arp) -> None:
        target = message.target_ip
        if message.operation != arp.REQUEST:
            self._context.drop(now, source, "arp_sender")
        elif self._host.is_ours(target):
            if self._host.answers(_NO_ADDRESS, target):
                self._answer(message)
        elif target in self._addresses:
            self._addresses.note_probed(now, target)
        else:
            self._neighbours.suspect(now, target, message.sender_hwaddr)
            if self._host.asks_kernel(_NO_ADDRESS, target):
                self._context.emit(AskArp(message, _is_multicast(source)))

    def _answer(self, message: arp.Arp) -> None:
        """Answer only the host that asked, by datagram (R1, N6)."""
        self._send(message.answer(self._context.hwaddr), message.sender_hwaddr)

    def _ask(self, source: IPv4Address, target: IPv4Address, known: HwAddr | None = None) -> None:
        self._send(arp.request(self._context.hwaddr, source, target), known)

    def _send(self, message: arp.Arp, to: HwAddr | None) -> None:
        context = self._context
        if to is None:
            destination = context.group(context.mgid(LIMITED_BROADCAST))
        else:
            destination = context.unicast(to)
        context.send(destination, EtherType.ARP, message.pack())


def _is_multicast(source: FrameSource) -> bool:
    return source.dgid is not None and source.dgid.is_multicast


def _v4(ip: IpAddress) -> IPv4Address:
    assert isinstance(ip, IPv4Address), "the resolver for IPv4 gets IPv4 addresses"
    return ip
