# SPDX-License-Identifier: BSD-2-Clause
"""Addresses as frozen values: `Gid`, `Qpn`, `PKey`, `HwAddr`, `Mac`; `str()` is what `ip link` prints."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final, Self

from ipoibu.base.errors import UsageError

GID_LEN: Final = 16
MAC_LEN: Final = 6
HWADDR_LEN: Final = 20
MULTICAST_QPN: Final = 0xFFFFFF  # RFC 4391 §4: the queue pair of every multicast datagram (E5)

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpInterface = ipaddress.IPv4Interface | ipaddress.IPv6Interface
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True, order=True)
class Gid:
    """A 128-bit InfiniBand global identifier; `raw` is 16 bytes in network order."""

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != GID_LEN:
            raise ValueError(f"a GID has {GID_LEN} bytes, not {len(self.raw)}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the colon form of an IPv6 address; `UsageError` for any other text."""
        try:
            return cls(ipaddress.IPv6Address(text).packed)
        except ValueError as error:
            raise UsageError(
                f"{text!r} is not a GID (expected the form of an IPv6 address)"
            ) from error

    @classmethod
    def of_ip(cls, address: IpAddress) -> Self:
        """Return the GID of an IP address on RoCE v2."""
        if isinstance(address, ipaddress.IPv4Address):
            return cls(bytes(10) + b"\xff\xff" + address.packed)
        return cls(address.packed)

    @property
    def ip(self) -> IpAddress:
        """The IP address of the GID on RoCE v2."""
        address = ipaddress.IPv6Address(self.raw)
        return address.ipv4_mapped or address

    @property
    def is_multicast(self) -> bool:
        return self.raw[0] == 0xFF

    @property
    def interface_id(self) -> bytes:
        """The low 64 bits: on a unicast GID the port GUID (A3)."""
        return self.raw[8:]

    @property
    def hashed_guid(self) -> bytes:
        """The port GUID that the built-in HCA makes of a routed IPv6 GID, since hosts of different networks
        often have the same low half: FNV-1a of all 16 bytes (make_guid in ext/soft/hca.c)."""
        value = 0xCBF29CE484222325
        for byte in self.raw:
            value = (value ^ byte) * 0x100000001B3 % (1 << 64)
        return value.to_bytes(8, "big")

    def __str__(self) -> str:
        address = ipaddress.IPv6Address(self.raw)
        mapped = address.ipv4_mapped
        return str(address) if mapped is None else f"::ffff:{mapped}"  # as RFC 5952 §5 has it


class Qpn(int):
    """A 24-bit queue pair number."""

    __slots__ = ()

    def __new__(cls, value: int) -> Self:
        if not 0 <= value <= 0xFFFFFF:
            raise ValueError(f"a queue pair number has 24 bits: {value:#x}")
        return super().__new__(cls, value)

    def __str__(self) -> str:
        return f"0x{int(self):06x}"

    __repr__ = __str__


def may_name_partition(name: str) -> bool:
    """Return whether a name without a P_Key ends in a number that somebody may take for one, hexadecimal
    or decimal: ib0.5, ib0.100, ib0.32769, ib0.8000."""
    return bool(re.fullmatch(r".+\.([0-9a-fA-F]{1,4}|[0-9]{5}|0[xX][0-9a-fA-F]{1,4})", name))


class PKey(int):
    """A 16-bit partition key; bit 15 is full membership."""

    __slots__ = ()

    def __new__(cls, value: int) -> Self:
        if not 0 <= value <= 0xFFFF:
            raise ValueError(f"a P_Key has 16 bits: {value:#x}")
        return super().__new__(cls, value)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `0xffff` or decimal; refuses 0 and 0x8000, the invalid keys (`UsageError`).

        Interface names, sysfs and OpenSM write keys in hexadecimal, so it refuses digits that are
        another key there: 8001.
        """
        if (
            text.isascii()
            and text.isdigit()
            and int(text[:8]) >= 10
            and int(text[:8], 16) <= 0xFFFF
        ):
            raise UsageError(
                f"P_Key {text!r} may be decimal or not: write 0x{text} or {int(text):#06x}"
            )
        try:
            key = cls(int(text, 0))
        except ValueError as error:
            raise UsageError(f"{text!r} is not a P_Key (expected 0x0001..0xffff)") from error
        if key & 0x7FFF == 0:
            raise UsageError(f"P_Key {key} is invalid: its low 15 bits are zero")
        return key

    @classmethod
    def of_name(cls, name: str) -> Self | None:
        """Return the full key that the name of an interface ends in, as the kernel names children: four
        hexadecimal digits after the last dot, ib0.8001. None for any other name."""
        match = re.fullmatch(r".+\.([0-9a-fA-F]{4})", name)
        key = int(match[1], 16) if match else 0
        return cls(key | 0x8000) if key & 0x7FFF else None

    def child_of(self, parent: str) -> str:
        """Return the kernel's name for a child of `parent` in this partition."""
        return f"{parent}.{self.full:04x}"

    @property
    def is_full(self) -> bool:
        return bool(self & 0x8000)

    @property
    def full(self) -> PKey:
        """The same partition with the full-membership bit set (E7)."""
        return PKey(self | 0x8000)

    def __str__(self) -> str:
        return f"0x{int(self):04x}"

    __repr__ = __str__


