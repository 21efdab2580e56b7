# SPDX-License-Identifier: BSD-2-Clause
"""Sends and hears for a test: keeps what came, answers for the tester's addresses, writes the transcript."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ipoibu.base.errors import LinkError
from ipoibu.conform.headers.cm import MAD
from ipoibu.conform.headers.ip import echo6, icmp_echo, ipv4, ipv6
from ipoibu.conform.headers.link import ARP, ENCAP, arp, encap
from ipoibu.conform.headers.nd import (
    ADVERTISEMENT,
    SOLICITATION,
    na,
    ns,
    source_option,
    target_option,
)
from ipoibu.conform.layout import Layout, Value
from ipoibu.conform.link import CannotSend, Heard, Link, QueuePair
from ipoibu.conform.mgid import group_hwaddr, solicited_node
from ipoibu.conform.packet import (
    Given,
    Names,
    Packet,
    build,
    parse_untrusted,
    resolve,
)
from ipoibu.conform.test import What
from ipoibu.conform.verdict import Line

ARRIVALS_MAX: Final = 4096
"""Of one test: a peer that sends more is cut short, and the transcript says so."""
FIRST_LAYOUT: Final[dict[QueuePair, Layout]] = {
    **dict.fromkeys(QueuePair, ENCAP),
    QueuePair.GSI: MAD,
}
"""By which header a datagram begins."""


@dataclass(slots=True)
class Arrival:
    """A datagram that came, parsed; `is_taken` when an expectation was met by it."""

    heard: Heard
    packet: Packet
    is_taken: bool = False


@dataclass(slots=True)
class Address:
    """An address of the tester and the queue pair behind it; the tester resolves it if it `answers`."""

    ip: str
    queue_pair: QueuePair
    answers: bool = True
    is_router: bool = False
    flags: int = 0  # of the hardware address


class Tester:
    """One thread uses it."""

    def __init__(self, link: Link) -> None:
        self.link: Final = link
        self.names: dict[str, Value] = {}
        self.addresses: list[Address] = []
        self.arrivals: list[Arrival] = []
        self.transcript: list[Line] = []
        self.overflow = 0
        self._began_s = link.now()
        self._joined: list[bytes] = []

    def begin(self, names: Names, addresses: list[Address]) -> None:
        """Forget the last test; what arrived until now is not the next one's."""
        while self.link.receive(self.link.now()) is not None:
            pass
        self.names = dict(names)
        self.addresses = addresses
        self.arrivals.clear()
        self.transcript = []
        self.overflow = 0
        self._began_s = self.link.now()

    def note(self, words: str) -> None:
        self.transcript.append(Line(self.link.now() - self._began_s, "-", words))

    def send(self, what: What, to: Given, by: QueuePair = QueuePair.MINE) -> None:
        """`KeyError`: the run does not know a symbol; `CannotSend`: the link cannot do so."""
        packet = (what if isinstance(what, Packet) else Packet((what,))).resolved(self.names)
        if FIRST_LAYOUT[by] is ENCAP and packet.layers and packet.layers[0].layout is not ENCAP:
            packet = Packet((encap(), *packet.layers), packet.payload)
        raw = build(packet)
        target = self.hwaddr(to)
        line = Line(self.link.now() - self._began_s, ">", packet, f" to {target.hex()}", raw)
        self.transcript.append(line)
        if by is QueuePair.RC:
            self.link.send_message(raw)
        else:
            self.link.send(by, target, raw)

    def hwaddr(self, to: Given) -> bytes:
        """Return the hardware address of a symbol, an IP group as text, or bytes."""
        value = resolve(to, self.names)
        if isinstance(value, str):
            return group_hwaddr(value, self.link.params)
        if not isinstance(value, bytes):
            raise TypeError("a number is no destination")
        return value

    def join(self, group: Given) -> None:
        """Become a member of an IP group, until `leave_all`."""
        mgid = self.hwaddr(group)[4:]
        self.link.join(mgid)
        self._joined.append(mgid)

    def leave_all(self) -> None:
        """Leave what `join` has joined; a link that cannot leave spoils no verdict."""
        for mgid in self._joined:
            try:
                self.link.leave(mgid)
            except CannotSend as error:
                self.note(f"the tester stays in {mgid.hex()}: {error}")
        self._joined.clear()

    def hear(self, until_s: float, enough: Callable[[], bool] = lambda: False) -> bool:
        """Take what comes until the time, or until it is enough; return whether it is."""
        if enough():
            return True
        while (heard := self.link.receive(until_s)) is not None:
            self._take(heard)
            if enough():
                return True
        return False

    def _take(self, heard: Heard) -> None:
        if len(self.arrivals) >= ARRIVALS_MAX:
            self.overflow += 1
            return
        packet = parse_untrusted(heard.frame, FIRST_LAYOUT[heard.queue_pair])
        self.arrivals.append(Arrival(heard, packet))
        way = "" if heard.queue_pair is QueuePair.MINE else f" on {heard.queue_pair.name}"
        where = f" from {heard.qpn:#08x}{way}"
        self.transcript.append(Line(heard.at_s - self._began_s, "<", packet, where, heard.frame))
        self._resolve(heard, packet)

    def _resolve(self, heard: Heard, packet: Packet) -> None:
        """Answer ARP and ND for the tester's addresses."""
        last = next((it for it in packet.layers if it.layout in (ARP, SOLICITATION)), None)
        if last is None:
            return
        asked = last.values["target_ip" if last.layout is ARP else "target"]
        own = next((it for it in self.addresses if it.answers and it.ip == asked), None)
        if own is None:
            return
        mine = bytes((own.flags,)) + self.link.address(own.queue_pair)[1:]
        if last.layout is ARP:
            if last.values["operation"] != 1 or last.values["sender_ip"] == "0.0.0.0":
                return
            answer = encap() / arp(
                operation=2,
                sender_hwaddr=mine,
                sender_ip=own.ip,
                target_hwaddr=last.values["sender_hwaddr"],
                target_ip=last.values["sender_ip"],
            )
            to = last.values["sender_hwaddr"]
        else:
            head = next(it for it in packet.layers if it.name == "ipv6")
            if head.values["source"] == "::":
                return
            answer = (
                encap()
                / ipv6(source=own.ip, destination=head.values["source"], hop_limit=255)
                / na(router=int(own.is_router), solicited=1, override=1, target=own.ip)
                / target_option(hwaddr=mine)
            )
            to = self.names["peer_hw"]
        if heard.sgid is not None:  # more reliable than what the packet says
            to = heard.qpn.to_bytes(4, "big") + heard.sgid
        assert isinstance(to, bytes)
        if to[4] != 0xFF:
            self.send(answer, bytes(1) + to[1:], own.queue_pair)

    def locate(self, ip: str, source: str, seconds: int) -> tuple[bytes, int] | None:
        """Ask the link once a second who has an address; return where the answer came from, and the flags
        that it announces. `source` is the watcher's address, 0.0.0.0 for a probe (RFC 5227 §2.1.1)."""
        mine = self.link.address(QueuePair.WATCHER)
        if ":" in ip:
            group = solicited_node(ip)
            head = ipv6(source=source, destination=group, hop_limit=255)
            question = head / ns(target=ip) / source_option(hwaddr=mine)
        else:
            group = "255.255.255.255"
            question = Packet((arp(sender_hwaddr=mine, sender_ip=source, target_ip=ip),))
        for _ in range(seconds):
            seen = len(self.arrivals)
            self.send(question, group, QueuePair.WATCHER)

            def answered(seen: int = seen) -> bool:
                return any(_answers_for(it, ip) for it in self.arrivals[seen:])

            if self.hear(self.link.now() + 1.0, answered):
                found = next(it for it in self.arrivals[seen:] if _answers_for(it, ip))
                return _hardware_address(found)
        return None

    def is_answer(self, packet: Packet, ip: str, number: int) -> bool:
        """Return whether this is the reply to the echo request `number` from `ip`."""
        echo = packet.layers[-1] if packet.layers else None
        head = packet.layers[-2] if len(packet.layers) > 1 else None
        return (
            echo is not None
            and head is not None
            and echo.name in ("icmp_echo", "icmpv6_echo")
            and echo.values["type"] in (0, 129)
            and echo.values["id"] == number >> 16
            and echo.values["sequence"] == number & 0xFFFF
            and head.values["destination"] == ip
        )


