# SPDX-License-Identifier: BSD-2-Clause
"""The form of a DHCP message on the link, in place of a client's own form (RFC 4390), and back."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Final

from ipoibu.base.errors import BadFrame
from ipoibu.wire import client_id, dhcp, ip, udp

ZERO_ADDRESS: Final = bytes(16)
_UNSPECIFIED: Final = bytes(4)


def message_untrusted(packet: bytes) -> tuple[ip.Ipv4, udp.Datagram, dhcp.Message]:
    """Read a DHCP message in an IPv4 packet, with its headers."""
    header = ip.parse_untrusted(packet)
    datagram = udp.parse_untrusted(header)
    if datagram is None or isinstance(header, ip.Ipv6):
        raise BadFrame("ip_version")  # the pump sends only UDP of IPv4 up
    return header, datagram, dhcp.message_untrusted(datagram.payload)


def repacked(header: ip.Ipv4, datagram: udp.Datagram, message: dhcp.Message) -> bytes:
    """Return the packet with another message."""
    datagram = replace(datagram, payload=message.pack())
    return replace(header, payload=datagram.pack()).pack()


def is_clients_request(message: dhcp.Message) -> bool:
    """Return whether a client sends it, and not a relay agent whose client is elsewhere."""
    return message.op == dhcp.Op.REQUEST and message.giaddr.packed == _UNSPECIFIED


def identifier_of(message: dhcp.Message, other: bytes) -> bytes:
    """Return the client identifier of a request, or `other` if it names nobody."""
    own = message.option(dhcp.Code.CLIENT_ID)
    return other if own is None or not any(own[1:]) else own


def transaction_of(xid: int, identifier: bytes) -> int:
    """Return the link's transaction for a client's own, and back. Replies are broadcast, name no hardware
    address and seldom the identifier, so that two clients with one number would take each other's lease:
    those that a boot starts at once do choose the same one."""
    return xid ^ zlib.crc32(identifier)


def for_link(message: dhcp.Message, identifier: bytes) -> dhcp.Message:
    """Return a request in the link's form: hardware type 32, no hardware address, the identifier and its
    transaction; while the client has no address, it asks for replies by broadcast (RFC 4390 §2.1)."""
    flags = message.flags
    if message.ciaddr.packed == _UNSPECIFIED:
        flags |= dhcp.BROADCAST_FLAG
    changed = replace(
        message,
        xid=transaction_of(message.xid, identifier),
        htype=client_id.HTYPE_INFINIBAND,
        hlen=0,
        chaddr=ZERO_ADDRESS,
        flags=flags,
    )
    return changed.with_option(dhcp.Code.CLIENT_ID, identifier)


def with_own_identifier(reply: dhcp.Message, own: bytes | None) -> dhcp.Message:
    """Return a reply with what the client wrote as its identifier; a server may repeat it (RFC 6842)."""
    if own is None:
        return reply.without_option(dhcp.Code.CLIENT_ID)
    if reply.option(dhcp.Code.CLIENT_ID) is None:
        return reply
    return reply.with_option(dhcp.Code.CLIENT_ID, own)
