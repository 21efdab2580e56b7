# SPDX-License-Identifier: BSD-2-Clause
"""What a test can name before the run: addresses of the tester and of the peer.

Each test has addresses of its own (`ME4`, `ME6`), of which the peer knows nothing when the test begins.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final

from ipoibu.conform.layout import Value
from ipoibu.conform.mgid import solicited_node
from ipoibu.conform.packet import Derived, Names, Rule, Symbol

ME4: Final = Symbol("me4")
ME6: Final = Symbol("me6")  # link-local
ME6_GLOBAL: Final = Symbol("me6_global")  # in the prefix of the peer's global address
PEER4: Final = Symbol("peer4")
PEER6: Final = Symbol("peer6")  # link-local
PEER6_GLOBAL: Final = Symbol("peer6_global")
FREE4: Final = Symbol("free4")  # on the link, and nobody has it
FREE6: Final = Symbol("free6")

MY_HW: Final = Symbol("my_hw")  # 20 bytes, with the flags 0, as all of these
OTHER_HW: Final = Symbol("other_hw")  # this host by another queue pair: "the address has changed"
PEER_HW: Final = Symbol("peer_hw")
BROADCAST: Final = Symbol("broadcast")

RC_QPN: Final = Symbol("rc_qpn")  # the queue pair that `Connect` has opened
COMM_ID: Final = Symbol("comm_id")  # a connection's id, another one in each test
COMM_ID2: Final = Symbol("comm_id2")
PATH_MTU: Final = Symbol("path_mtu")  # the code of the InfiniBand MTU of the link's datagrams
TID: Final = Symbol("tid")  # of management datagrams, another one in each test
TID2: Final = Symbol("tid2")  # a port may refuse two datagrams of one id at a time

MTU: Final = Symbol("mtu")  # the largest IP packet in a datagram, bytes
PKEY: Final = Symbol("pkey")
QKEY: Final = Symbol("qkey")

ALL_NODES: Final = "ff02::1"
ALL_ROUTERS: Final = "ff02::2"


def solicited(of: Symbol) -> Derived:
    """The solicited-node group of an address."""

    def group(names: Names) -> Value:
        ip = names[of.name]
        assert isinstance(ip, str)
        return solicited_node(ip)

    return Derived(f"the solicited-node group of {of}", group)


def of_test(offset: int) -> Derived:
    """An identification of fragments that no other test has: what is left of a test disturbs none."""

    def value(names: Names) -> Value:
        ip = names["me6"]
        assert isinstance(ip, str)
        return (int(ipaddress.IPv6Address(ip)) >> 24 & 0xFF) << 8 | offset

    return Derived(f"identification {offset}", value)


def gid_of(of: Symbol) -> Derived:
    """The GID in a hardware address."""

    def gid(names: Names) -> Value:
        hwaddr = names[of.name]
        assert isinstance(hwaddr, bytes)
        return hwaddr[4:]

    return Derived(f"the GID of {of}", gid)


def guid_of(of: Symbol) -> Derived:
    """The lower half of the GID in a hardware address, which serves as the GUID of its port."""

    def guid(names: Names) -> Value:
        hwaddr = names[of.name]
        assert isinstance(hwaddr, bytes)
        return hwaddr[12:]

    return Derived(f"the GUID of {of}", guid)


def qpn_of(of: Symbol, upper: int = 0) -> Derived:
    """The queue pair number in a hardware address, with more bits in front of it."""

    def qpn(names: Names) -> Value:
        hwaddr = names[of.name]
        assert isinstance(hwaddr, bytes)
        return upper | int.from_bytes(hwaddr[1:4], "big")

    return Derived(f"the queue pair of {of}" + (f" with {upper:#x}" if upper else ""), qpn)


def low_of(of: Symbol) -> Derived:
    """An expectation: the low 32 bits are the symbol's. Linux sets the others of a transaction id."""

    def rule(names: Names) -> Rule:
        wanted = names[of.name]
        assert isinstance(wanted, int)
        low = wanted & 0xFFFFFFFF
        words = f"{low:#x} in the low 32 bits"
        return Rule(words, lambda found: isinstance(found, int) and found & 0xFFFFFFFF == low)

    return Derived(f"the low 32 bits of {of}", rule)


