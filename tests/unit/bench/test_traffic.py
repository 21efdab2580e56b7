# SPDX-License-Identifier: BSD-2-Clause
"""Output of iperf3 3.12, iputils 20221126 and /proc of Linux 6.18, cut to what the parsers read."""

from __future__ import annotations

import json
import os

import pytest

from ipoibu.bench.contender import Absent, need
from ipoibu.bench.environment import parse_cpu
from ipoibu.bench.process import parse_cpu_s, parse_rss_bytes
from ipoibu.bench.traffic import parse_iperf3, parse_ping_us
from ipoibu.lab import LabError

TCP = {
    "end": {
        "sum_sent": {"seconds": 1.0, "bytes": 1300000000, "bits_per_second": 10.4e9},
        "sum_received": {"seconds": 1.0, "bytes": 1250000000, "bits_per_second": 10.0e9},
    }
}
UDP = {
    "end": {
        "sum": {
            "seconds": 2.0,
            "bytes": 280000000,
            "bits_per_second": 1.12e9,
            "packets": 200000,
            "lost_packets": 50000,
            "lost_percent": 25.0,
        }
    }
}
PING = """PING 10.77.0.2 (10.77.0.2) 56(84) bytes of data.
64 bytes from 10.77.0.2: icmp_seq=1 ttl=64 time=0.132 ms
64 bytes from 10.77.0.2: icmp_seq=2 ttl=64 time=1.05 ms

--- 10.77.0.2 ping statistics ---
2 packets transmitted, 2 received, 0% packet loss, time 2ms
rtt min/avg/max/mdev = 0.132/0.591/1.050/0.459 ms
"""


def test_tcp_counts_what_arrived() -> None:
    assert parse_iperf3(json.dumps(TCP)) == (10.0, 0.0, 0.0)


def test_udp_that_was_lost_does_not_count() -> None:
    gbit_s, packets_s, lost = parse_iperf3(json.dumps(UDP))
    assert gbit_s == pytest.approx(0.84)
    assert packets_s == pytest.approx(75_000)
    assert lost == 25.0


def test_the_server_s_own_sum_is_taken_as_it_is() -> None:
    received = {"seconds": 2.0, "packets": 200000, "lost_percent": 25.0, "bits_per_second": 0.84e9}
    both = {"end": {**UDP["end"], "sum_received": received}}
    assert parse_iperf3(json.dumps(both)) == (0.84, 75_000.0, 25.0)


def test_what_iperf3_complains_about_is_passed_on() -> None:
    text = json.dumps({"start": {}, "end": {}, "error": "unable to connect to server"})
    with pytest.raises(LabError, match="unable to connect to server"):
        parse_iperf3(text)


@pytest.mark.parametrize("text", ["", "[]", "null", '{"end": 3}', '{"end": {"sum_received": 1}}'])
def test_output_of_another_kind_is_an_error(text: str) -> None:
    with pytest.raises(LabError, match="not understood"):
        parse_iperf3(text)


def test_ping_s_answers_are_microseconds() -> None:
    assert parse_ping_us(PING) == [132.0, 1050.0]
    assert parse_ping_us("2 packets transmitted, 0 received") == []


def test_cpu_time_comes_after_a_name_with_blanks_and_brackets() -> None:
    hertz = os.sysconf("SC_CLK_TCK")
    stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 3 0 100 1 1"
    assert parse_cpu_s(stat) == pytest.approx(200 / hertz)


def test_memory_is_what_is_resident() -> None:
    assert parse_rss_bytes("Name:\tx\nVmHWM:\t  9000 kB\nVmRSS:\t  2048 kB\n") == 2 << 20
    assert parse_rss_bytes("Name:\tzombie\n") == 0


def test_the_cpu_s_model_may_be_missing() -> None:
    assert parse_cpu("processor\t: 0\nmodel name\t: AMD EPYC\nmodel name\t: other\n") == "AMD EPYC"
    assert parse_cpu("processor\t: 0\n") == ""


def test_a_missing_program_makes_a_contender_absent() -> None:
    need("sh")
    with pytest.raises(Absent, match="no-such-tunnel is not installed"):
        need("sh", "no-such-tunnel")
