# SPDX-License-Identifier: BSD-2-Clause
"""Requests of other programs' DHCP clients become those of an IPoIB host, and the replies theirs again."""

from __future__ import annotations

import random
from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from ipoibu.base.addr import DEFAULT_PKEY, Gid, HwAddr, PKey, Qpn
from ipoibu.base.ib import PartitionParams
from ipoibu.base.limits import DEFAULT_IB_MTU, DEFAULT_QKEY, DHCP_REQUESTS_MAX
from ipoibu.proto.context import EngineContext, LinkConfig
from ipoibu.proto.dhcp.other_clients import DhcpClients
from ipoibu.proto.effects import Count, Deliver, Forward, WatchDhcp
from ipoibu.wire import dhcp
from ipoibu.wire.dhcp import Code, Kind, Message, Op, Packet
from tests.doubles.simulation import Simulation

GID = Gid.parse("fe80::2:c903:0:7777")
ANY, ALL = IPv4Address("0.0.0.0"), IPv4Address("255.255.255.255")
OURS, SERVER = IPv4Address("10.0.0.9"), IPv4Address("10.0.0.1")
XID = 0x12345678
OUR_ID = bytes.fromhex("ff0000ffff000300200002c90300007777")
UDHCPC = Message(
    Op.REQUEST,
    XID,
    ((Code.MESSAGE_TYPE, bytes((Kind.DISCOVER,))), (Code.CLIENT_ID, bytes((1,)) + bytes(6))),
    htype=1,
    hlen=6,
)


def clients(pkey: PKey = DEFAULT_PKEY, mtu_bytes: int = 0) -> tuple[DhcpClients, EngineContext]:
    params = PartitionParams(pkey, DEFAULT_QKEY, DEFAULT_IB_MTU)
    config = LinkConfig(params, HwAddr(Qpn(0x48), GID), mtu_bytes)
    context = EngineContext(config, random.Random(1))
    return DhcpClients(context), context


def request(message: Message, source: IPv4Address = ANY, destination: IPv4Address = ALL) -> bytes:
    return Packet(source, dhcp.CLIENT_PORT, destination, dhcp.SERVER_PORT, message).pack()


def reply(message: Message, destination: IPv4Address = ALL) -> bytes:
    return Packet(SERVER, dhcp.SERVER_PORT, destination, dhcp.CLIENT_PORT, message).pack()


def read(packet: bytes) -> Message:
    parsed = dhcp.parse_untrusted(packet)  # the checksums are right, too
    assert parsed is not None
    return parsed.message


def test_a_request_in_the_name_of_address_zero_becomes_that_of_an_ipoib_host() -> None:
    ours, context = clients()
    sent = read(ours.sent(request(UDHCPC)))
    assert (sent.htype, sent.hlen, sent.chaddr) == (32, 0, bytes(16))
    assert sent.is_broadcast
    assert sent.option(Code.CLIENT_ID) == OUR_ID
    assert sent.kind == Kind.DISCOVER
    assert context.take() == [Count("dhcp_rewritten"), WatchDhcp()]
    ours.sent(request(UDHCPC))
    assert context.take() == [Count("dhcp_rewritten")], "the pump watches already"


def test_each_interface_of_a_port_has_an_identifier_of_its_own() -> None:
    assert clients()[0].client_id() != clients(PKey(0x8001))[0].client_id()


@pytest.mark.parametrize(
    "options", [(), ((Code.CLIENT_ID, b"\x01\0\0\0\0\0\0"),), ((61, b"\xfe"),)]
)
def test_an_identifier_that_names_nobody_is_replaced(options: tuple[dhcp.Option, ...]) -> None:
    ours, _ = clients()
    assert read(ours.sent(request(replace(UDHCPC, options=options)))).option(61) == OUR_ID


def test_a_client_keeps_the_identifier_that_it_has() -> None:
    ours, _ = clients()
    chosen = UDHCPC.with_option(Code.CLIENT_ID, b"\0rack7")
    sent = read(ours.sent(request(chosen)))
    assert (sent.htype, sent.hlen, sent.option(Code.CLIENT_ID)) == (32, 0, b"\0rack7")


def test_a_client_with_an_address_wants_no_broadcast() -> None:
    ours, _ = clients()
    renewal = replace(UDHCPC, ciaddr=OURS)
    sent = dhcp.parse_untrusted(ours.sent(request(renewal, OURS, SERVER)))
    assert sent is not None
    assert not sent.message.is_broadcast
    assert (sent.source, sent.destination) == (OURS, SERVER)
    assert sent.message.option(Code.CLIENT_ID) == OUR_ID


