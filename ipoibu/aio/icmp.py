# SPDX-License-Identifier: BSD-2-Clause
"""What the host of sockets answers by ICMP, and what it learns from it: RFC 1122 §3.2.2, RFC 4443."""

from __future__ import annotations

import errno
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Final

from ipoibu.aio.address import Flow, Place, error
from ipoibu.base.limits import (
    AIO_ECHO_BURST,
    AIO_ECHO_PER_S,
    AIO_UNREACHABLE_BURST,
    AIO_UNREACHABLE_PER_S,
)
from ipoibu.proto.machine.ratelimit import TokenBucket
from ipoibu.wire import fragment, icmp_message, ip, udp
from ipoibu.wire.icmp_message import Report, Trouble

if TYPE_CHECKING:
    from ipoibu.aio.network import Network

# The kernel's errors of a socket
_NUMBERS: Final = {
    Trouble.PORT: errno.ECONNREFUSED,
    Trouble.HOST: errno.EHOSTUNREACH,
    Trouble.NETWORK: errno.ENETUNREACH,
    Trouble.REFUSED: errno.EACCES,
    Trouble.TIME: errno.EHOSTUNREACH,
    Trouble.HEADER: errno.EPROTO,
    Trouble.TOO_BIG: errno.EMSGSIZE,
}


class Icmp:
    """Answers echo requests and datagrams to closed ports, at limited rates, and hands errors to the socket
    that sent the packet."""

    def __init__(self, host: Network) -> None:
        self._host = host
        self._echoes = TokenBucket(AIO_ECHO_PER_S, AIO_ECHO_BURST)
        self._refusals = TokenBucket(AIO_UNREACHABLE_PER_S, AIO_UNREACHABLE_BURST)

    def take_untrusted(self, now: float, packet: ip.Packet) -> None:
        reply = icmp_message.echo_reply_untrusted(packet)
        if reply is not None:
            self._answer(now, packet, reply)
            return
        report = icmp_message.report_untrusted(packet)
        if report is None:
            self._host.counts["icmp_other"] += 1
        else:
            self.note(now, report)

    def _answer(self, now: float, request: ip.Packet, reply: ip.Packet) -> None:
        host, asker = self._host, request.source
        is_ours = host.is_own(request.destination)
        if not is_ours or asker.is_multicast or asker.is_unspecified or host.is_broadcast(asker):
            host.counts["icmp_other"] += 1
        elif not self._echoes.take(now):
            host.counts["echo_limited"] += 1
        else:
            host.counts["echo_answered"] += 1
            self._send(reply)

    def _send(self, packet: ip.Packet) -> None:
        host = self._host
        mtu = host.mtu_to(packet.destination)
        headers = 20 if isinstance(packet, ip.Ipv4) else 40
        if len(packet.payload) + headers <= mtu:
            packets = [packet.pack()]
        else:
            packets = fragment.split(packet, mtu, host.identification())
        if host.endpoint.packet_queue.send(packets) < len(packets):
            host.counts["answer_unsent"] += 1

    def refuse(self, now: float, flow: Flow, payload: bytes) -> None:
        """Tell the sender of a datagram that nobody listens at its port."""
        if not self._refusals.take(now):
            self._host.counts["unreachable_limited"] += 1
            return
        source, destination = flow.source, flow.destination
        segment = udp.Datagram(
            source.ip, source.port, destination.ip, destination.port, payload
        ).pack()
        packet: ip.Packet
        if isinstance(source.ip, IPv4Address) and isinstance(destination.ip, IPv4Address):
            packet = ip.Ipv4(source.ip, destination.ip, udp.PROTOCOL, segment)
        else:
            assert isinstance(source.ip, IPv6Address)
            assert isinstance(destination.ip, IPv6Address)
            packet = ip.Ipv6(source.ip, destination.ip, udp.PROTOCOL, segment)
        answer = icmp_message.port_unreachable_untrusted(packet.pack())
        if answer is not None and self._host.endpoint.packet_queue.send([answer]) == 0:
            self._host.counts["answer_unsent"] += 1

    def refuse_own(self, flow: Flow) -> None:
        """Tell our own socket that nobody listens at the port to which it has sent."""
        if flow.destination.ip.is_multicast:
            return
        self._tell(flow, Trouble.PORT)

    def note(self, now: float, report: Report) -> None:
        """Take an error, if it is about a datagram that one of our sockets may have sent."""
        host = self._host
        if report.protocol != udp.PROTOCOL or not host.is_own(report.source):
            host.counts["icmp_other"] += 1
            return
        flow = Flow(
            Place(report.source, report.source_port),
            Place(report.destination, report.destination_port),
        )
        if report.trouble is not Trouble.TOO_BIG:
            self._tell(flow, report.trouble)
            return
        senders = [it for it in host.ports.at(flow.source.port) if it.has_sent_to(flow.destination)]
        if not senders:
            host.counts["icmp_unproven"] += 1
            return
        host.counts["too_big"] += 1
        link_mtu = host.endpoint.mtu
        if host.path_mtus.lower(now, report.destination, report.mtu_bytes, link_mtu):
            for each in host.ports:
                each.on_change()
        self._tell(flow, Trouble.TOO_BIG, only_unfragmented=True)

    def _tell(self, sent: Flow, trouble: Trouble, only_unfragmented: bool = False) -> None:
        """Report to the connected socket that sent such a datagram, as the kernel does."""
        answer = Flow(sent.destination, sent.source)
        socket = self._host.ports.best_for(answer)
        if socket is None or socket.remote != sent.destination:
            self._host.counts["icmp_unconnected"] += 1
        elif socket.dont_fragment or not only_unfragmented:
            socket.on_error(error(_NUMBERS[trouble], sent.destination.ip))
