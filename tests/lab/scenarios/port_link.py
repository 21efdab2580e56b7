# SPDX-License-Identifier: BSD-2-Clause
"""A tester's link on an InfiniBand port in the machine asks the kernel's ib_ipoib for its address."""

from __future__ import annotations

import ipaddress
import json
import struct
from typing import Final

from ipoibu.base.addr import HwAddr, PKey, Qpn
from ipoibu.conform.link import MULTICAST_QPN, CannotSend, Heard, QueuePair
from ipoibu.conform.port_link import PortLink
from ipoibu.wire import cm
from ipoibu.wire.cm import Rtu
from ipoibu.wire.cm_private import Private, ServiceForm, service_id
from ipoibu.wire.cm_setup import Path, Rep, Req
from ipoibu.wire.sa import MTU_CODES

WAIT_S: Final = 60.0
ASK_S: Final = 2.0  # a repetition: the kernel may not be a member of the group yet
GROUP: Final = bytes.fromhex("ff12401bffff00000000000000010203")  # 239.1.2.3 (G3)
PSN: Final = 0x123456
TID: Final = 0x4711
LIDS: Final = 0xFFFF, 0xFFFF  # unknown: the path has a hop limit over 1
MESSAGE_MTU: Final = 1024
TIMEOUT_CODE: Final = 18
DATA: Final = bytes(range(256)) * 8  # several packets of a message; the answer is a datagram
ARP_REPLY: Final = bytes.fromhex("080600000020080014040002")


def arp_request(sender: bytes, ours: str, asked: str) -> bytes:
    """RFC 4391 §9.1.2, with the encapsulation header."""
    head = bytes.fromhex("080600000020080014040001")
    mine, theirs = (ipaddress.ip_address(text).packed for text in (ours, asked))
    return head + sender + mine + bytes(20) + theirs


def ask(link: PortLink, queue_pair: QueuePair, ours: str, asked: str) -> Heard:
    """Ask by the broadcast group until a reply comes to the queue pair."""
    group = b"\0\xff\xff\xff" + bytes.fromhex("ff12401bffff000000000000ffffffff")
    request = arp_request(link.address(queue_pair), ours, asked)
    end = link.now() + WAIT_S
    while link.now() < end:
        link.send(queue_pair, group, request)
        until = link.now() + ASK_S
        while (heard := link.receive(until)) is not None:
            if heard.queue_pair is queue_pair and heard.frame.startswith(ARP_REPLY):
                return heard
    raise SystemExit("no ARP reply")


def refusal(link: PortLink, queue_pair: QueuePair, to: bytes) -> str:
    try:
        link.send(queue_pair, to, bytes(256))
    except CannotSend as error:
        return str(error)
    return ""


def run(device: str, ours: str, asked: str) -> None:
    """Print what the link says, and what the kernel answers to two of its queue pairs."""
    link = PortLink(device)
    try:
        link.join(bytes.fromhex("ff12401bffff000000000000ffffffff"))
        link.join(GROUP)
        link.leave(GROUP)
        replies = [ask(link, each, ours, asked) for each in (QueuePair.MINE, QueuePair.OTHER)]
        peer = replies[0].frame[12:32]
        report = {
            "description": link.description,
            "mtu": link.params.mtu,
            "numbers": [link.address(each).hex() for each in (QueuePair.MINE, QueuePair.OTHER)],
            "frames": [reply.frame.hex() for reply in replies],
            "senders": [reply.qpn for reply in replies],
            "gids": [None if reply.sgid is None else reply.sgid.hex() for reply in replies],
            "wrong_pkey": refusal(link, QueuePair.WRONG_PKEY, peer),
            "gsi": refusal(link, QueuePair.GSI, peer),
            "connection": 0 < link.open_connection() < MULTICAST_QPN,
        }
    finally:
        link.close()
    print(json.dumps(report))


def connect(device: str, ours: str, asked: str) -> None:
    """Connect to the kernel by our own messages, send an echo request as a message, print the answer."""
    link = PortLink(device)
    try:
        link.join(bytes.fromhex("ff12401bffff000000000000ffffffff"))
        peer = HwAddr.unpack(ask(link, QueuePair.MINE, ours, asked).frame[12:32])
        mine = HwAddr.unpack(link.address(QueuePair.MINE))
        number = link.open_connection()
        request = Req(
            local_id=7,
            service_id=service_id(ServiceForm.LINUX, peer.qpn),
            ca_guid=1,
            qpn=Qpn(number),
            psn=PSN,
            pkey=PKey(link.params.pkey),
            mtu=MTU_CODES[MESSAGE_MTU],
            primary=Path(mine.gid, peer.gid, *LIDS, hop_limit=64, ack_timeout=TIMEOUT_CODE),
            private=Private(mine.qpn, 65524).pack(),
            remote_timeout=TIMEOUT_CODE,
            local_timeout=TIMEOUT_CODE,
            cm_retries=7,
            has_srq=True,
        )
        rep = answer(link, peer, request)
        link.connect(peer.pack(), rep.qpn, MESSAGE_MTU, PSN, rep.psn)
        link.send(QueuePair.GSI, peer.pack(), cm.pack(TID, Rtu(7, rep.local_id)))
        link.send_message(echo_request(ours, asked))
        heard = hear_echo(link)
    finally:
        link.close()
    print(json.dumps({"queue_pair": heard.queue_pair.name, "frame": heard.frame.hex()}))


def answer(link: PortLink, peer: HwAddr, request: Req) -> Rep:
    end = link.now() + WAIT_S
    while link.now() < end:
        link.send(QueuePair.GSI, peer.pack(), cm.pack(TID, request))
        until = link.now() + ASK_S
        while (heard := link.receive(until)) is not None:
            if heard.queue_pair is QueuePair.GSI:
                tid, message = cm.parse_untrusted(heard.frame)
                if not isinstance(message, Rep):
                    raise SystemExit(f"transaction {tid}: {message}")
                return message
    raise SystemExit("no REP")


def echo_request(source: str, target: str) -> bytes:
    ends = b"".join(ipaddress.ip_address(text).packed for text in (source, target))
    echo = bytes.fromhex("0800") + bytes(2) + bytes.fromhex("00010001") + DATA
    echo = echo[:2] + checksum(echo) + echo[4:]
    head = bytes.fromhex("4500") + (20 + len(echo)).to_bytes(2, "big") + bytes(4) + b"\x40\x01"
    head = head + checksum(head + bytes(2) + ends) + ends
    return bytes.fromhex("08000000") + head + echo


def checksum(data: bytes) -> bytes:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (total ^ 0xFFFF).to_bytes(2, "big")


def hear_echo(link: PortLink) -> Heard:
    end = link.now() + WAIT_S
    while (heard := link.receive(end)) is not None:
        if heard.frame.endswith(DATA):
            return heard
    raise SystemExit("no echo")