@pytest.mark.parametrize(
    "message",
    [
        replace(UDHCPC, chaddr=bytes.fromhex("02005e000001").ljust(16, b"\0")),
        replace(UDHCPC, giaddr=OURS),
        replace(UDHCPC, op=Op.REPLY),
        replace(UDHCPC, htype=32, hlen=0, flags=0x8000).with_option(Code.CLIENT_ID, b"\0rack7"),
    ],
    ids=["behind us", "relayed", "reply", "right already"],
)
def test_other_messages_pass_as_they_are(message: Message) -> None:
    ours, context = clients()
    assert ours.sent(request(message)) == request(message)
    assert context.take() == []
    assert not ours.is_watching


def test_what_cannot_be_read_or_does_not_fit_passes_and_is_counted() -> None:
    ours, context = clients()
    cut = request(UDHCPC)
    cut = cut[:28] + cut[28:60]
    assert ours.sent(cut) == cut
    small, of_small = clients(mtu_bytes=340)
    full = replace(UDHCPC, options=((Code.HOST_NAME, b"x" * 62),))
    assert len(request(full)) <= 340
    assert small.sent(request(full)) == request(full)
    assert context.take() == of_small.take() == [Count("dhcp_unread")]


@pytest.mark.parametrize("repeats", [True, False], ids=["RFC 6842", "without identifier"])
def test_the_reply_gets_back_what_the_client_wrote(repeats: bool) -> None:
    ours, context = clients()
    asked = read(ours.sent(request(UDHCPC)))
    answer = replace(asked, op=Op.REPLY, yiaddr=OURS)
    if not repeats:
        answer = answer.without_option(Code.CLIENT_ID)
    context.take()
    got = read(ours.received(reply(answer)))
    assert (got.xid, got.htype, got.hlen, got.yiaddr) == (XID, 1, 6, OURS)
    assert got.option(Code.CLIENT_ID) == (b"\x01" + bytes(6) if repeats else None)
    assert context.take() == [Count("dhcp_restored")]


def test_a_client_without_identifier_gets_none() -> None:
    ours, _ = clients()
    asked = read(ours.sent(request(UDHCPC.without_option(Code.CLIENT_ID))))
    assert read(ours.received(reply(replace(asked, op=Op.REPLY)))).option(Code.CLIENT_ID) is None


def test_replies_to_others_pass_as_they_are() -> None:
    ours, _ = clients()
    asked = read(ours.sent(request(UDHCPC)))
    for other in (
        replace(asked, op=Op.REPLY, xid=XID + 1),
        replace(asked, op=Op.REPLY).with_option(Code.CLIENT_ID, b"\0another"),
        replace(asked, op=Op.REPLY, chaddr=b"\x02".ljust(16, b"\0")),
        replace(asked, op=Op.REQUEST),
    ):
        assert ours.received(reply(other)) == reply(other)
    assert ours.received(b"E") == b"E"


def test_two_hosts_with_one_transaction_get_their_own_replies() -> None:
    """The seed of udhcpc's number is the microsecond at which it starts, and few servers repeat the
    identifier."""
    here, there = clients()[0], clients(PKey(0x8001))[0]
    asked = [read(host.sent(request(UDHCPC))) for host in (here, there)]
    for answer, owner, other in ((asked[0], here, there), (asked[1], there, here)):
        packet = reply(replace(answer, op=Op.REPLY).without_option(Code.CLIENT_ID))
        assert read(owner.received(packet)).xid == XID
        assert read(other.received(packet)).xid != XID


def test_the_latest_requests_are_remembered() -> None:
    ours, _ = clients()
    asked = [
        read(ours.sent(request(replace(UDHCPC, xid=xid)))) for xid in range(DHCP_REQUESTS_MAX + 1)
    ]
    assert len(ours) == DHCP_REQUESTS_MAX
    of_first, of_last = (replace(asked[at], op=Op.REPLY) for at in (0, -1))
    assert ours.received(reply(of_first)) == reply(of_first)
    assert read(ours.received(reply(of_last))).htype == 1


def test_the_engine_sends_a_request_by_its_route_and_delivers_the_reply() -> None:
    simulation = Simulation(seed=1)
    client, server = simulation.host("10.0.0.9/24"), simulation.host("10.0.0.1/24")
    simulation.run(10)
    assert not client.engine.watches_dhcp
    client.effects.clear()
    client.report(request(UDHCPC))
    assert [type(each) for each in client.effects] == [Count, WatchDhcp, Forward]
    assert client.engine.watches_dhcp
    simulation.run(1)
    asked = read(server.received[-1])
    client.carry_out(client.engine.dhcp_reply(simulation.now, reply(replace(asked, op=Op.REPLY))))
    assert isinstance(client.effects[-1], Deliver)
    assert read(client.delivered[-1]).htype == 1
