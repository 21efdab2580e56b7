# SPDX-License-Identifier: BSD-2-Clause
"""Attacks on an iWARP mesh, whose greetings and messages have no key: all the bytes that a host can send,
over a kernel and a core that the test plays."""

from __future__ import annotations

from ipaddress import IPv4Address, ip_address
from typing import Any, Final

import pytest

from ipoibu.base.addr import Gid
from ipoibu.base.limits import UNICAST_PEERS_MAX
from ipoibu.fabric.cm.librdmacm import SocketAddress
from ipoibu.wire import mesh
from ipoibu.wire.mesh import Locator
from tests.unit.fabric.cm.test_rdma_cm import Channel, Id
from tests.unit.fabric.mesh.test_connections import (
    CONTROL,
    GROUP,
    Desk,
    T,
    desk,
    greeting,
)

__all__ = ["desk"]  # the fixture

PLACES: Final = 10_000
ROOM: Final = 100_000  # queue pairs


def _asks(desk: Desk, number: int, private: bytes) -> Id:
    asked = Id(Channel.now)
    asked.target = SocketAddress(IPv4Address(0x0A010000 + number), 999)
    Channel.now.emit(T.CONNECT_REQUEST, asked, listener=desk.listeners[0], private=private)
    return asked


def _settle(desk: Desk) -> None:
    """Return when everything before has been read: the thread reads events in their order."""
    _asks(desk, 0, b"garbage").take("reject", "close")


def _counts(desk: Desk) -> Any:
    return desk.connections.counters()


def _is_refused(asked: Id) -> bool:
    return not asked.calls.empty() and asked.calls.get()[0] == "reject"


def _admits_honest(desk: Desk) -> bool:
    """Dial a place that an administrator names, and hear from it."""
    while not desk.core.calls.empty():
        desk.core.calls.get()
    desk.meet()
    return any(row["state"] == "live" for row in desk.connections.peers())


def test_a_greeting_that_is_cut_or_changed_is_refused_or_names_another_host(desk: Desk) -> None:
    desk.room = ROOM
    good = greeting(0x70).pack()
    for length in range(len(good)):
        asked = _asks(desk, 1, good[:length])
        _settle(desk)
        assert _is_refused(asked), length
    refused = 0
    for at in range(len(good)):
        changed = bytearray(good)
        changed[at] ^= 0xFF
        asked = _asks(desk, 2 + at, bytes(changed))
        _settle(desk)
        refused += _is_refused(asked)
    assert refused >= 5  # the mark and the version; the rest is another host, window, MTU or port
    assert _counts(desk).get("defect", 0) == 0
    assert not [row for row in desk.connections.peers() if row["state"] == "live"]
    assert _admits_honest(desk)


def test_half_open_connections_and_replays_end_at_the_cap(desk: Desk) -> None:
    """Requests that never go on, and one greeting again and again from ever new places."""
    desk.room = ROOM
    for number in range(1, 500):
        _asks(desk, number, greeting(0x1000 + number).pack())
        _asks(desk, 1000 + number, greeting(0x70).pack())
    for number in range(2000, 3500):
        _asks(desk, number, greeting(0x1000 + number).pack())
    _settle(desk)
    assert len(desk.connections.peers()) <= UNICAST_PEERS_MAX
    assert _counts(desk)["mesh_full"] > 0
    assert _counts(desk).get("defect", 0) == 0


def test_ten_thousand_places_of_a_peer_leave_room_for_a_seed(desk: Desk) -> None:
    desk.room = ROOM
    handle, _ = desk.meet()
    numbers = range(PLACES)
    for at in range(0, PLACES, mesh.LIST_MAX):
        places = [
            Locator(ip_address(0x0B000000 + n), 4792) for n in numbers[at : at + mesh.LIST_MAX]
        ]
        for message in mesh.peers(places):
            desk.core.emit(handle, CONTROL, message)
    _settle(desk)
    assert _counts(desk).get("defect", 0) == 0
    assert len(desk.connections.peers()) <= UNICAST_PEERS_MAX
    desk.connections.seeds({Locator(ip_address("10.99.0.9"), 4792)})
    dialed: set[str] = set()
    while len(dialed) < 2000:
        cm_id = Channel.now.next()
        ((_, target),) = cm_id.take("resolve")
        dialed.add(str(target.ip))
        if "10.99.0.9" in dialed:
            break
    assert "10.99.0.9" in dialed


@pytest.mark.parametrize(
    "message",
    [
        next(mesh.groups(mesh.Operation.GROUPS, [GROUP, Gid.parse("ff12:401b:ffff::2")])),
        mesh.addresses([ip_address("10.9.0.2"), ip_address("fd00::2")]),
    ],
)
def test_a_message_that_is_cut_or_changed_breaks_nothing(desk: Desk, message: bytes) -> None:
    handle, _ = desk.meet()
    pieces = [message[:length] for length in range(len(message))]
    for at in range(len(message)):
        for bit in (1, 0x80, 0xFF):
            changed = bytearray(message)
            changed[at] ^= bit
            pieces.append(bytes(changed))
    for piece in pieces:
        desk.core.emit(handle, CONTROL, piece)
    desk.core.emit(handle, CONTROL, next(mesh.groups(mesh.Operation.LEAVE, [GROUP])))
    while desk.core.calls.get(timeout=10.0) != ("group", handle, GROUP.raw, False):
        pass
    counts = _counts(desk)
    assert counts.get("defect", 0) == 0
    assert sum(counts[name] for name in mesh.REASONS if name in counts) > 10
    assert [row["state"] for row in desk.connections.peers()] == ["live"]


def test_a_replayed_greeting_does_not_end_the_connection_that_we_dialed(desk: Desk) -> None:
    desk.room = ROOM
    desk.meet()
    before = desk.connections.peers()
    for number in range(1, 100):
        _asks(desk, number, greeting(0x60).pack())
    _settle(desk)
    live = [row for row in desk.connections.peers() if row["state"] == "live"]
    assert live == before
    assert _counts(desk).get("defect", 0) == 0
