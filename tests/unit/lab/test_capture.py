# SPDX-License-Identifier: BSD-2-Clause
"""The capture of a wire, with tshark as its reader."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from ipoibu.lab.machines.capture import Capture
from ipoibu.lab.machines.wire import Wire

ROOT: Final = Path(__file__).parents[3]


def frame(source: int, payload: bytes = b"") -> bytes:
    head = Ether(src=f"02:00:00:00:00:0{source}", dst="02:00:00:00:00:0f")
    return bytes(head / IPv6(src=f"fe80::{source}", dst="fe80::f") / UDP(dport=4791) / payload)


def tshark(path: Path, *fields: str) -> list[list[str]]:
    words = ["tshark", "-r", str(path), "-T", "fields", "-E", "separator=|"]
    for field in fields:
        words += ["-e", field]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "cut short" not in done.stderr
    return [line.split("|") for line in done.stdout.splitlines()]


def test_each_machine_has_an_interface_and_each_frame_its_sender(tmp_path: Path) -> None:
    path = tmp_path / "wire.pcapng"
    sent = [frame(1, bytes(100)), frame(2, bytes(101)), frame(3, bytes(8900)), frame(1, b"x")]
    with Capture(path, "abc") as capture, Wire(3, capture) as wire:
        for end in wire.ends:
            end.settimeout(5)
        for sender, its in zip((0, 1, 2, 0), sent, strict=True):
            wire.ends[sender].send(its)
            for other in {0, 1, 2} - {sender}:
                assert wire.ends[other].recv(1 << 16) == its
    assert str(capture) == f"{path}: 4 frames captured, 0 dropped"
    names = ("frame.interface_name", "eth.src", "frame.len", "udp.dstport")
    assert tshark(path, *names) == [
        [name, f"02:00:00:00:00:0{index}", str(len(its)), "4791"]
        for (name, index), its in zip([("a", 1), ("b", 2), ("c", 3), ("a", 1)], sent, strict=True)
    ]
    times = [time for (time,) in tshark(path, "frame.time_epoch")]
    assert times == sorted(times)
    assert all(len(time.split(".")[1]) == 9 for time in times)  # nanoseconds


def test_two_machines_with_a_capture_lose_nothing_either(tmp_path: Path) -> None:
    """A sender beyond the buffers waits, as it does without a capture."""
    frames = 3000
    with Capture(tmp_path / "wire.pcapng", "ab") as capture, Wire(2, capture) as wire:
        first, second = wire.ends
        first.setblocking(False)
        second.settimeout(5)
        sent = received = 0
        while received < frames:
            try:
                while sent < frames:
                    first.send(sent.to_bytes(4, "big") * 2000)
                    sent += 1
            except BlockingIOError:
                pass
            assert second.recv(1 << 16) == received.to_bytes(4, "big") * 2000
            received += 1
        assert wire.dropped_frames == 0
    assert (capture.frames, capture.dropped_frames) == (frames, 0)


def test_frames_that_no_machine_has_read_are_in_the_file(tmp_path: Path) -> None:
    with Capture(tmp_path / "wire.pcapng", "ab") as capture, Wire(2, capture) as wire:
        for _ in range(20):
            wire.ends[0].send(frame(1))
    assert capture.frames == 20


def test_a_full_file_counts_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "wire.pcapng"
    with Capture(path, "ab", limit_bytes=1 << 20) as capture:
        for _ in range(300):
            capture.record(1, frame(2, bytes(8000)))
            capture.record(0, frame(1))
    assert path.stat().st_size <= 1 << 20
    assert 0 < capture.dropped_frames < 600
    assert capture.frames + capture.dropped_frames == 600
    end = f"{capture.dropped_frames} dropped: the file is full at 1 MiB"
    assert str(capture) == f"{path}: {capture.frames} frames captured, {end}"
    assert len(tshark(path, "frame.number")) == capture.frames
    capture.record(0, frame(1))  # a straggler after the end
    assert capture.frames + capture.dropped_frames == 601


def test_a_disk_that_is_full_costs_the_capture_and_no_more() -> None:
    with pytest.raises(OSError, match="No space left"):
        Capture(Path("/dev/full"), "ab")


def test_a_reader_that_goes_away_costs_the_capture_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with Capture(path, "ab") as capture:
        capture.record(0, frame(1))
        os.close(reader)
        capture.record(0, frame(1))
    assert str(capture) == f"{path}: 1 frames captured, 1 dropped: Broken pipe"


def test_a_killed_lab_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "wire.pcapng"
    program = (
        "import sys; from pathlib import Path; from ipoibu.lab.machines.capture import Capture\n"
        "capture = Capture(Path(sys.argv[1]), 'ab')\n"
        "for number in range(1000): capture.record(number % 2, bytes(12) + b'\\x08\\x00' + bytes(51))\n"
        "print('there', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"there\n"
        writer.send_signal(signal.SIGKILL)
    assert len(tshark(path, "frame.number")) == 1000