RC_FLAG: Final = 0x80  # RFC 4755 §3.1: the sender accepts reliable-connected mode


DEFAULT_PKEY: Final = PKey(0xFFFF)
"""The key of the default partition, as a full member."""


@dataclass(frozen=True, slots=True)
class HwAddr:
    """The 20-byte hardware address of IPoIB, flags(1) QPN(3) GID(16): A1, RFC 4391 §9.1.1, RFC 4755
    §3.1.

    `flags` holds the connected-mode bits as received; compare with `same_queue_pair`, which masks them (A6).
    """

    qpn: Qpn
    gid: Gid
    flags: int = 0

    @classmethod
    def unpack(cls, raw: bytes) -> Self:
        """Read exactly 20 bytes, or raise `ValueError`: callers check the length of a peer's bytes
        first."""
        if len(raw) != HWADDR_LEN:
            raise ValueError(f"a hardware address has {HWADDR_LEN} bytes, not {len(raw)}")
        return cls(Qpn(int.from_bytes(raw[1:4], "big")), Gid(bytes(raw[4:])), raw[0])

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the 20 colon-separated octets that `ip link` prints; `UsageError` for any other text."""
        if not re.fullmatch(r"([0-9a-fA-F]{2}:){19}[0-9a-fA-F]{2}", text):
            raise UsageError(f"{text!r} is not a 20-byte hardware address")
        return cls.unpack(bytes.fromhex(text.replace(":", "")))

    def pack(self) -> bytes:
        return bytes((self.flags,)) + int(self.qpn).to_bytes(3, "big") + self.gid.raw

    def same_queue_pair(self, other: HwAddr) -> bool:
        """Return whether both addresses belong to the same host: RFC 4755 §3.3 masks the flags
        octet (A6)."""
        return self.qpn == other.qpn and self.gid == other.gid

    def __str__(self) -> str:
        return self.pack().hex(":")


@dataclass(frozen=True, slots=True, order=True)
class Mac:
    """The 48-bit address of an Ethernet interface; `raw` is 6 bytes as on the wire (IEEE 802 §8.2)."""

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != MAC_LEN:
            raise ValueError(f"a MAC has {MAC_LEN} bytes, not {len(self.raw)}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the 6 colon-separated octets that `ip link` prints; `UsageError` for any other text."""
        if not re.fullmatch(r"([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}", text):
            raise UsageError(f"{text!r} is not a MAC (expected the form 02:00:00:00:00:01)")
        return cls(bytes.fromhex(text.replace(":", "")))

    @property
    def is_group(self) -> bool:
        """Return whether the address names several hosts: multicast, or broadcast."""
        return bool(self.raw[0] & 1)

    @property
    def is_host(self) -> bool:
        """Return whether one interface can have the address."""
        return not self.is_group and any(self.raw)

    def __str__(self) -> str:
        return self.raw.hex(":")


def link_local(guid: bytes) -> ipaddress.IPv6Interface:
    """Return the IPv6 link-local address of a port: the prefix and the port GUID with its u/l bit set.

    RFC 4391 §8: 00155dfffd33ff0b gives fe80::215:5dff:fd33:ff0b (I1, I2). As the kernel does, we set the
    bit and do not invert it: vendors disagree on its value in a GUID.
    """
    if len(guid) != 8:
        raise ValueError(f"a GUID has 8 bytes, not {len(guid)}")
    identifier = bytes((guid[0] | 0x02,)) + guid[1:]
    return ipaddress.IPv6Interface((b"\xfe\x80" + bytes(6) + identifier, 64))
