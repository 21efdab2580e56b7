# SPDX-License-Identifier: BSD-2-Clause
"""Checks that the hosts of a lab reach each other: ping, multicast and TCP, over IPv4 and IPv6.

The checks use ordinary sockets of the kernel's stack on the TUN interfaces, and no programs. They
repeat a lost packet until `PATIENCE_S` is over, so a lab with faults passes if it works at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host

PATIENCE_S: Final = 30.0
RESEND_S: Final = 0.5
PINGS: Final = 3
TCP_BYTES: Final = 4 << 20
PORT: Final = 7711
PIECE_BYTES: Final = 1 << 16
GROUP4: Final = "239.77.0.1"
GROUP6: Final = "ff15::77"
ICMP_ECHO: Final = (8, 0)  # request, reply: RFC 792
ICMP6_ECHO: Final = (128, 129)  # RFC 4443


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one check: `check` is ping, multicast or tcp; `detail` is for people."""

    check: str
    family: str
    source: str
    target: str
    ok: bool
    detail: str
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        return {
            "check": self.check,
            "family": self.family,
            "from": self.source,
            "to": self.target,
            "ok": self.ok,
            "detail": self.detail,
            "seconds": round(self.seconds, 6),
        }

    def __str__(self) -> str:
        verdict = "ok  " if self.ok else "FAIL"
        return (
            f"{verdict}  {self.check} {self.family}  {self.source} -> {self.target}  {self.detail}"
        )


def check(lab: NamespaceLab) -> Iterator[Outcome]:
    """Yield each outcome as it is known: ping and multicast between all pairs, TCP around a ring."""
    hosts = lab.hosts
    for family in ("ipv4", "ipv6"):
        for source in hosts:
            for target in hosts:
                if source is not target:
                    yield ping(source, target, family)
    for family in ("ipv4", "ipv6"):
        for source in hosts:
            yield from multicast(source, [host for host in hosts if host is not source], family)
    for family in ("ipv4", "ipv6"):
        for source, target in zip(hosts, [*hosts[1:], hosts[0]], strict=True):
            yield tcp(source, target, family)


def _family(family: str) -> int:
    return socket.AF_INET if family == "ipv4" else socket.AF_INET6


def _address(host: Host, family: str) -> str:
    return str(host.ipv4.ip if family == "ipv4" else host.ipv6.ip)


# Ping


def ping(source: Host, target: Host, family: str) -> Outcome:
    """Send echo requests until the target answers PINGS of them; report the shortest round trip."""
    protocol = socket.IPPROTO_ICMP if family == "ipv4" else socket.IPPROTO_ICMPV6
    request, reply = ICMP_ECHO if family == "ipv4" else ICMP6_ECHO
    identifier = random.getrandbits(16)
    best, answered, sent = PATIENCE_S, 0, 0
    deadline = time.monotonic() + PATIENCE_S
    with source.socket(_family(family), socket.SOCK_RAW, protocol) as echoes:
        while answered < PINGS and time.monotonic() < deadline:
            sent += 1
            began = time.monotonic()
            with contextlib.suppress(OSError):  # a full queue, or an absent host
                echoes.sendto(_echo(request, identifier, sent), (_address(target, family), 0))
            wanted = struct.pack("!BxHH", reply, identifier, sent & 0xFFFF)
            if _replied(echoes, family, wanted, began + RESEND_S):
                best = min(best, time.monotonic() - began)
                answered += 1
    detail = f"{answered} of {sent} answered"
    if answered:
        detail += f", round trip {best * 1e3:.3f} ms"
    return Outcome("ping", family, source.name, target.name, answered == PINGS, detail, best)


def _echo(kind: int, identifier: int, sequence: int) -> bytes:
    payload = bytes(range(56))
    packet = struct.pack("!BBHHH", kind, 0, 0, identifier, sequence & 0xFFFF) + payload
    if kind != ICMP_ECHO[0]:
        return packet  # the kernel fills in the checksum of ICMPv6
    total = sum(struct.unpack(f"!{len(packet) // 2}H", packet))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return packet[:2] + struct.pack("!H", ~total & 0xFFFF) + packet[4:]


def _replied(echoes: socket.socket, family: str, wanted: bytes, until: float) -> bool:
    """Wait for the ICMP message with type, identifier and sequence as in `wanted`."""
    while (left := until - time.monotonic()) > 0:
        if not select.select([echoes], [], [], left)[0]:
            return False
        packet = echoes.recv(2048)
        if family == "ipv4":
            packet = packet[(packet[0] & 0xF) * 4 :]  # raw IPv4 sockets deliver the header
        if packet[:1] + b"\0" + packet[4:8] == wanted:
            return True
    return False


