# SPDX-License-Identifier: BSD-2-Clause
"""The wire between machines, without machines."""

import socket

from ipoibu.lab.machines.wire import Wire


def test_two_ends_share_a_pair() -> None:
    with Wire(2) as wire:
        wire.ends[0].send(b"x" * 9014)
        assert wire.ends[1].recv(1 << 16) == b"x" * 9014
        assert wire.dropped_frames == 0


def test_the_switch_floods_all_but_the_sender() -> None:
    with Wire(3) as wire:
        for end in wire.ends:
            end.settimeout(5)
        wire.ends[1].send(b"from one")
        assert [wire.ends[0].recv(100), wire.ends[2].recv(100)] == [b"from one"] * 2
        wire.ends[0].send(b"from nought")
        assert [wire.ends[1].recv(100), wire.ends[2].recv(100)] == [b"from nought"] * 2
        for end in wire.ends:
            end.setblocking(False)
            try:
                frame = end.recv(100)
            except BlockingIOError:
                continue
            raise AssertionError(f"an echo: {frame!r}")


def test_a_machine_that_does_not_listen_does_not_stop_the_others() -> None:
    frames = 2000
    with Wire(3) as wire:
        wire.ends[1].settimeout(5)
        for number in range(frames):
            frame = number.to_bytes(2, "big") * 4507
            wire.ends[0].send(frame)
            assert wire.ends[1].recv(1 << 16) == frame
        assert 0 < wire.dropped_frames < frames


def test_a_wire_gives_its_sockets_back() -> None:
    with Wire(4) as wire:
        ends = wire.ends
    assert all(end.fileno() == -1 for end in ends)
    assert all(isinstance(end, socket.socket) for end in ends)
