# SPDX-License-Identifier: BSD-2-Clause
"""Ethernet II frames without preamble and checksum, as a TAP has them: IEEE 802.3 §3.2.6.

    | destination 6 | source 6 | type 2 | payload |

The MAC of an IP group is part of it: RFC 1112 §6.4, RFC 2464 §7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ipoibu.base.addr import MAC_LEN, IpAddress, Mac
from ipoibu.base.errors import BadFrame
from ipoibu.wire import Octets
from ipoibu.wire.mgid import LIMITED_BROADCAST

REASONS: Final = frozenset(
    {"ethernet_short", "ethernet_source", "ethernet_vlan", "ethernet_no_ethertype"}
)

HEADER_LEN: Final = 14
BROADCAST: Final = Mac(b"\xff" * MAC_LEN)

_TYPE_MIN: Final = 0x0600  # IEEE 802.3 §3.2.6: a smaller number is a length
_VLAN: Final = frozenset((0x8100, 0x88A8, 0x9100))  # IEEE 802.1Q, 802.1ad, and the older Q-in-Q


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame; `ethertype` is any number from 0x600 up."""

    destination: Mac
    source: Mac
    ethertype: int
    payload: bytes

    def pack(self) -> bytes:
        kind = self.ethertype.to_bytes(2, "big")
        return self.destination.raw + self.source.raw + kind + self.payload


def parse_untrusted(frame: Octets) -> Frame:
    """Read a frame of a host. Its payload may be longer than what it carries: short frames are padded."""
    if len(frame) < HEADER_LEN:
        raise BadFrame("ethernet_short")
    source = Mac(bytes(frame[MAC_LEN : 2 * MAC_LEN]))
    if not source.is_host:
        raise BadFrame("ethernet_source")
    ethertype = int.from_bytes(frame[2 * MAC_LEN : HEADER_LEN], "big")
    if ethertype in _VLAN:
        raise BadFrame("ethernet_vlan")
    if ethertype < _TYPE_MIN:
        raise BadFrame("ethernet_no_ethertype")
    return Frame(Mac(bytes(frame[:MAC_LEN])), source, ethertype, bytes(frame[HEADER_LEN:]))


def group_mac(group: IpAddress) -> Mac:
    """Return the MAC of an IP group or of 255.255.255.255; `ValueError` for a unicast address."""
    if group == LIMITED_BROADCAST:
        return BROADCAST
    if not group.is_multicast:
        raise ValueError(f"{group} is not a multicast group")
    if group.version == 6:
        return Mac(b"\x33\x33" + group.packed[-4:])
    low = int(group) & 0x7FFFFF
    return Mac(b"\x01\x00\x5e" + low.to_bytes(3, "big"))