# Multicast


def multicast(source: Host, targets: list[Host], family: str) -> list[Outcome]:
    """Send a datagram to a group that every target has joined, again and again until it arrives."""
    token = random.randbytes(16)
    group = GROUP4 if family == "ipv4" else GROUP6
    began = time.monotonic()
    arrived: dict[str, float] = {}
    failure = "not received"
    with contextlib.ExitStack() as stack:
        waiting: dict[socket.socket, Host] = {}
        try:
            sender = _sender(source, family, stack)
            waiting = {_member(host, family, stack): host for host in targets}
        except OSError as error:
            failure = f"{error.strerror or error}"
        while waiting and time.monotonic() < began + PATIENCE_S:
            with contextlib.suppress(OSError):
                sender.sendto(token, (group, PORT))
            until = time.monotonic() + RESEND_S
            while waiting and (left := until - time.monotonic()) > 0:
                for member in select.select(list(waiting), [], [], left)[0]:
                    if member.recv(64) == token:
                        arrived[waiting.pop(member).name] = time.monotonic() - began
    return [
        Outcome(
            "multicast",
            family,
            source.name,
            host.name,
            host.name in arrived,
            f"{group} {'received' if host.name in arrived else failure}",
            arrived.get(host.name, PATIENCE_S),
        )
        for host in targets
    ]


def _sender(host: Host, family: str, stack: contextlib.ExitStack) -> socket.socket:
    out = stack.enter_context(host.socket(_family(family), socket.SOCK_DGRAM))
    index = host.interface_index()
    if family == "ipv4":
        out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, _mreqn("0.0.0.0", index))
    else:
        out.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
    return out


def _member(host: Host, family: str, stack: contextlib.ExitStack) -> socket.socket:
    member = stack.enter_context(host.socket(_family(family), socket.SOCK_DGRAM))
    index = host.interface_index()
    if family == "ipv4":
        member.bind(("", PORT))
        request = _mreqn(GROUP4, index)
        member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
    else:
        member.bind(("::", PORT))
        request = socket.inet_pton(socket.AF_INET6, GROUP6) + struct.pack("=I", index)
        member.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, request)
    return member


def _mreqn(group: str, index: int) -> bytes:
    return struct.pack("=4s4si", socket.inet_aton(group), bytes(4), index)


# TCP


def tcp(source: Host, target: Host, family: str, size_bytes: int = TCP_BYTES) -> Outcome:
    """Transfer random bytes, and compare the SHA-256 of both ends."""
    data = random.randbytes(size_bytes)
    wanted = hashlib.sha256(data).hexdigest()
    began = time.monotonic()
    failure, got = "", ""
    try:
        got = _transfer(source, target, family, data)
    except OSError as error:
        failure = f"{error.strerror or error}"
    seconds = time.monotonic() - began
    ok = got == wanted
    detail = (
        f"{size_bytes} bytes, {size_bytes * 8e-6 / seconds:.0f} Mb/s, sha256 {wanted[:16]} agrees"
        if ok
        else failure or f"{size_bytes} bytes, sha256 differs"
    )
    return Outcome("tcp", family, source.name, target.name, ok, detail, seconds)


def _transfer(source: Host, target: Host, family: str, data: bytes) -> str:
    """Send `data`, and return the digest that the receiving end computes and sends back."""
    with target.socket(_family(family), socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.settimeout(PATIENCE_S)
        listener.bind((_address(target, family), PORT))
        listener.listen(1)
        receiver = threading.Thread(target=_digest, args=(listener,))
        receiver.start()
        try:
            with source.socket(_family(family), socket.SOCK_STREAM) as sender:
                sender.settimeout(PATIENCE_S)
                sender.connect((_address(target, family), PORT))
                for at in range(0, len(data), PIECE_BYTES):  # the time-out is for each
                    sender.sendall(data[at : at + PIECE_BYTES])
                sender.shutdown(socket.SHUT_WR)
                return sender.recv(64, socket.MSG_WAITALL).decode(errors="replace")
        finally:
            receiver.join()


def _digest(listener: socket.socket) -> None:
    """Act as the receiving end; after any error here the sending end misses the digest."""
    digest = hashlib.sha256()
    with contextlib.suppress(OSError):
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(PATIENCE_S)
            while part := connection.recv(PIECE_BYTES):
                digest.update(part)
            connection.sendall(digest.hexdigest().encode())
