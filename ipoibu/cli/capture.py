# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu capture`: write an interface's frames to a pcap file for tcpdump and Wireshark.

A capture on the TUN shows IP packets; `ipoibu capture` shows the link: GRH, encapsulation header, ARP.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import RawIOBase
from typing import TYPE_CHECKING, Any, BinaryIO

from ipoibu.base.errors import IpoibuError, UsageError

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "capture",
        help="write frames to a pcap file",
        description="Write an interface's frames to a pcap file, until interrupted.",
        epilog="To watch frames live: ipoibu capture ib0 -w - | tcpdump -nr -",
    )
    parser.add_argument("name", metavar="NAME", help="the interface")
    parser.add_argument(
        "-w",
        dest="file",
        metavar="FILE",
        required=True,
        help="the pcap file to write; - is standard output",
    )
    parser.add_argument(
        "-c", dest="count", metavar="COUNT", type=_count, help="end after COUNT frames"
    )
    parser.add_argument(
        "-s",
        dest="snaplen",
        metavar="BYTES",
        type=_snaplen,
        help="keep the first BYTES of each frame",
    )
    parser.set_defaults(run=run)


def _number(text: str, least: int, most: int, noun: str) -> int:
    if not text.isascii() or not text.isdigit() or not least <= int(text[:12]) <= most:
        raise UsageError(f"{text!r} is no {noun}: expected a number from {least} to {most}")
    return int(text)


def _count(text: str) -> int:
    return _number(text, 1, 1 << 32, "number of frames")


def _snaplen(text: str) -> int:
    from ipoibu.daemon.control.pcap import SNAPLEN_BYTES, SNAPLEN_MIN_BYTES

    return _number(text, SNAPLEN_MIN_BYTES, SNAPLEN_BYTES, "snapshot length")


def run(options: argparse.Namespace) -> int:
    from ipoibu.daemon.control.client import Client
    from ipoibu.daemon.control.pcap import SNAPLEN_BYTES, cut, file_header, records_in

    snaplen = options.snaplen or SNAPLEN_BYTES
    frames = dropped = 0
    with Client(options.name) as client, _interruption() as stopped, _output(options.file) as file:
        client.begin_capture(snaplen)
        file.write(file_header(snaplen))
        print(f"capturing on {options.name}, snapshot length {snaplen} bytes", file=sys.stderr)
        for lost, batch in client.captured(lambda: bool(stopped)):
            dropped = lost
            size = len(batch) if options.count is None else cut(batch, options.count - frames)
            records = batch[:size]
            if not records:
                continue
            file.write(records)
            frames += records_in(records)
            if frames == options.count:
                stopped.append(0)
    print(f"{frames} frames captured, {dropped} dropped", file=sys.stderr)
    return 0


@contextmanager
def _interruption() -> Iterator[list[int]]:
    """Yield a list of the SIGINT and SIGTERM that arrived, so that a capture ends between two records."""
    signals: list[int] = []

    def note(number: int, frame: Any) -> None:
        signals.append(number)

    before = {n: signal.signal(n, note) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Output:
    """A pcap file, which has whole records only even where the disk is full."""

    def __init__(self, name: str, file: RawIOBase | BinaryIO) -> None:
        self._name = name
        self._file = file
        self._size = 0

    def write(self, data: bytes) -> None:
        """`IpoibuError` with the file's name."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._file.write(rest) or 0 :]
            self._file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            with suppress(OSError, ValueError):  # a device has no end
                self._file.truncate(self._size)
            raise IpoibuError(f"{self._name}: {error.strerror}: the capture ends") from error
        self._size += len(data)


@contextmanager
def _output(path: str) -> Iterator[_Output]:
    if path == "-":
        if sys.stdout.isatty():
            raise UsageError(
                "refusing to write a binary file to a terminal: use a pipe, or give a file name"
            )
        yield _Output("standard output", sys.stdout.buffer)
        return
    with open(path, "wb", buffering=0) as file:
        yield _Output(path, file)
