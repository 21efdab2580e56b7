# SPDX-License-Identifier: BSD-2-Clause
"""Messages and leases of DHCPv6."""

from __future__ import annotations

import math
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, IPv6Interface
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers import dhcp6 as scapy6

from ipoibu.base.errors import BadFrame
from ipoibu.base.limits import LEASE_LIST_MAX, LEASE_MIN_S
from ipoibu.wire import client_id, dhcp6, ip, udp
from ipoibu.wire.dhcp6 import Address, Association, Code, Kind, Message, Option, Packet, Status
from ipoibu.wire.dhcp6_lease import (
    Lease6,
    server_untrusted,
    takes_back_untrusted,
    verdict_untrusted,
)

IAID: Final = bytes((0, 0, 0x80, 1))
DUID: Final = client_id.duid_of_guid(bytes.fromhex("0002c903000010a5"))
SERVER: Final = bytes.fromhex("00030001020000000001")
HERE: Final = IPv6Address("fe80::1")
OURS: Final = IPv6Address("fd00::7")

options = st.lists(st.tuples(st.integers(0, 0xFFFF), st.binary(max_size=40)), max_size=8)


def reply(
    *inner: Option, times: tuple[int, int] = (0, 0), more: tuple[Option, ...] = ()
) -> Message:
    ids = ((Code.CLIENT_ID, DUID), (Code.SERVER_ID, SERVER))
    association = Association(IAID, *times, inner).pack()
    return Message(Kind.REPLY, 7, (*ids, (Code.IA_NA, association), *more))


def address(text: str = "fd00::7", preferred_s: int = 500, valid_s: int = 1000) -> Option:
    return Code.IA_ADDRESS, Address(IPv6Address(text), preferred_s, valid_s).pack()


def status(number: int, text: bytes = b"") -> Option:
    return Code.STATUS, number.to_bytes(2, "big") + text


@given(code=st.integers(0, 255), xid=st.integers(0, 0xFFFFFF), each=options)
def test_a_message_is_read_as_it_was_written(code: int, xid: int, each: list[Option]) -> None:
    message = Message(code, xid, tuple(each))
    assert dhcp6.message_untrusted(message.pack()) == message


@given(raw=st.binary(max_size=120))
def test_what_is_read_is_written_as_it_was(raw: bytes) -> None:
    try:
        message = dhcp6.message_untrusted(raw)
    except BadFrame as error:
        assert error.reason in ("dhcp6_short", "dhcp6_option")  # noqa: PT017 (some bytes are fine)
    else:
        assert message.pack() == raw


def test_a_message_is_as_scapy_has_it() -> None:
    message = Message(
        Kind.SOLICIT,
        0x123456,
        (
            (Code.CLIENT_ID, DUID),
            (Code.ELAPSED_TIME, b"\0\0"),
            (Code.IA_NA, Association(IAID, options=(address(),)).pack()),
        ),
    )
    theirs = (
        scapy6.DHCP6_Solicit(trid=0x123456)
        / scapy6.DHCP6OptClientId(duid=scapy6.DUID_LL(hwtype=32, lladdr=DUID[4:]))
        / scapy6.DHCP6OptElapsedTime(elapsedtime=0)
        / scapy6.DHCP6OptIA_NA(
            iaid=0x8001,
            T1=0,
            T2=0,
            ianaopts=[scapy6.DHCP6OptIAAddress(addr="fd00::7", preflft=500, validlft=1000)],
        )
    )
    read = scapy6.DHCP6_Solicit(message.pack())
    assert (read.msgtype, read.trid) == (1, 0x123456)
    assert bytes(read[scapy6.DHCP6OptIA_NA]) == bytes(theirs[scapy6.DHCP6OptIA_NA])
    assert read[scapy6.DHCP6OptIAAddress].validlft == 1000


@pytest.mark.parametrize("code", [0, 12, 13, 255])
def test_a_message_of_an_unknown_type_has_no_kind(code: int) -> None:
    assert Message(code, 1).kind is None
    assert Message(Kind.REPLY, 1).kind is Kind.REPLY


@pytest.mark.parametrize(("code", "xid"), [(256, 1), (-1, 1), (1, 1 << 24), (1, -1)])
def test_numbers_that_do_not_fit_are_not_written(code: int, xid: int) -> None:
    with pytest.raises(ValueError, match="8 bits"):
        Message(code, xid).pack()


def test_values_that_do_not_fit_are_not_written() -> None:
    with pytest.raises(ValueError, match="65535"):
        dhcp6.pack_options(((1, bytes(0x10000)),))
    with pytest.raises(ValueError, match="IAID"):
        Association(b"abc").pack()


def test_a_packet_is_read_as_it_was_written() -> None:
    packet = Packet(HERE, 546, dhcp6.SERVERS, 547, Message(Kind.SOLICIT, 1, ((1, DUID),)))
    assert dhcp6.parse_untrusted(packet.pack()) == packet


def test_other_packets_are_none() -> None:
    other = udp.Datagram(HERE, 546, OURS, 53, b"x")
    assert dhcp6.parse_untrusted(ip.Ipv6(HERE, OURS, 17, other.pack()).pack()) is None
    assert dhcp6.parse_untrusted(ip.Ipv6(HERE, OURS, 59, b"").pack()) is None
    v4 = IPv4Address("10.0.0.1")
    old = udp.Datagram(v4, 547, v4, 546, b"abcd")
    assert dhcp6.parse_untrusted(ip.Ipv4(v4, v4, 17, old.pack()).pack()) is None


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "dhcp6_short"),
        (b"\1\0\0", "dhcp6_short"),
        (b"\1\0\0\0\0", "dhcp6_option"),
        (b"\1\0\0\0\0\1\0\2x", "dhcp6_option"),
    ],
)
def test_a_message_cut_off_is_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(BadFrame, match=reason):
        dhcp6.message_untrusted(raw)


