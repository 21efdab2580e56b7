# SPDX-License-Identifier: BSD-2-Clause
"""DHCP of guests becomes that of hosts of IP over InfiniBand, and the replies the guests' again."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from ipoibu.base.addr import Mac
from ipoibu.base.limits import ETHERNET_DHCP_MAX
from ipoibu.proto.effects import WatchDhcp
from ipoibu.wire import dhcp, ethernet
from ipoibu.wire.dhcp import Code, Kind, Message, Op, Packet
from ipoibu.wire.encap import EtherType
from ipoibu.wire.ethernet import BROADCAST, Frame
from ipoibu.wire.mgid import LIMITED_BROADCAST
from tests.doubles.ethernet_bench import GUEST, GUEST2, GUEST_IP, Lan

ANY = IPv4Address(0)
SERVER = IPv4Address("10.0.0.1")
XID = 0x12345678
OWN_ID = b"\xffidentifier"


def discover(mac: Mac = GUEST, xid: int = XID, client_id: bytes | None = None) -> Message:
    options: tuple[dhcp.Option, ...] = ((Code.MESSAGE_TYPE, bytes((Kind.DISCOVER,))),)
    if client_id is not None:
        options += ((Code.CLIENT_ID, client_id),)
    chaddr = mac.raw + bytes(10)
    return Message(Op.REQUEST, xid, options, htype=1, hlen=6, chaddr=chaddr)


@pytest.fixture
def lan() -> Lan:
    lan = Lan()
    lan.clear()
    return lan


def send(lan: Lan, message: Message, mac: Mac = GUEST) -> Message | None:
    """A guest sends a request; return what leaves."""
    packet = Packet(ANY, dhcp.CLIENT_PORT, LIMITED_BROADCAST, dhcp.SERVER_PORT, message).pack()
    lan.packets.clear()
    lan.guest(Frame(BROADCAST, mac, EtherType.IPV4, packet))
    if not lan.packets:
        return None
    [(raw, next_hop)] = lan.packets
    assert next_hop == LIMITED_BROADCAST
    frame = ethernet.parse_untrusted(raw)
    assert (frame.destination, frame.source) == (BROADCAST, mac)
    return read(frame.payload)


def read(packet: bytes) -> Message:
    parsed = dhcp.parse_untrusted(packet)  # the checksums are right, too
    assert parsed is not None
    return parsed.message


def reply(lan: Lan, message: Message) -> tuple[Mac, Message] | None:
    """A server answers; return who gets what."""
    packet = Packet(SERVER, dhcp.SERVER_PORT, LIMITED_BROADCAST, dhcp.CLIENT_PORT, message).pack()
    lan.frames.clear()
    lan.carry_out(lan.engine.dhcp_reply(lan.now, packet))
    if not lan.frames:
        return None
    [frame] = lan.frames
    return frame.destination, read(frame.payload)


def offer(sent: Message, *, repeats_id: bool = True) -> Message:
    options: tuple[dhcp.Option, ...] = ((Code.MESSAGE_TYPE, bytes((Kind.OFFER,))),)
    identifier = sent.option(Code.CLIENT_ID)
    if repeats_id and identifier is not None:
        options += ((Code.CLIENT_ID, identifier),)
    return Message(Op.REPLY, sent.xid, options, yiaddr=GUEST_IP, flags=sent.flags)


def test_a_request_is_that_of_an_ipoib_host(lan: Lan) -> None:
    """H5: D1, D2: a guest's."""
    sent = send(lan, discover())
    assert sent is not None
    assert (sent.htype, sent.hlen, sent.chaddr) == (32, 0, bytes(16))
    assert sent.is_broadcast
    assert sent.option(Code.CLIENT_ID) == b"\x01" + GUEST.raw
    assert lan.counts == {"dhcp_rewritten": 1}


def test_the_pump_passes_replies_up() -> None:
    lan = Lan()
    assert WatchDhcp() in lan.effects
    assert lan.engine.watches_dhcp


