# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ipoibu.daemon.control.pcap import cut, file_header, record, records_in


@dataclass
class _Frame:
    time_ns: int
    wire_len: int
    data: bytes


def frame_of(time_ns: int, wire_len: int, data: bytes) -> Any:
    return _Frame(time_ns, wire_len, data)


def test_the_file_header_says_nanoseconds_and_ipoib() -> None:
    # pcap-savefile(5): magic a1b23c4d, version 2.4, zone 0, accuracy 0, snapshot length, link type
    # 242 = LINKTYPE_IPOIB
    assert file_header(262144) == bytes.fromhex(
        "4d3cb2a1 0200 0400 00000000 00000000 00000400 f2000000"
    )


def test_a_record_has_its_time_and_both_lengths() -> None:
    frame = frame_of(time_ns=1_700_000_000_000_000_005, wire_len=100, data=bytes(44))
    assert record(frame) == bytes.fromhex("00f15365 05000000 2c000000 64000000") + bytes(44)


def test_a_record_is_cut_to_the_snapshot_length_and_keeps_its_original_length() -> None:
    frame = frame_of(time_ns=0, wire_len=100, data=bytes(100))
    assert record(frame, 44) == bytes.fromhex("00000000 00000000 2c000000 64000000") + bytes(44)


def test_records_are_counted_and_cut_at_their_borders() -> None:
    sizes = (44, 0, 60)
    data = b"".join(record(frame_of(0, n, bytes(n))) for n in sizes)
    assert records_in(data) == 3
    assert [cut(data, n) for n in (0, 1, 2, 3, 9)] == [0, 60, 76, 152, 152]
    assert records_in(b"") == 0