def echo_request(source: str, target: str, number: int) -> Packet:
    """Return a ping whose id and sequence are the 32 bits of `number`."""
    if ":" in source:
        return (
            encap()
            / ipv6(source=source, destination=target)
            / echo6(id=number >> 16, sequence=number & 0xFFFF)
            / b"ipoibu conform"
        )
    return (
        encap()
        / ipv4(source=source, destination=target)
        / icmp_echo(id=number >> 16, sequence=number & 0xFFFF)
        / b"ipoibu conform"
    )


def _answers_for(arrival: Arrival, ip: str) -> bool:
    """Return whether an ARP reply or a neighbour advertisement says where this address is."""
    return any(
        (it.layout is ARP and it.values["operation"] == 2 and it.values["sender_ip"] == ip)
        or (it.layout is ADVERTISEMENT and it.values["target"] == ip)
        for it in arrival.packet.layers
    )


def _hardware_address(arrival: Arrival) -> tuple[bytes, int]:
    """Return where an answer came from, and the flags that it announces; without a GRH it says itself."""
    named = b""
    for layer in arrival.packet.layers:
        value = layer.values.get("sender_hwaddr", layer.values.get("hwaddr"))
        if isinstance(value, bytes):
            named = value
    flags = named[0] if named else 0
    heard = arrival.heard
    if heard.sgid is None:
        if not named:
            raise LinkError("the answer names no hardware address, and has no GRH")
        return bytes(1) + named[1:], flags
    return heard.qpn.to_bytes(4, "big") + heard.sgid, flags
