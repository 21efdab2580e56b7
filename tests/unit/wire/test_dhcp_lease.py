# SPDX-License-Identifier: BSD-2-Clause
"""What a server's message grants, and who the client says that it is."""

from __future__ import annotations

import math
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Final

import pytest

from ipoibu.base.errors import BadFrame
from ipoibu.base.limits import LEASE_LIST_MAX, LEASE_MIN_S
from ipoibu.wire import client_id, dhcp
from ipoibu.wire.dhcp import Code, Kind, Message, Op
from ipoibu.wire.dhcp_lease import Lease

SERVER: Final = IPv4Address("10.0.0.1")
GATEWAY: Final = IPv4Address("10.0.0.9")
GUID: Final = bytes.fromhex("0002c903000010a5")


def ack(*options: dhcp.Option, lease_s: int = 600, ip: str = "10.0.0.7") -> Message:
    return Message(
        Op.REPLY,
        7,
        (
            (Code.MESSAGE_TYPE, bytes((Kind.ACK,))),
            (Code.SERVER, SERVER.packed),
            (Code.LEASE_TIME, lease_s.to_bytes(4, "big")),
            *options,
        ),
        yiaddr=IPv4Address(ip),
    )


MASK: Final = (Code.SUBNET_MASK, bytes((255, 255, 255, 0)))
DEFAULT: Final = IPv4Network("0.0.0.0/0")


def test_a_lease_has_all_that_the_server_says() -> None:
    lease = Lease.of_untrusted(
        ack(
            MASK,
            (Code.ROUTER, GATEWAY.packed + SERVER.packed),
            (Code.DNS, SERVER.packed),
            (Code.DOMAIN_NAME, b"ib.example"),
            (Code.DOMAIN_SEARCH, b"\2ib\7example\0"),
            (Code.INTERFACE_MTU, (1500).to_bytes(2, "big")),
            (Code.RENEWAL_TIME, (100).to_bytes(4, "big")),
            (Code.REBINDING_TIME, (200).to_bytes(4, "big")),
        )
    )
    assert lease == Lease(
        IPv4Interface("10.0.0.7/24"),
        SERVER,
        600,
        100,
        200,
        ((DEFAULT, GATEWAY),),
        1500,
        (SERVER,),
        "ib.example",
        ("ib.example",),
    )


def test_classless_routes_replace_the_routers() -> None:
    """RFC 3442."""
    routes = (
        (IPv4Network("10.1.0.0/16"), GATEWAY),
        (IPv4Network("10.2.0.0/16"), IPv4Address(0)),
        (IPv4Network("10.3.0.0/16"), IPv4Address("224.0.0.1")),
    )
    options = ((Code.CLASSLESS_ROUTES, dhcp.pack_routes(routes)), (Code.ROUTER, GATEWAY.packed))
    lease = Lease.of_untrusted(ack(MASK, *options))
    assert lease.routes == (
        (IPv4Network("10.1.0.0/16"), GATEWAY),
        (IPv4Network("10.2.0.0/16"), None),
    )
    many = ((Code.CLASSLESS_ROUTES, dhcp.pack_routes(routes[:1] * 100)),)
    assert len(Lease.of_untrusted(ack(MASK, *many)).routes) == LEASE_LIST_MAX


@pytest.mark.parametrize(
    ("lease_s", "t1", "t2", "expected"),
    [
        (600, None, None, (600, 300, 525)),
        (600, 400, 300, (600, 300, 525)),
        (600, 400, 700, (600, 300, 525)),
        (600, 10, None, (600, 300, 525)),
        (1, None, None, (LEASE_MIN_S, LEASE_MIN_S / 2, 7 * LEASE_MIN_S / 8)),
        (600, 0, 1, (600, LEASE_MIN_S / 2, 7 * LEASE_MIN_S / 8)),
        (0xFFFFFFFF, None, None, (math.inf, math.inf, math.inf)),
    ],
)
def test_times_that_make_no_sense_become_those_of_the_rfc(
    lease_s: int, t1: int | None, t2: int | None, expected: tuple[float, float, float]
) -> None:
    """RFC 2131 §4.4.5."""
    times = ((Code.RENEWAL_TIME, t1), (Code.REBINDING_TIME, t2))
    options = [(code, value.to_bytes(4, "big")) for code, value in times if value is not None]
    lease = Lease.of_untrusted(ack(MASK, *options, lease_s=lease_s))
    assert (lease.lease_s, lease.renewal_s, lease.rebinding_s) == expected


@pytest.mark.parametrize(
    ("ip", "expected"),
    [
        ("10.0.0.7", "10.0.0.7/8"),
        ("172.16.0.7", "172.16.0.7/16"),
        ("192.168.0.7", "192.168.0.7/24"),
    ],
)
def test_without_a_mask_the_class_decides(ip: str, expected: str) -> None:
    assert Lease.of_untrusted(ack(ip=ip)).address == IPv4Interface(expected)


@pytest.mark.parametrize(
    ("message", "refused"),
    [
        (ack(MASK).without_option(Code.SERVER), "dhcp_lease"),
        (ack(MASK).without_option(Code.LEASE_TIME), "dhcp_lease"),
        (ack(MASK).with_option(Code.SERVER, bytes(4)), "dhcp_lease"),
        (ack(MASK, ip="0.0.0.0"), "dhcp_lease"),
        (ack(MASK, ip="127.0.0.1"), "dhcp_lease"),
        (ack(MASK, ip="224.0.0.5"), "dhcp_lease"),
        (ack(MASK, ip="10.0.0.0"), "dhcp_lease"),
        (ack(MASK, ip="10.0.0.255"), "dhcp_lease"),
        (ack((Code.SUBNET_MASK, bytes(4))), "dhcp_lease"),
        (ack((Code.SUBNET_MASK, bytes((0, 255, 0, 0)))), "dhcp_option"),
        (ack(MASK, (Code.DNS, b"")), "dhcp_option"),
    ],
)
def test_a_lease_that_no_host_can_have_is_refused(message: Message, refused: str) -> None:
    with pytest.raises(BadFrame, match=refused):
        Lease.of_untrusted(message)


def test_an_mtu_that_no_link_has_is_none() -> None:
    small = (Code.INTERFACE_MTU, (67).to_bytes(2, "big"))
    assert Lease.of_untrusted(ack(MASK, small)).mtu_bytes is None
    assert Lease.of_untrusted(replace(ack(MASK), sname=b"x")).mtu_bytes is None


def test_d1_a_client_identifier_has_the_form_of_rfc_4361_or_the_older_one() -> None:
    """D1."""
    duid = client_id.duid_of_guid(GUID)
    assert duid == bytes.fromhex("0003 0020") + GUID
    assert client_id.of_duid(b"\0\0\xff\xff", duid) == b"\xff\0\0\xff\xff" + duid
    assert client_id.of_guid(GUID) == b"\x20" + GUID
    with pytest.raises(ValueError, match="8 bytes"):
        client_id.of_guid(b"x")
    with pytest.raises(ValueError, match="4 bytes"):
        client_id.of_duid(b"", duid)


def test_the_parts_of_an_identifier_of_rfc_4361_are_iaid_and_duid() -> None:
    duid = client_id.duid_of_guid(GUID)
    assert client_id.parts_of(client_id.of_duid(b"ia id"[:4], duid)) == (b"ia i", duid)
    for other in (client_id.of_guid(GUID), b"\xff1234ab", b"\xff", b"\xff1234" + bytes(131)):
        assert client_id.parts_of(other) is None
