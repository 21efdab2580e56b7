# SPDX-License-Identifier: BSD-2-Clause
"""A tester's link on an InfiniBand port in the machine asks the kernel's ib_ipoib for its address."""

from __future__ import annotations

import ipaddress
import json
from typing import Final

from ipoibu.conform.link import MULTICAST_QPN, CannotSend, Heard, QueuePair
from ipoibu.conform.port_link import PortLink

WAIT_S: Final = 60.0
ASK_S: Final = 2.0  # a repetition: the kernel may not be a member of the group yet
GROUP: Final = bytes.fromhex("ff12401bffff00000000000000010203")  # 239.1.2.3 (G3)
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
        link.join(link_group := bytes.fromhex("ff12401bffff000000000000ffffffff"))
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
        link.leave(link_group)
    finally:
        link.close()
    print(json.dumps(report))
