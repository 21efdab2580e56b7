# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import io
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ipoibu.cli.main import main
from ipoibu.daemon.control.pcap import file_header

RECORD = bytes.fromhex("00000000 00000000 2c000000 64000000") + bytes(44)


class Daemon:
    """Yields batches of two records until `stop` returns True, then one more batch with the drops."""

    snaplen = 0
    batches = 0

    def __init__(self, name: str) -> None:
        assert name == "ib0"

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *exit: object) -> None:
        pass

    def begin_capture(self, snaplen: int) -> None:
        Daemon.snaplen = snaplen
        Daemon.batches = 0

    def captured(self, stop: Callable[[], bool]) -> Iterator[tuple[int, bytes]]:
        while not stop():
            Daemon.batches += 1
            yield 0, RECORD * 2
            if Daemon.batches == 5:
                signal.raise_signal(signal.SIGINT)
        yield 0, b""
        yield 3, RECORD


@pytest.fixture(autouse=True)
def _daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipoibu.daemon.control.client.Client", Daemon)


def test_an_interrupt_ends_the_file_behind_a_whole_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGINT)
    file = tmp_path / "x.pcap"
    assert main(["capture", "ib0", "-w", str(file)]) == 0
    assert file.read_bytes() == file_header() + RECORD * 11
    assert "11 frames captured, 3 dropped" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before


def test_a_count_ends_it_within_a_batch(tmp_path: Path) -> None:
    file = tmp_path / "x.pcap"
    assert main(["capture", "ib0", "-w", str(file), "-c", "3"]) == 0
    assert file.read_bytes() == file_header() + RECORD * 3
    assert Daemon.batches == 2


def test_a_full_disk_ends_the_file_behind_a_whole_record_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.pcap"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    room = len(file_header() + RECORD * 4) + 1
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # EFBIG is to a write what ENOSPC is
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        assert main(["capture", "ib0", "-w", str(file)]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert file.read_bytes() == file_header() + RECORD * 4
    assert f"{file}: File too large: the capture ends" in capsys.readouterr().err


def test_the_snapshot_length_is_asked_of_the_daemon_and_stands_in_the_header(
    tmp_path: Path,
) -> None:
    file = tmp_path / "x.pcap"
    assert main(["capture", "ib0", "-w", str(file), "-s", "64", "-c", "1"]) == 0
    assert Daemon.snaplen == 64
    assert file.read_bytes().startswith(file_header(64))


class Output(io.TextIOWrapper):
    """Standard output, over a buffer that stays readable."""

    def __init__(self, *, terminal: bool) -> None:
        self.bytes = io.BytesIO()
        self._terminal = terminal
        super().__init__(self.bytes)

    def isatty(self) -> bool:
        return self._terminal


def test_a_dash_is_standard_output_unless_that_is_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = Output(terminal=False)
    monkeypatch.setattr(sys, "stdout", pipe)
    assert main(["capture", "ib0", "-w", "-", "-c", "1"]) == 0
    assert pipe.bytes.getvalue() == file_header() + RECORD
    monkeypatch.setattr(sys, "stdout", Output(terminal=True))
    assert main(["capture", "ib0", "-w", "-"]) == 2
    assert "terminal" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "ib0", "-w", "/not/there/x.pcap"]) == 1
    assert "/not/there/x.pcap: No such file" in capsys.readouterr().err
