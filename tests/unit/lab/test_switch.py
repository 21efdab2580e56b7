# SPDX-License-Identifier: BSD-2-Clause
"""The lab's InfiniBand switch: directed routes, forwarding, links, and what it tells of itself."""

from __future__ import annotations

import random
import struct
from typing import Final

import pytest

from ipoibu.lab.machines.smp import Attribute, Method, PortState
from ipoibu.lab.machines.switch import DESCRIPTION, GUID, Switch

GROUP: Final = bytes.fromhex("ff120000000000000000 4c494400")
PERMISSIVE: Final = 0xFFFF
LID: Final = 7  # the switch's


def frame(
    mad: bytes | bytearray, to: int = PERMISSIVE, source: int = PERMISSIVE, qpn: int = 0
) -> bytes:
    ethernet = b"\x33\x33" + GROUP[12:] + to.to_bytes(2) + bytes(6) + b"\x86\xdd"
    ip = struct.pack(">IHBB", 0x60000000, 292, 17, 64) + bytes(16) + GROUP + to.to_bytes(2)
    udp = struct.pack(">HHHH", source, 4791, 292, 0)
    return (
        ethernet + ip + udp + struct.pack(">BxHIIII", 0x64, 0xFFFF, qpn, 0, 0, 1) + mad + bytes(4)
    )


def smp(
    attribute: int,
    path: bytes = b"\0\1",
    *,
    value: bytes = b"",
    modifier: int = 0,
    method: int = Method.GET,
) -> bytearray:
    """Return a packet that the first port on `path` has sent."""
    data = bytearray(256)
    data[:8] = bytes((1, 0x81, 1, method, 0, 0, 1, len(path) - 1))
    struct.pack_into(">HHI", data, 16, attribute, 0, modifier)
    data[32:36] = b"\xff" * 4
    data[64 : 64 + len(value)] = value
    data[128 : 128 + len(path)] = path
    return data


def mad(sent: bytes) -> bytes:
    assert sent[38:52] == GROUP
    return sent[82:338]


def ask(switch: Switch, question: bytes | bytearray, port: int = 1) -> bytes:
    """Return the answer's packet."""
    [(to, sent)] = switch.receive(port, frame(question))
    assert to == port
    assert mad(sent)[3:6] == bytes((Method.GET_RESPONSE, 0x80, 0))
    assert mad(sent)[6] == 1  # the asker is one hop away
    return mad(sent)


def report(kind: int, group: bytes = GROUP + b"\xff\xff") -> bytes:
    """Return a frame with an MLDv2 report of one record."""
    ethernet = bytes.fromhex("333300000016") + bytes(6) + b"\x86\xdd"
    options = bytes.fromhex("3a00050200000100")
    icmp = struct.pack(">BBHHH", 143, 0, 0, 0, 1) + struct.pack(">BBH", kind, 0, 0) + group
    ip = struct.pack(">IHBB", 0x60000000, len(options) + len(icmp), 0, 1) + bytes(32)
    return ethernet + ip + options + icmp


@pytest.fixture
def switch() -> Switch:
    """A switch with three ports, two of them linked, as an SM behind port 1 leaves it."""
    switch = Switch(3)
    for port in (1, 2):
        switch.receive(port, report(4))
    info = bytearray(64)
    struct.pack_into(">HH", info, 16, LID, 1)
    ask(switch, smp(Attribute.PORT_INFO, method=Method.SET, value=bytes(info)))
    table = b"\xff\x01\x02" + b"\xff" * 61
    ask(switch, smp(Attribute.LINEAR_FORWARDING, method=Method.SET, value=table))
    return switch


def test_the_switch_says_what_it_is(switch: Switch) -> None:
    assert ask(switch, smp(Attribute.NODE_DESCRIPTION))[64:74] == DESCRIPTION
    info = ask(switch, smp(Attribute.NODE_INFO), port=2)[64:]
    assert (info[2], info[3], info[36]) == (2, 3, 2)  # a switch, its ports, the port of the asker
    assert int.from_bytes(info[12:20]) == GUID
    [(_, sent)] = switch.receive(1, frame(smp(0x7F)))
    assert mad(sent)[5] == 0x0C  # no such attribute


