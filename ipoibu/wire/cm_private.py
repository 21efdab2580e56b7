# SPDX-License-Identifier: BSD-2-Clause
"""IPoIB's private data in REQ, REP and REJ: RFC 4755 §6 (C3, C4), and the service IDs of its REQ (C7).

    | 0 8b | QPN 24b | receive MTU 4 |      RFC 4755; the QPN is that of the sender's datagrams
    | "ipou" 4 | version 1 | 0 1 | longest packet 2 | largest message 4 |      our extension

Our extension follows the RFC's eight bytes: RFC 4755 defines no more, and Linux and illumos read no more,
so other implementations ignore it. It does not use the RFC's own reserved byte, although receivers must
mask that (C4): senders must leave it 0, a peer that compares whole fields would see another QPN, and a bit
can be set by mistake where four letters cannot. "Largest message" is the largest super-frame that the
sender takes, vnet header and encapsulation header included; 0, or no extension, means no super-frames.
"Longest packet" is the payload of the longest packet that the sender takes, where that need not be an
InfiniBand MTU; 0, or no extension, means the MTU of the REQ. If both ends give one, `agreed_packet_bytes`
of the smaller one is the path MTU: each packet of a message but the last carries that many bytes.

A connection's receive MTU counts the encapsulation header (C4).
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Final

from ipoibu.base.addr import MULTICAST_QPN, Qpn
from ipoibu.base.errors import BadFrame
from ipoibu.base.limits import (
    CONNECTED_MTU,
    ENCAP_LEN,
    IB_MTUS,
    IPV4_MIN_MTU,
    SUPERFRAME_BYTES_MAX,
    SUPERFRAME_HEADER_BYTES,
)
from ipoibu.wire import Octets, cm_rdmacm
from ipoibu.wire.bits import join

REASONS: Final = frozenset({"cm_private_short", "cm_private_qpn", "cm_private_mtu"})

VERSION: Final = 1
RECEIVE_MTU_MAX_BYTES: Final = CONNECTED_MTU + ENCAP_LEN

_FULL_MESSAGE_BYTES: Final = SUPERFRAME_HEADER_BYTES + CONNECTED_MTU

_RFC: Final = struct.Struct("!II")
_OURS: Final = struct.Struct("!4sBxHI")
_MARK: Final = b"ipou"
_SUPERFRAME_MIN_BYTES: Final = SUPERFRAME_HEADER_BYTES + IPV4_MIN_MTU
_RDMACM_PORT_BASE: Final = 0x4000
_RDMACM_PORT_MASK: Final = 0x3FFF
PACKET_ALIGNMENT: Final = 4  # bytes: only a message's last packet is padded (IBA §9.2.4)
_QPN_MIN: Final = 2  # 0 belongs to the subnet manager, 1 to the GSI


class ServiceForm(enum.IntEnum):
    """The upper bits of the service ID, in front of the QPN (C7)."""

    LINUX = 0x10 << 56  # Linux and its descendants; illumos tries it first
    RFC = 0x01 << 56  # RFC 4755 §3.5
    # Our own, for RoCE ports where only the kernel's rdma_cm can connect.
    RDMACM = cm_rdmacm.SERVICE_BASE


def agreed_packet_bytes(longest_bytes: int) -> int:
    """Return the smallest path MTU that cuts a full message into as few packets as the longest one does.

    So the packets have nearly the same length, and one train of UDP_SEGMENT carries those of two messages.
    """
    packets = -(-_FULL_MESSAGE_BYTES // longest_bytes)
    bytes_each = -(-_FULL_MESSAGE_BYTES // packets)
    return -(-bytes_each // PACKET_ALIGNMENT) * PACKET_ALIGNMENT


def service_id(form: ServiceForm, qpn: Qpn) -> int:
    """The service ID at which the interface with this UD queue pair listens.

    A port number of rdma_cm has 16 bits, so two interfaces of one port may need the same number:
    then the second interface cannot listen. rdma_cm takes the numbers from 32768 on for the
    connecting end.
    """
    if form is ServiceForm.RDMACM:
        return form | _RDMACM_PORT_BASE | qpn & _RDMACM_PORT_MASK
    return form | qpn


def service_ids(qpn: Qpn) -> frozenset[int]:
    """The service IDs of all forms: an interface listens on each of them (C7)."""
    return frozenset(service_id(form, qpn) for form in ServiceForm)


@dataclass(frozen=True, slots=True)
class Private:
    """The declaration of one end.

    `superframe_bytes` is 0 if the end takes plain packets only, and `packet_bytes` is 0 if it takes the
    MTUs of InfiniBand only.
    """

    qpn: Qpn
    receive_mtu_bytes: int
    superframe_bytes: int = 0
    packet_bytes: int = 0

    def pack(self) -> bytes:
        """Return 8 bytes as in the RFC, 20 with our extension."""
        plain = _RFC.pack(join((0, 8), (self.qpn, 24)), self.receive_mtu_bytes)
        if not self.superframe_bytes and not self.packet_bytes:
            return plain
        return plain + _OURS.pack(_MARK, VERSION, self.packet_bytes, self.superframe_bytes)


def parse_untrusted(data: Octets) -> Private:
    """Read the start of a message's private data, and ignore the rest.

    The function reduces sizes above our own maximum to that maximum (C4): we never send more.
    """
    if len(data) < _RFC.size:
        raise BadFrame("cm_private_short")
    field, mtu_bytes = _RFC.unpack_from(data)
    qpn = Qpn(field & 0xFFFFFF)  # C4: mask the top byte
    if not _QPN_MIN <= qpn < MULTICAST_QPN:
        raise BadFrame("cm_private_qpn")
    if mtu_bytes < IPV4_MIN_MTU + ENCAP_LEN:
        raise BadFrame("cm_private_mtu")
    superframe_bytes = packet_bytes = 0
    if len(data) >= _RFC.size + _OURS.size:
        mark, version, longest_bytes, largest_bytes = _OURS.unpack_from(data, _RFC.size)
        if (mark, version) == (_MARK, VERSION):
            if largest_bytes >= _SUPERFRAME_MIN_BYTES:
                superframe_bytes = min(largest_bytes, SUPERFRAME_BYTES_MAX)
            if longest_bytes >= IB_MTUS[0] and longest_bytes % PACKET_ALIGNMENT == 0:
                packet_bytes = longest_bytes
    return Private(qpn, min(mtu_bytes, RECEIVE_MTU_MAX_BYTES), superframe_bytes, packet_bytes)
