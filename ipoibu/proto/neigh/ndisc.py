# SPDX-License-Identifier: BSD-2-Clause
"""Neighbour discovery for neighbours and addresses: RFC 4861 §7.2, §6, §8 (N1-N7, L6).

The local stack handles router solicitations, router advertisements and redirects. It cannot read their
link-layer option: `NdResolver` takes the address from it, and delivers the packet without the option.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from ipaddress import IPv6Address

from ipoibu.base.addr import HwAddr, IpAddress
from ipoibu.base.limits import REDIRECTS_BURST, REDIRECTS_PER_S
from ipoibu.proto.context import EngineContext, FrameSource, is_host
from ipoibu.proto.effects import AskProxy, Deliver, Log
from ipoibu.proto.machine.ratelimit import TokenBucket
from ipoibu.proto.neigh.dad import Addresses
from ipoibu.proto.neigh.moves import Moves
from ipoibu.proto.neigh.neighbours import Neighbours
from ipoibu.proto.neigh.proxy_entries import ProxyEntries
from ipoibu.proto.neigh.proxy_networks import ProxyNetworks, ProxyRoute
from ipoibu.proto.neigh.routers import Routers
from ipoibu.wire import ndisc
from ipoibu.wire.encap import EtherType
from ipoibu.wire.mgid import solicited_node
from ipoibu.wire.ndisc import (
    ALL_NODES,
    NeighbourAdvertisement,
    NeighbourSolicitation,
    Redirect,
    RouterAdvertisement,
    RouterSolicitation,
)

_NO_ADDRESS = IPv6Address(0)


class NdResolver:
    """Sends and receives neighbour discovery for IPv6; a `Resolver`."""

    def __init__(
        self,
        context: EngineContext,
        neighbours: Neighbours,
        addresses: Addresses,
        routers: Routers,
        *,
        proxies: ProxyEntries,
        proxied: ProxyNetworks,
        moves: Moves,
    ) -> None:
        self._context = context
        self._neighbours = neighbours
        self._addresses = addresses
        self._routers = routers
        self._proxies = proxies
        self._proxied = proxied
        self._moves = moves
        self._redirected = TokenBucket(REDIRECTS_PER_S, REDIRECTS_BURST)

    def solicit(
        self, now: float, target: IpAddress, known: HwAddr | None, preferred: IpAddress | None
    ) -> None:
        """Ask the solicited-node group (N3), or the `known` host itself when probing it (§7.3.3)."""
        source = self._addresses.source_for(target, preferred)
        if source is None:
            self._context.count("nd_no_source")
            return
        target = _v6(target)
        destination = solicited_node(target) if known is None else target
        self._send(
            NeighbourSolicitation(_v6(source), destination, target, self._context.hwaddr), known
        )

    def probe(self, address: IpAddress) -> None:
        """RFC 4862 §5.4.2: the probe comes from the unspecified address, without an option (N2)."""
        target = _v6(address)
        self._send(NeighbourSolicitation(_NO_ADDRESS, solicited_node(target), target))

    def announce(self, address: IpAddress) -> None:
        """RFC 4861 §7.2.6: send an unsolicited advertisement to all nodes, which overrides (A5).

        It may do so for a host behind us, too (§7.2.8), which is no router of this link.
        """
        is_ours = address in self._addresses
        source = address if is_ours else self._addresses.source_for(ALL_NODES, None)
        if source is None:
            self._context.count("nd_no_source")
            return
        self._send(
            NeighbourAdvertisement(
                _v6(source),
                ALL_NODES,
                _v6(address),
                self._context.hwaddr,
                router=is_ours and self._context.config.is_router,
                override=True,
            )
        )

    def receive_untrusted(self, now: float, source: FrameSource, packet: bytes) -> None:
        """Take one packet of a `ndisc.Kind`; `BadFrame` if it breaks a rule of N2."""
        message = ndisc.parse_untrusted(packet)
        if message.lladdr and message.lladdr.same_queue_pair(self._context.hwaddr):
            self._context.drop(now, source, "echo")
            return
        if self._is_refused(now, source, message):
            if not isinstance(message, RouterAdvertisement | RouterSolicitation):
                return
            message = replace(message, lladdr=None)  # which any sender may leave out (§4.1, §4.2)
        match message:
            case NeighbourAdvertisement():
                self._take_advertisement(now, message)
                return
            case NeighbourSolicitation() if message.source.is_unspecified:
                self._take_probe(now, source, message)
                return
        if message.source in self._addresses:
            self._addresses.note_claimed(now, message.source, message.lladdr)
            return
        if not (is_host(message.source) or message.source.is_unspecified):
            self._context.drop(now, source, "nd_source")
            return
        match message:
            case NeighbourSolicitation():
                self._take_solicitation(now, source, message)
                return
            case RouterSolicitation() if self._context.config.is_router:  # §6.1.1: else ignore it
                self._learn(now, message.source, message.lladdr, is_router=False)
            case RouterAdvertisement():
                sender = message.lladdr or _sender(source)
                is_used = self._routers.advertised_untrusted(now, message, packet, sender)
                # a router without a place gets none among the neighbours, either
                if is_used or self._neighbours.hwaddr(message.source) is not None:
                    self._learn(now, message.source, message.lladdr, is_router=True)
                return
            case Redirect() if is_host(message.target) and message.target not in self._addresses:
                is_router = message.target != message.redirected  # RFC 4861 §8.3
                if self._may_redirect(now, message):
                    self._learn(now, message.target, message.lladdr, is_router)
        self._context.emit(Deliver(ndisc.strip_untrusted(packet)[0]))

    def _may_redirect(self, now: float, message: Redirect) -> bool:
        """Return whether a redirect may teach us its target.

        Packets of ours go to its sender, as RFC 4861 §8.1 demands; the stack checks that for the packet's
        destination. Of many new targets we ask when we send to them.
        """
        source = message.source
        if source not in self._routers and not self._neighbours.is_gateway(source):
            return False
        if self._neighbours.hwaddr(message.target) is not None or self._redirected.take(now):
            return True
        text = f"too many redirects of {source}: learned no address from some"
        self._context.warn("redirect_limited", now, text)
        return False

    def _is_refused(self, now: float, source: FrameSource, message: ndisc.Message) -> bool:
        """Return whether the option contradicts the datagram; a redirect names another host anyway."""
        if message.lladdr is None or isinstance(message, Redirect):
            return False
        if isinstance(message, NeighbourAdvertisement):
            about, is_answer = message.target, message.solicited
        else:
            about, is_answer = message.source, False
        return self._neighbours.refuses(now, about, message.lladdr, source, is_answer=is_answer)

    def _take_solicitation(
        self, now: float, source: FrameSource, message: NeighbourSolicitation
    ) -> None:
        """RFC 4861 §7.2.3: answer for our own target; ignore a tentative or foreign one."""
        is_optimistic = self._addresses.is_optimistic(message.target)
        is_ours = self._addresses.is_ours(message.target) or is_optimistic
        if not is_ours and message.target not in self._proxies:
            if message.target not in self._addresses:  # else a tentative one
                self._ask_proxy(now, message, message.lladdr or _sender(source))
            return
        if message.lladdr is not None:
            self._neighbours.note_introduced(now, message.source, message.lladdr)
        asker = message.lladdr or self._neighbours.hwaddr(message.source) or _sender(source)
        if asker is None:
            self._context.drop(now, source, "nd_no_lladdr")
        elif is_ours:
            self._answer(message, asker)
        else:
            self._answer_soon(now, message, asker)

    def _answer_soon(
        self, now: float, message: NeighbourSolicitation, asker: HwAddr | None
    ) -> None:
        self._proxied.answer(now, AskProxy(message, asker, message.destination.is_multicast))

    def _take_probe(self, now: float, source: FrameSource, message: NeighbourSolicitation) -> None:
        """RFC 4862 §5.4.3: another host probes for the target."""
        prober = _sender(source)
        if message.target in self._addresses:
            if self._addresses.is_ours(message.target):
                self._answer(message, None)
            else:
                self._addresses.note_probed(now, message.target)
        elif message.target in self._proxies:
            self._answer_soon(now, message, None)
        else:
            if prober is not None:
                self._neighbours.suspect(now, message.target, prober)
            self._ask_proxy(now, message, None)

    def _ask_proxy(self, now: float, message: NeighbourSolicitation, asker: HwAddr | None) -> None:
        if self._proxied.concerns(message.source, message.target):
            is_multicast = message.destination.is_multicast
            question = AskProxy(message, asker, is_multicast)
            if self._proxied.may_ask(now, question):
                self._context.emit(question)

    def note_proxy_answer(self, now: float, question: AskProxy, route: ProxyRoute | None) -> None:
        """Take the kernel's route to the target of a solicitation."""
        request = question.request
        if not isinstance(request, NeighbourSolicitation):
            return
        if self._proxied.note_answer(now, question, route) and request.lladdr is not None:
            self._neighbours.note_introduced(now, request.source, request.lladdr)

    def answer(self, question: AskProxy) -> None:
        """Answer a solicitation as a proxy."""
        request = question.request
        if not isinstance(request, NeighbourSolicitation):
            return
        if question.asker is None and not request.source.is_unspecified:
            self._context.count("nd_no_lladdr")
        else:
            self._answer(request, question.asker)

    def _take_advertisement(self, now: float, message: NeighbourAdvertisement) -> None:
        """RFC 4861 §7.2.5 and, for our own addresses, RFC 4862 §5.4.4."""
        target = message.target
        if target in self._addresses:
            self._addresses.note_claimed(now, target, message.lladdr)
            return
        self._proxied.note_claimed(now, target, message.lladdr)
        is_valid = self._neighbours.note_advertised(
            now, target, message.lladdr, solicited=message.solicited, override=message.override
        )
        if not message.solicited:
            self._moves.note_heard(now)
        if not is_valid:
            return
        if message.solicited and message.router:
            self._routers.note_answered(now, target, is_router=True)
        ceased = self._neighbours.set_router(target, message.router)
        if ceased:
            self._context.emit(Log(logging.INFO, f"{target} is no longer a router"))
        if not message.router and self._neighbours.hwaddr(target) is not None:
            self._routers.note_ceased(now, target)

    def _learn(self, now: float, ip: IPv6Address, hwaddr: HwAddr | None, is_router: bool) -> None:
        if hwaddr is not None:
            self._neighbours.note_introduced(now, ip, hwaddr)
        self._neighbours.set_router(ip, is_router)

    def _answer(self, message: NeighbourSolicitation, asker: HwAddr | None) -> None:
        """RFC 4861 §7.2.4: answer the asker, or all nodes if the asker has no address yet (N4)."""
        answer = message.answer(self._context.hwaddr, self._context.config.is_router)
        if self._addresses.is_optimistic(message.target):
            answer = replace(answer, override=False)  # RFC 4429 §3.3: the owner's answer is better
        elif message.target not in self._addresses:
            # §7.2.7, §7.2.8 (N11): another owner's answer overrides ours
            source = self._addresses.source_for(answer.destination, None)
            if source is None:
                self._context.count("nd_no_source")
                return
            # A host behind us is no router of this link: Linux without NTF_ROUTER says the same.
            is_router = answer.router and message.target in self._proxies
            answer = replace(answer, source=_v6(source), override=False)
            answer = replace(answer, router=is_router)
        self._send(answer, asker)

    def _send(
        self, message: NeighbourSolicitation | NeighbourAdvertisement, to: HwAddr | None = None
    ) -> None:
        context = self._context
        if to is None:
            destination = context.group(context.mgid(message.destination))
        else:
            destination = context.unicast(to)
        context.send(destination, EtherType.IPV6, message.pack())


def _sender(source: FrameSource) -> HwAddr | None:
    """Return the hardware address of a datagram's sender, if the datagram had a GRH."""
    return None if source.sgid is None else HwAddr(source.qpn, source.sgid)


def _v6(ip: IpAddress) -> IPv6Address:
    assert isinstance(ip, IPv6Address), "the resolver for IPv6 gets IPv6 addresses"
    return ip