def test_a_directed_route_leads_to_a_machine_and_back(switch: Switch) -> None:
    [(to, there)] = switch.receive(1, frame(smp(Attribute.NODE_INFO, b"\0\1\2")))
    assert to == 2
    question = mad(there)
    assert (question[6], question[193]) == (2, 1)  # the second hop; it came in on port 1
    answer = bytearray(question)
    answer[3:5] = bytes((Method.GET_RESPONSE, 0x80))
    [(to, back)] = switch.receive(2, frame(answer))
    assert (to, mad(back)[6]) == (1, 1)


@pytest.mark.parametrize(
    "path", [b"\0\1\4", b"\0\1\0", b"\0"], ids=["no such port", "port 0", "no hop"]
)
def test_a_route_to_nowhere_is_dropped(switch: Switch, path: bytes) -> None:
    assert switch.receive(1, frame(smp(Attribute.NODE_INFO, path))) == []


def test_packets_by_lid_follow_the_forwarding_table(switch: Switch) -> None:
    packet = frame(bytes(256), to=2, source=1, qpn=0x123)
    assert switch.receive(1, packet) == [(2, packet)]
    assert switch.receive(2, packet) == []  # not back to where it came from
    assert switch.receive(1, frame(bytes(256), to=3, source=1)) == []  # no such LID
    ethernet = bytes(200)
    assert switch.receive(1, ethernet) == [(2, ethernet), (3, ethernet)]


def test_a_port_comes_up_step_by_step(switch: Switch) -> None:
    def state(port: int) -> int:
        return ask(switch, smp(Attribute.PORT_INFO, modifier=port))[96] & 0x0F

    def lead(port: int, to: PortState) -> None:
        value = bytes(32) + bytes((to,))
        ask(switch, smp(Attribute.PORT_INFO, modifier=port, method=Method.SET, value=value))

    assert [state(port) for port in (0, 2, 3)] == [PortState.ACTIVE, PortState.INIT, PortState.DOWN]
    for port in (2, 3):
        lead(port, PortState.ACTIVE)  # not before it is armed
    assert state(2) == PortState.INIT
    for port in (2, 3):
        lead(port, PortState.ARMED)
        lead(port, PortState.ACTIVE)
    assert [state(port) for port in (2, 3)] == [PortState.ACTIVE, PortState.DOWN]


def test_a_link_that_goes_is_told_to_the_manager(switch: Switch) -> None:
    ask(switch, smp(Attribute.SWITCH_INFO, method=Method.SET, value=bytes(11) + b"\x04"))
    assert switch.receive(2, report(4))[2:] == []  # the link is up already
    leave = report(3)
    *copies, (to, trap) = switch.receive(2, leave)
    assert copies == [(1, leave), (3, leave)]
    assert to == 1
    assert trap[52:54] == bytes((0, 1))  # to the manager's LID
    assert mad(trap)[1:4] == bytes((0x01, 1, Method.TRAP))
    assert struct.unpack_from(">H", mad(trap), 68) == (128,)
    assert ask(switch, smp(Attribute.SWITCH_INFO))[75] & 0x04  # a port's state has changed
    assert switch.receive(2, report(3, bytes(16)))[2:] == []


def test_the_switch_counts_what_passes_its_ports(switch: Switch) -> None:
    question = bytearray(256)
    question[:4] = bytes((1, 0x04, 1, Method.GET))
    question[16:18] = (0x1D).to_bytes(2)
    question[65] = 3

    def counts() -> tuple[int, ...]:
        [(to, sent)] = switch.receive(1, frame(question, to=LID, source=1, qpn=1))
        assert (to, sent[52:54]) == (1, bytes((0, 1)))
        return struct.unpack_from(">QQQQ", mad(sent), 72)

    before = counts()
    switch.receive(1, bytes(400))
    assert [now - then for now, then in zip(counts(), before, strict=True)] == [100, 0, 1, 0]


def test_no_frame_upsets_the_switch(switch: Switch) -> None:
    rng = random.Random(1)
    seeds = [frame(smp(Attribute.PORT_INFO)), frame(bytes(256), to=LID, source=1, qpn=1), report(4)]
    for _ in range(3000):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randrange(4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        for to, sent in switch.receive(rng.randint(1, 3), bytes(data[: rng.randint(0, 400)])):
            assert to in (1, 2, 3)
            assert len(sent) <= 400
