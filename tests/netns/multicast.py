# SPDX-License-Identifier: BSD-2-Clause
"""Senders to groups, and members of groups, around a multicast router."""

from __future__ import annotations

import secrets
import select
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

from tests.netns.programs import Station, namespace_of
from tests.netns.streams import family_of

Until = Callable[..., Any]
PORT = 5000
MCAST_JOIN_GROUP, MCAST_JOIN_SOURCE_GROUP = 42, 46  # linux/in.h


class Place(NamedTuple):
    """A station beside the router, and its interface."""

    station: Station
    interface: str


def index_of(place: Place) -> int:
    return namespace_of(place.station).inside(lambda: socket.if_nametoindex(place.interface))


def member(place: Place, group: str, source: str | None = None) -> socket.socket:
    """A socket that receives what is sent to the group, or what `source` alone sends to it."""
    family = family_of(group)
    level = socket.IPPROTO_IP if family == socket.AF_INET else socket.IPPROTO_IPV6
    joined = place.station.socket(family, socket.SOCK_DGRAM)
    joined.bind((group, PORT))
    request = struct.pack("=I4x", index_of(place)) + _sockaddr(group)
    if source is None:
        joined.setsockopt(level, MCAST_JOIN_GROUP, request)
    else:
        joined.setsockopt(level, MCAST_JOIN_SOURCE_GROUP, request + _sockaddr(source))
    return joined


def _sockaddr(ip: str) -> bytes:
    """A struct sockaddr_storage."""
    family = family_of(ip)
    raw = socket.inet_pton(family, ip)
    fields = raw if family == socket.AF_INET else bytes(4) + raw
    return (struct.pack("=HH", family, 0) + fields).ljust(128, b"\0")


def arrives(
    source: Place, targets: list[Place], group: str, until: Until, only_from: str | None = None
) -> None:
    """Send from `source` to the group until each target, a member, has received it."""
    family = family_of(group)
    word = secrets.token_hex(8).encode()
    with ExitStack() as stack:
        members = [stack.enter_context(closing(member(it, group, only_from))) for it in targets]
        sender = stack.enter_context(source.station.socket(family, socket.SOCK_DGRAM))
        if family == socket.AF_INET:
            via = struct.pack("=4s4si", bytes(4), bytes(4), index_of(source))
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, via)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 8)
        else:
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index_of(source))
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 8)
        waiting = set(members)

        def has_come() -> bool:
            sender.sendto(word, (group, PORT))
            for each in select.select(list(waiting), [], [], 0.1)[0]:
                if each.recv(100) == word:
                    waiting.discard(each)
            return not waiting

        until(has_come)
