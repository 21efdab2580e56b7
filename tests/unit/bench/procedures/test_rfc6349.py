# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import struct

import pytest

from ipoibu.bench.procedures.rfc6349 import metrics, path_mtu
from ipoibu.bench.procedures.transfer import INFO_BYTES, Info, parse_info
from ipoibu.lab import LabError

TRANSFER = {
    "bytes": 125e6,
    "seconds": 1.25,
    "mean_rtt_us": 32.0,
    "mss": 1448,
    "pmtu": 1500,
    "sent": 102_000,
    "retransmitted": 2000,
}


@pytest.mark.parametrize("mtu", [576, 577, 1424, 2044, 65519])
def test_the_path_mtu_is_found_with_few_packets(mtu: int) -> None:
    tried: list[int] = []

    def passes(size: int) -> bool:
        tried.append(size)
        return size <= mtu

    assert path_mtu(passes, 65520) == mtu
    assert len(tried) <= 18


def test_one_packet_of_the_interface_s_mtu_is_enough_if_it_passes() -> None:
    answers = iter([True])
    assert path_mtu(lambda size: next(answers), 2044) == 2044


@pytest.mark.parametrize("most", [65520, 500])
def test_a_path_that_takes_nothing_is_an_error(most: int) -> None:
    with pytest.raises(LabError, match="bytes passes"):
        path_mtu(lambda size: False, most)


def test_the_metrics_are_those_of_the_rfc_s_examples() -> None:
    """§4.2.2: 102 000 bytes of which 2000 were sent again are 98.03 %; §4.2.3: 25 and 32 are 28 %."""
    found = metrics(bandwidth_gbit_s=1.0, base_rtt_us=25.0, transfer=TRANSFER)
    assert found["tcp_efficiency_percent"] == pytest.approx(98.039, abs=1e-3)
    assert found["buffer_delay_percent"] == pytest.approx(28.0)


def test_the_time_ratio_counts_what_headers_take() -> None:
    """1 Gbit in 1.25 s; at 1 Gb/s with 1448 of 1500 bytes it would take 1.0359 s."""
    found = metrics(bandwidth_gbit_s=1.0, base_rtt_us=25.0, transfer=TRANSFER)
    assert found["ideal_gbit_s"] == pytest.approx(1448 / 1500)
    assert found["transfer_time_ratio"] == pytest.approx(1.25 / (1500 / 1448))
    assert found["tcp_gbit_s"] == pytest.approx(0.8)


def test_the_product_of_bandwidth_and_delay_is_in_bytes() -> None:
    found = metrics(bandwidth_gbit_s=1.0, base_rtt_us=25_000.0, transfer=TRANSFER)
    assert found["bdp_bytes"] == pytest.approx(3_125_000)


def test_the_kernel_s_tcp_info_is_read_at_its_places() -> None:
    """linux/tcp.h: eight octets, 24 words, then words and long words, of which some count here."""
    words = list(range(100, 124))
    raw = bytes(8) + struct.pack("=24I", *words) + bytes(INFO_BYTES - 8 - 96 - 16)
    found = parse_info(raw + struct.pack("=QQ", 7 << 33, 5))
    assert found == Info(mss=102, pmtu=113, rtt_us=115, sent=7 << 33, retransmitted=5)
