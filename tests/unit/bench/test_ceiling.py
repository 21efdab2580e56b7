# SPDX-License-Identifier: BSD-2-Clause
"""The ceiling of the benchmark does the whole work: pairs of sockets play the TUNs, scapy the kernel."""

from __future__ import annotations

import random
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest
from scapy.layers.inet import IP, TCP
from scapy.packet import Raw

from ipoibu.bench._ceiling import Ceiling, mtu
from ipoibu.bench.stream import UDP_GRO
from tests.doubles.packets import until
from tests.unit.core.test_pump_offload import NEEDS_CSUM, TCPV4, VNET, check_whole, super_frame

MSS = 2044 - 40
RESEND_NS = 100_000_000
CONNECTED = (4096, 8928)


class End:
    """One end with its sockets; `tun` stands for the kernel."""

    def __init__(self, stack: ExitStack) -> None:
        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self.udp.bind(("127.0.0.1", 0))
        self.udp.setsockopt(socket.SOL_UDP, UDP_GRO, 1)
        self.device, self.tun = (stack.enter_context(each) for each in pair)
        for each in (*pair, self.udp):
            each.setblocking(False)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)

    def start(self, other: End, packet_bytes: int) -> None:
        self.udp.connect(other.udp.getsockname())
        self.ceiling = Ceiling(self.device.fileno(), self.udp, packet_bytes)

    def took(self) -> list[bytes]:
        """What the kernel gets."""
        frames = []
        while True:
            try:
                frames.append(self.tun.recv(1 << 17))
            except BlockingIOError:
                return frames


Ends = tuple[End, End]


@pytest.fixture
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    with ExitStack() as stack:
        first, second = End(stack), End(stack)
        first.start(second, request.param)
        second.start(first, request.param)
        yield first, second


def now() -> int:
    return time.monotonic_ns()


def exchange(ends: Ends, count: int, clock: Callable[[], int] = now) -> list[bytes]:
    """Step both until the second end's kernel has so many frames."""
    frames: list[bytes] = []

    def is_there() -> bool:
        for end in ends:
            end.ceiling.step(clock())
        frames.extend(ends[1].took())
        return len(frames) >= count

    until(is_there)
    return frames


def refused(end: End, count: int) -> bool:
    end.ceiling.step(0)
    return end.ceiling.trouble[0] == count


def received(end: End, timeout_s: float = 20) -> bytes:
    """Take a train away before the end does."""
    assert select.select([end.udp], [], [], timeout_s)[0]
    return end.udp.recv(1 << 16)


def frame(payload: bytes, number: int = 0) -> bytes:
    """What a TUN yields for so much TCP, as a super-frame if it is long."""
    head = IP(src="10.0.0.1", dst="10.0.0.2", flags="DF", id=number) / TCP(flags="A")
    made = super_frame(head / Raw(payload), MSS)
    return made if len(payload) > MSS else VNET.pack(NEEDS_CSUM, 0, 0, 0, 20, 16) + made[16:]


def payload_of(taken: bytes) -> bytes:
    return taken[16 + 40 :]


LONG = random.Random(1).randbytes(31 * MSS)
SHORTER = LONG[: 29 * MSS]  # a train everywhere


@pytest.mark.parametrize("ends", [0, *CONNECTED], indirect=True)
def test_a_super_frame_arrives_as_one(ends: Ends) -> None:
    first, second = ends
    first.tun.send(frame(LONG))
    (taken,) = exchange(ends, 1)
    assert payload_of(taken) == LONG
    assert VNET.unpack(taken[:16])[:2] == (NEEDS_CSUM, TCPV4)
    assert VNET.unpack(taken[:16])[3] == MSS
    assert first.ceiling.trouble == second.ceiling.trouble == (0, 0)


@pytest.mark.parametrize("ends", [0], indirect=True)
def test_packets_of_datagrams_are_whole_packets_of_ip(ends: Ends) -> None:
    ends[0].tun.send(frame(b"odd"))
    (taken,) = exchange(ends, 1)
    assert VNET.unpack(taken[:16]) == (0, 0, 0, 0, 0, 0)
    check_whole(taken[16:])


@pytest.mark.parametrize("ends", [0], indirect=True)
def test_datagrams_have_the_lengths_of_the_protocol(ends: Ends) -> None:
    first, second = ends
    first.tun.send(frame(LONG))
    first.ceiling.step(0)
    assert select.select([second.udp], [], [], 20)[0]
    train, control, _, _ = second.udp.recvmsg(1 << 16, 64)
    assert len(train) == 31 * (12 + 8 + 4 + 2044 + 4)
    assert int.from_bytes(control[0][2][:4], "little") == 12 + 8 + 4 + 2044 + 4


@pytest.mark.parametrize("ends", CONNECTED, indirect=True)
@pytest.mark.parametrize("length", [1, MSS, 31 * MSS, 65535 - 40])
def test_a_message_of_any_length_crosses_whole(ends: Ends, length: int) -> None:
    payload = random.Random(length).randbytes(length)
    taken = []
    for number in range(40):  # more than the window holds
        ends[0].tun.send(frame(payload, number))
        taken += exchange(ends, 0)
    taken += exchange(ends, 40 - len(taken))
    assert [IP(each[16:36]).id for each in taken] == list(range(40))
    assert {payload_of(each) for each in taken} == {payload}
    assert all(each[:12] == frame(payload)[:12] for each in taken)


@pytest.mark.parametrize("ends", CONNECTED, indirect=True)
def test_a_lost_train_is_sent_again_in_its_place(ends: Ends) -> None:
    first, second = ends
    for number in range(3):
        first.tun.send(frame(SHORTER, number))
    first.ceiling.step(now())
    received(second)  # lost
    assert [IP(each[16:36]).id for each in exchange(ends, 3)] == [0, 1, 2]
    assert first.ceiling.trouble[1] > 0


@pytest.mark.parametrize("ends", CONNECTED, indirect=True)
def test_the_last_train_is_sent_again_in_time(ends: Ends) -> None:
    first, second = ends
    first.tun.send(frame(SHORTER))
    first.ceiling.step(0)
    received(second)  # lost
    first.ceiling.step(RESEND_NS - 1)
    assert first.ceiling.trouble[1] == 0
    (taken,) = exchange(ends, 1, lambda: RESEND_NS)
    assert payload_of(taken) == SHORTER
    assert first.ceiling.trouble[1] == 1


@pytest.mark.parametrize("ends", [0, *CONNECTED], indirect=True)
@pytest.mark.parametrize("place", [0, 5, 40, -5, -1])
def test_a_damaged_packet_is_refused(ends: Ends, place: int) -> None:
    first, second = ends
    first.tun.send(frame(b"a packet"))
    first.ceiling.step(0)
    packet = bytearray(received(second))
    packet[place] ^= 0x40
    first.udp.send(packet)
    until(lambda: refused(second, 1))
    assert second.took() == []


@pytest.mark.parametrize("ends", [0, *CONNECTED], indirect=True)
def test_bytes_of_anyone_are_refused(ends: Ends) -> None:
    first, second = ends
    random_ = random.Random(2)
    for length in range(120):
        first.udp.send(random_.randbytes(length))
        until(partial(refused, second, length))
    assert second.took() == []


def test_a_train_is_what_the_mtu_says() -> None:
    assert [mtu(each) for each in (0, *CONNECTED)] == [2044, 61424, 62480]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        udp.connect(udp.getsockname())
        for wrong in (2, 1020, 4098, 16388):
            with pytest.raises(ValueError, match=str(wrong)):
                Ceiling(0, udp, wrong)