def bytes_of_mtu(of: Symbol) -> Derived:
    """The bytes of an InfiniBand MTU whose code is the symbol (1: 256, 5: 4096)."""

    def count(names: Names) -> Value:
        mtu = names[of.name]
        assert isinstance(mtu, int)
        return 128 << min(mtu, 5)

    return Derived(f"the bytes of {of}", count)


def any_flags(of: Symbol) -> Derived:
    """Expect this hardware address, whatever its flags are (RFC 4391 §9.1.1)."""

    def rule(names: Names) -> Rule:
        wanted = names[of.name]
        assert isinstance(wanted, bytes)
        words = f"{of} ({wanted[1:].hex()}) with any flags"
        return Rule(words, lambda found: isinstance(found, bytes) and found[1:] == wanted[1:])

    return Derived(f"{of} with any flags", rule)


def with_flags(of: Symbol, flags: int) -> Derived:
    """A hardware address with these flags, to send or to expect."""

    def value(names: Names) -> Value:
        hwaddr = names[of.name]
        assert isinstance(hwaddr, bytes)
        return bytes((flags,)) + hwaddr[1:]

    return Derived(f"{of} with flags {flags:#04x}", value)


def same_prefix(of: Symbol) -> Derived:
    """Expect a hardware address whose GID has the subnet prefix of this one's."""

    def rule(names: Names) -> Rule:
        ours = names[of.name]
        assert isinstance(ours, bytes)
        words = f"a GID of prefix {ours[4:12].hex()}"
        return Rule(words, lambda found: isinstance(found, bytes) and found[4:12] == ours[4:12])

    return Derived(f"a GID of the prefix of {of}", rule)


def no_flags_but(known: int) -> Rule:
    """Expect a hardware address without other flags than these."""
    words = f"no flags but those of {known:#04x}"
    return Rule(words, lambda found: isinstance(found, bytes) and not found[0] & ~known)


UNIVERSAL: Final = 0x02
"""In the first byte of an interface identifier: it comes from a global EUI-64 (RFC 4291 §2.5.1)."""


def _identifier_rule(words: str, holds: Callable[[bytes, bytes], bool]) -> Derived:
    """A rule for an IPv6 address by its interface identifier and the GUID in the peer's GID."""

    def rule(names: Names) -> Rule:
        hwaddr = names["peer_hw"]
        assert isinstance(hwaddr, bytes)
        guid = hwaddr[12:]
        return Rule(
            f"{words} (GUID {guid.hex()})",
            lambda found: (
                isinstance(found, str) and holds(ipaddress.IPv6Address(found).packed[8:], guid)
            ),
        )

    return Derived(words, rule)


def _is_guid(identifier: bytes, guid: bytes) -> bool:
    return (identifier[0] | UNIVERSAL, identifier[1:]) == (guid[0] | UNIVERSAL, guid[1:])


OF_GUID: Final = _identifier_rule(
    "an interface identifier of the port GUID, or one that is no EUI-64 of a MAC",
    lambda identifier, guid: _is_guid(identifier, guid) or identifier[3:5] != b"\xff\xfe",
)
UNIVERSAL_IF_OF_GUID: Final = _identifier_rule(
    "an interface identifier that has the universal bit if it is the port GUID",
    lambda identifier, guid: not _is_guid(identifier, guid) or bool(identifier[0] & UNIVERSAL),
)


def within(prefix: str, of: Symbol) -> Derived:
    """The address in a prefix of 64 bits that has the interface identifier of another."""

    def value(names: Names) -> Value:
        ip = names[of.name]
        assert isinstance(ip, str)
        low = int(ipaddress.IPv6Address(ip)) & 0xFFFFFFFF_FFFFFFFF
        return str(ipaddress.IPv6Address(int(ipaddress.IPv6Address(prefix)) | low))

    return Derived(f"the address of {prefix} beside {of}", value)


def bits_of(of: Symbol, first: int, count: int) -> Derived:
    """Some bits of an IPv6 address as a number; bit 0 is the first one."""

    def value(names: Names) -> Value:
        ip = names[of.name]
        assert isinstance(ip, str)
        return int(ipaddress.IPv6Address(ip)) >> 128 - first - count & (1 << count) - 1

    return Derived(f"bits {first} to {first + count - 1} of {of}", value)
