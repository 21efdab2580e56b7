# SPDX-License-Identifier: BSD-2-Clause
"""Frames of the data path in an application's hands: their owner, and how long they stay valid."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
from collections.abc import Iterator

import pytest

from ipoibu import Closed, Endpoint, EndpointConfig, Gid, _core
from ipoibu._core import Frame, MemorySwitch
from ipoibu.fabric.memory import MemoryPort

Pair = tuple[Endpoint, Endpoint]


def packet(number: int) -> bytes:
    head = bytes.fromhex("45000040000000004011") + bytes(2) + bytes([10, 0, 0, 1, 10, 0, 0, 2])
    return head + number.to_bytes(4, "big") + bytes(40)


@pytest.fixture
def pair() -> Iterator[Pair]:
    switch = MemorySwitch(3)
    ends = [
        Endpoint(
            EndpointConfig(f"h{n}", "memory"), port=MemoryPort(switch, Gid.parse(f"fe80::{n}"))
        )
        for n in (1, 2)
    ]
    with ends[0] as a, ends[1] as b:
        for number, end in enumerate((a, b), 1):
            end.address_added(ipaddress.ip_interface(f"10.0.0.{number}/24"))
        a.send([packet(0)])
        assert b.recv(timeout=10) == [packet(0)]
        yield a, b


def send(end: Endpoint, *numbers: int) -> None:
    frames = end.reserve(len(numbers))
    for frame, number in zip(frames, numbers, strict=True):
        frame.length = 64
        memoryview(frame)[:] = packet(number)
    assert end.send_frames(frames) == len(numbers)


def receive(end: Endpoint, count: int) -> list[Frame]:
    frames: list[Frame] = []
    while len(frames) < count:
        came = end.recv_frames(timeout=10)
        assert came
        frames += came
    return frames


def test_frames_arrive_in_order_mixed_with_copies(pair: Pair) -> None:
    a, b = pair
    send(a, 1, 2)
    a.send([packet(3)])
    send(a, 4)
    assert [bytes(frame) for frame in receive(b, 4)] == [packet(n) for n in (1, 2, 3, 4)]


@pytest.mark.parametrize("wrong", [None, b"bytes"])
def test_what_is_no_frame_is_refused(pair: Pair, wrong: object) -> None:
    (frame,) = pair[0].reserve(1)
    frame.length = 64
    memoryview(frame)[:] = packet(1)
    with pytest.raises(TypeError, match="a list of frames that `reserve` lent"):
        pair[0].send_frames([frame, wrong])  # type: ignore[list-item]
    assert pair[0].send_frames([frame]) == 1  # it is still ours
    assert [bytes(got) for got in receive(pair[1], 1)] == [packet(1)]


def test_none_is_no_switch() -> None:
    """The code once followed None as a pointer."""
    with pytest.raises(TypeError, match="switch"):
        _core.MemoryPort(None, bytes(16))  # type: ignore[arg-type]


def test_a_frame_that_was_sent_is_no_longer_the_senders(pair: Pair) -> None:
    (frame,) = pair[0].reserve(1)
    frame.length = 64
    memoryview(frame)[:] = packet(1)
    assert pair[0].send_frames([frame]) == 1
    for use in (
        lambda: memoryview(frame),
        lambda: len(frame),
        lambda: pair[0].send_frames([frame]),
    ):
        with pytest.raises(ValueError, match="sent or released"):
            use()


def test_a_frame_with_a_view_is_neither_sent_nor_released(pair: Pair) -> None:
    a, b = pair
    (frame,) = a.reserve(1)
    frame.length = 64
    with memoryview(frame) as view:
        view[:] = packet(5)
        with pytest.raises(BufferError, match="a view"):
            a.send_frames([frame])
        with pytest.raises(BufferError, match="a view"):
            frame.release()
    assert a.send_frames([frame]) == 1
    (came,) = receive(b, 1)
    assert bytes(came) == packet(5)


def test_every_frame_comes_back_whether_sent_released_or_forgotten(pair: Pair) -> None:
    a, b = pair
    everything = a.reserve(10_000)
    assert len(everything) >= 16
    assert a.reserve(1) == []
    count = len(everything)
    everything[0].release()
    assert len(a.reserve(10)) == 1
    del everything
    gc.collect()
    for start in range(0, 4 * count, 32):
        send(a, *range(start, start + 32))
        assert [bytes(frame) for frame in receive(b, 32)] == [
            packet(n) for n in range(start, start + 32)
        ]


def test_received_frames_are_read_only_and_keep_their_length(pair: Pair) -> None:
    a, b = pair
    send(a, 1)
    with receive(b, 1)[0] as frame:
        with pytest.raises(TypeError, match="read-only"):
            memoryview(frame)[0] = 1
        with pytest.raises(ValueError, match="keeps its length"):
            frame.length = 20
        with pytest.raises(ValueError, match="not reserved"):
            b.send_frames([frame])
    with pytest.raises(ValueError, match="sent or released"):
        bytes(frame)


@pytest.mark.parametrize("length", [0, 2045])
def test_a_length_that_does_not_fit_is_refused(pair: Pair, length: int) -> None:
    (frame,) = pair[0].reserve(1)
    with pytest.raises(ValueError, match="a frame holds 1 to 2044 bytes"):
        frame.length = length


def test_another_endpoints_frame_is_refused(pair: Pair) -> None:
    with pytest.raises(ValueError, match="not reserved"):
        pair[1].send_frames(pair[0].reserve(1))


def test_an_application_that_keeps_frames_goes_on_receiving(pair: Pair) -> None:
    a, b = pair
    kept: list[Frame] = []
    for start in range(0, 1500, 50):  # more than all receive frames
        send(a, *range(start, start + 50))
        kept += receive(b, 50)
    assert [bytes(frame) for frame in kept] == [packet(n) for n in range(1500)]


def test_frames_and_views_outlive_the_endpoint(pair: Pair) -> None:
    a, b = pair
    send(a, 9)
    (frame,) = receive(b, 1)
    unsent = a.reserve(2)
    view = memoryview(frame)
    a.close()
    b.close()
    assert bytes(view) == packet(9)
    del frame
    gc.collect()
    assert bytes(view) == packet(9)
    memoryview(unsent[0])[:4] = b"fine"
    with pytest.raises(Closed):
        a.send_frames(unsent)


def test_a_reopened_endpoint_has_frames_of_its_own() -> None:
    switch = MemorySwitch(3)
    end = Endpoint(EndpointConfig("h", "memory"), port=MemoryPort(switch, Gid.parse("fe80::1")))
    with end:
        (old,) = end.reserve(1)
    with end:
        with pytest.raises(ValueError, match="not reserved"):
            end.send_frames([old])
        old.release()
        assert len(end.reserve(1)) == 1


def test_frames_arrive_on_an_event_loop(pair: Pair) -> None:
    a, b = pair

    async def main() -> bytes:
        waiting = asyncio.ensure_future(b.arecv_frames())
        await asyncio.sleep(0)
        send(a, 6)
        return bytes((await asyncio.wait_for(waiting, 10))[0])

    assert asyncio.run(main()) == packet(6)


def test_a_frame_is_not_made_by_hand() -> None:
    with pytest.raises(TypeError, match="reserve"):
        Frame()


def test_an_endpoint_that_is_not_open_has_no_frames() -> None:
    end = Endpoint(EndpointConfig("h", "memory"))
    for call in (end.reserve, end.recv_frames):
        with pytest.raises(Closed):
            call()