@pytest.mark.parametrize(
    "read",
    [
        lambda: dhcp6.association_untrusted(bytes(11)),
        lambda: dhcp6.address_untrusted(bytes(23)),
        lambda: dhcp6.status_untrusted(((Code.STATUS, b"\0"),)),
        lambda: dhcp6.addresses_untrusted(b""),
        lambda: dhcp6.addresses_untrusted(bytes(15)),
        lambda: dhcp6.seconds_untrusted(bytes(3)),
        lambda: dhcp6.preference_untrusted(b""),
    ],
)
def test_a_value_of_another_size_is_refused(read: object) -> None:
    assert callable(read)
    with pytest.raises(BadFrame, match="dhcp6_option"):
        read()


def test_a_lease_has_all_that_the_server_says() -> None:
    names = (Code.DOMAIN_SEARCH, b"\2ib\7example\0")
    more = ((Code.DNS, OURS.packed + HERE.packed), names)
    lease = Lease6.of_untrusted(reply(address(), times=(100, 200), more=more), IAID)
    expected = Lease6(
        IPv6Interface("fd00::7/128"), SERVER, 500, 1000, 100, 200, (OURS, HERE), ("ib.example",)
    )
    assert lease == expected
    assert lease.aged(150) == replace(
        expected, preferred_s=350, lease_s=850, renewal_s=0, rebinding_s=50
    )


@pytest.mark.parametrize(
    ("preferred_s", "valid_s", "times", "expected"),
    [
        (500, 1000, (0, 0), (250, 400)),
        (500, 1000, (300, 0), (300, 400)),
        (500, 1000, (450, 0), (450, 450)),
        (500, 1000, (0, 300), (250, 300)),
        (500, 1000, (600, 1000), (250, 400)),  # T2 would be the end
        (0, 1000, (0, 0), (500, 800)),
        (1, 2, (0, 0), (0.5 * LEASE_MIN_S, 0.8 * LEASE_MIN_S)),
        (dhcp6.INFINITE, dhcp6.INFINITE, (0, 0), (math.inf, math.inf)),
        (500, dhcp6.INFINITE, (100, 200), (100, 200)),
    ],
)
def test_t1_and_t2_are_those_of_the_server_or_parts_of_the_preferred_time(
    preferred_s: int, valid_s: int, times: tuple[int, int], expected: tuple[float, float]
) -> None:
    lease = Lease6.of_untrusted(reply(address("fd00::7", preferred_s, valid_s), times=times), IAID)
    assert (lease.renewal_s, lease.rebinding_s) == expected
    assert lease.lease_s >= LEASE_MIN_S


def test_of_several_addresses_the_wanted_one_counts_and_else_the_first() -> None:
    message = reply(address("fd00::1"), address("fd00::2"), address("fd00::3", valid_s=0))
    for wanted, found in (("fd00::2", "fd00::2"), ("fd00::3", "fd00::1"), ("fd00::9", "fd00::1")):
        lease = Lease6.of_untrusted(message, IAID, IPv6Address(wanted))
        assert lease.address.ip == IPv6Address(found)


@pytest.mark.parametrize(
    "message",
    [
        reply(),
        reply(address("ff02::1")),
        reply(address("::")),
        reply(address("::1")),
        reply(address("fe80::1")),
        reply(address("::ffff:10.0.0.1")),
        reply(address(valid_s=0, preferred_s=0)),
        reply(address(preferred_s=1001)),
        reply(address(), times=(300, 200)),
        replace(reply(address()), options=reply(address()).options[:1]),
        replace(reply(address()), options=reply(address()).options[::2]),
        replace(reply(address()), options=((Code.SERVER_ID, b"12"), *reply(address()).options)),
    ],
)
def test_a_lease_that_no_host_can_have_is_refused(message: Message) -> None:
    with pytest.raises(BadFrame, match="dhcp6_lease"):
        Lease6.of_untrusted(message, IAID)


def test_an_association_of_another_interface_does_not_count() -> None:
    with pytest.raises(BadFrame, match="dhcp6_lease"):
        Lease6.of_untrusted(reply(address()), b"else")


def test_lists_have_a_cap() -> None:
    many = (Code.DNS, OURS.packed * (LEASE_LIST_MAX + 1))
    assert len(Lease6.of_untrusted(reply(address(), more=(many,)), IAID).dns) == LEASE_LIST_MAX


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (reply(address()), (Status.SUCCESS, "")),
        (reply(address(), more=(status(5, b"a\0b"),)), (Status.USE_MULTICAST, "a")),
        (reply(status(3, b"none")), (Status.NO_BINDING, "none")),
        (reply(status(99, b"\xff")), (Status.UNSPEC_FAIL, "?")),
        (Message(Kind.REPLY, 7, (status(4),)), (Status.NOT_ON_LINK, "")),
    ],
)
def test_the_status_is_that_of_the_message_or_of_the_association(
    message: Message, expected: tuple[Status, str]
) -> None:
    assert verdict_untrusted(message, IAID) == expected


def test_the_status_may_be_with_the_address() -> None:
    inner = Address(OURS, 0, 0, (status(2, b"none"),)).pack()
    message = reply((Code.IA_ADDRESS, inner))
    assert verdict_untrusted(message, IAID) == (Status.NO_ADDRS_AVAIL, "none")
    assert takes_back_untrusted(message, IAID, OURS)
    assert not takes_back_untrusted(message, IAID, HERE)
    assert not takes_back_untrusted(reply(address()), IAID, OURS)
    assert server_untrusted(message) == SERVER