@pytest.mark.parametrize("repeats_id", [True, False])
@pytest.mark.parametrize("client_id", [None, OWN_ID, b"\x01" + bytes(6)])
def test_a_reply_is_what_the_guest_expects(
    lan: Lan, client_id: bytes | None, repeats_id: bool
) -> None:
    """H6."""
    asked = discover(client_id=client_id)
    sent = send(lan, asked)
    assert sent is not None
    answer = reply(lan, offer(sent, repeats_id=repeats_id))
    assert answer is not None
    receiver, message = answer
    assert receiver == GUEST
    assert (message.htype, message.hlen, message.chaddr) == (1, 6, GUEST.raw + bytes(10))
    assert (message.xid, message.flags) == (asked.xid, asked.flags)
    expected = client_id if repeats_id else None
    assert message.option(Code.CLIENT_ID) == expected
    assert message.yiaddr == GUEST_IP


@pytest.mark.parametrize("repeats_id", [True, False])
def test_two_guests_with_one_transaction_get_their_own_replies(lan: Lan, repeats_id: bool) -> None:
    sent = [send(lan, discover(mac), mac) for mac in (GUEST, GUEST2)]
    for message, mac in zip(sent, (GUEST, GUEST2), strict=True):
        assert message is not None
        answer = reply(lan, offer(message, repeats_id=repeats_id))
        assert answer is not None
        assert answer[0] == mac


def test_a_reply_to_nobody_here_passes_unchanged(lan: Lan) -> None:
    """It may be for another host of the link, or for a relay agent among the guests."""
    message = Message(Op.REPLY, 1, ((Code.MESSAGE_TYPE, bytes((Kind.OFFER,))),))
    answer = reply(lan, message)
    assert answer == (BROADCAST, message)
    sent = send(lan, discover())
    assert sent is not None
    foreign = offer(sent).with_option(Code.CLIENT_ID, b"\x01other!")
    assert reply(lan, foreign) == (BROADCAST, foreign)


def test_a_renewal_asks_for_no_broadcast(lan: Lan) -> None:
    sent = send(lan, replace(discover(), ciaddr=GUEST_IP))
    assert sent is not None
    assert not sent.is_broadcast


def test_a_relay_agents_request_passes_unchanged(lan: Lan) -> None:
    relayed = replace(discover(GUEST2), giaddr=GUEST_IP)
    assert send(lan, relayed) == relayed
    ipoib = replace(discover(), htype=32, hlen=0, chaddr=bytes(16))
    assert send(lan, ipoib) == ipoib


def test_a_guest_asks_for_itself_alone(lan: Lan) -> None:
    assert send(lan, discover(GUEST2), GUEST) is None
    assert lan.counts == {"ethernet_spoofed": 1}


def test_what_cannot_be_read_passes(lan: Lan) -> None:
    packet = Packet(ANY, 68, LIMITED_BROADCAST, 67, discover()).pack()
    damaged = packet[:-60] + b"\1" * 60  # the UDP checksum is wrong
    lan.guest(Frame(BROADCAST, GUEST, EtherType.IPV4, damaged))
    assert lan.counts == {"dhcp_unread": 1}
    assert len(lan.packets) == 1


def test_a_request_beyond_the_mtu_is_dropped() -> None:
    lan = Lan(mtu_bytes=340)
    lan.clear()
    long = discover().with_option(43, bytes(60))
    assert send(lan, long) is None
    assert lan.counts == {"ethernet_too_long": 1}


def test_the_oldest_transaction_makes_room(lan: Lan) -> None:
    first = send(lan, discover())
    assert first is not None
    for xid in range(ETHERNET_DHCP_MAX):
        send(lan, discover(xid=xid))
    answer = reply(lan, offer(first))
    assert answer is not None
    assert answer[0] == BROADCAST, "nobody remembers it"
    assert reply(lan, offer(first, repeats_id=False)) is not None
    last = send(lan, discover(xid=ETHERNET_DHCP_MAX))
    assert last is not None
    assert reply(lan, offer(last)) == (
        GUEST,
        replace(
            offer(last).without_option(Code.CLIENT_ID),
            xid=ETHERNET_DHCP_MAX,
            htype=1,
            hlen=6,
            chaddr=GUEST.raw + bytes(10),
            flags=0,
        ),
    )


def test_an_old_transaction_leaves_a_newer_one_of_the_same_number(lan: Lan) -> None:
    send(lan, discover())
    newer = send(lan, discover(GUEST2), GUEST2)
    assert newer is not None
    for xid in range(ETHERNET_DHCP_MAX - 1):
        send(lan, discover(xid=xid))
    answer = reply(lan, offer(newer, repeats_id=False))
    assert answer is not None
    assert answer[0] == GUEST2
    assert lan.counts["dhcp_restored"] == 1
