# SPDX-License-Identifier: BSD-2-Clause
"""The benchmark in machines: its parsers, and that every kind of turn ends with all of its figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipoibu.bench.machines import (
    TURNS,
    parse_perftest,
    parse_stat,
    parse_strace,
    summary,
    table,
    take,
)
from ipoibu.lab.errors import LabError


@pytest.mark.lab
@pytest.mark.timeout(240, func_only=True)
@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("ib_ipoib connected", {"gbit_s", "cpu_ns_per_byte", "ping_p50_us"}),
        (
            "ipoibu connected",
            {"gbit_s", "cpu_ns_per_byte", "ping_p50_us", "calls_per_mb", "packets_per_doorbell"},
        ),
        ("embedded connected", {"gbit_s"}),
        ("perftest UD", {"gbit_s"}),
    ],
)
def test_a_turn_has_all_of_its_figures(lab_kernel: Path, name: str, figures: set[str]) -> None:
    turn = next(turn for turn in TURNS if turn.name == name)
    sample = take(lab_kernel, turn, 1)
    assert set(sample) == figures
    assert all(value > 0 for value in sample.values())


def test_busy_ticks_are_those_that_were_not_idle() -> None:
    """proc(5): user, nice, system, idle, iowait, irq, softirq, steal, guest (which is in user already)."""
    assert parse_stat("cpu  10 2 30 400 50 6 7 8 9 0\n") == 63


def test_perftest_is_a_long_run_less_a_short_one() -> None:
    assert parse_perftest("1000 500\n126000 1500\n") == 1.0  # 125000 bytes in 1 ms
    with pytest.raises(LabError, match="took no longer"):
        parse_perftest("1000 500\n126000 500\n")


def test_the_total_of_stracess_summary_is_parsed() -> None:
    text = " 66.67    0.020000        5000         4           epoll_wait\n"
    text += "------ ----------- ----------- --------- --------- ----------------\n"
    assert parse_strace(text + "100.00    0.030000          21      1412       335 total\n") == 1412
    assert parse_strace(text + "100.00    0.030000          21      1412           total\n") == 1412
    with pytest.raises(LabError, match="strace: not understood"):
        parse_strace(text)


def test_ratios_are_of_the_same_round() -> None:
    runs = {
        "ipoibu datagram": [{"gbit_s": 1.0}, {"gbit_s": 3.0}, {"gbit_s": 2.0}],
        "ib_ipoib datagram": [{"gbit_s": 2.0}, {"gbit_s": 3.0}, {"gbit_s": 4.0}],
    }
    result = summary(runs)
    assert result["median"]["ipoibu datagram"] == {"gbit_s": 2.0}
    [target] = result["targets"]  # the others did not run
    assert (target["value"], target["met"]) == (0.5, False)
    shown = table(result | {"rounds": 3, "seconds": 2})
    assert "ipoibu datagram, to ib_ipoib datagram >= 0.7      0.50  not met" in shown
