# SPDX-License-Identifier: BSD-2-Clause
"""What a report of a procedure says, and what it warns of."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ipoibu.base.errors import UsageError
from ipoibu.bench.comparison import compare
from ipoibu.bench.html_report import Page, html
from ipoibu.bench.picture import Picture
from ipoibu.bench.procedures.report import caveats, sections, table
from ipoibu.bench.procedures.run import Plan
from ipoibu.bench.procedures.times import RFC, SHORT, Times, shorter

ENVIRONMENT = {
    "command": "ipoibu bench --rfc2544",
    "cpu": "AMD EPYC",
    "cpus": 2,
    "kernel": "6.18",
    "hypervisor": True,
    "load_average": [0.5, 0.4, 0.3],
    "load_average_after": [1.5, 0.4, 0.3],
}


def _sample(frames_s: float) -> dict[str, float]:
    figures = ("latency", "latency_worst", "pdv", "ipdv")
    return {
        "full_speed_64_frames_s": 2 * frames_s,
        "throughput_64_frames_s": frames_s,
        **{f"{name}_64_us": 10.0 * number for number, name in enumerate(figures, 1)},
        "back_to_back_64_frames": 500.0,
        "loss_64_lost_percent": 12.5,
    }


def _details(limit: str) -> dict[str, Any]:
    bursts = {"buffer_s": 0.0125, "is_least": limit == "sender"}
    loss = [{"percent": 100.0, "lost_percent": 12.5}, {"percent": 90.0, "lost_percent": 0.0}]
    return {"sizes": {"64": {"limit": limit, "back_to_back": bursts, "loss": loss}}}


def _report(procedure: str = "rfc2544", times: Times = SHORT, **changes: Any) -> dict[str, Any]:
    report: dict[str, Any] = {
        "environment": ENVIRONMENT,
        "procedure": procedure,
        "rounds": 2,
        "times": times.as_dict(),
        "accepted_loss_percent": 0.5,
        "streams": 1,
        "runs": {
            "datagram": [_sample(50_000.0), _sample(40_000.0)],
            "control": [_sample(90_000.0), _sample(90_000.0)],
        },
        "details": {"datagram": [_details("path")] * 2, "control": [_details("sender")] * 2},
        "absent": {"fastd": "fastd is not installed"},
        "failed": {},
        "shorter_than_the_rfc": shorter(procedure, times),
    }
    return report | changes


def _tcp() -> dict[str, Any]:
    sample = {"path_mtu": 2044.0, "transfer_time_ratio": 0.9, "tcp_efficiency_percent": 99.5}
    return _report("rfc6349", runs={"connected": [sample]}, details={})


def test_a_row_has_the_medians_the_share_of_the_control_and_the_limit() -> None:
    text = table(_report())
    rows = [line.split() for line in text.splitlines() if line.startswith("64 ")]
    assert rows[0] == [
        "64",
        "45000",
        "0.023",
        "0.50",
        "path",
        "10",
        "20",
        "30",
        "40",
        "500",
        "12.5",
        "12.5",
        "90000",
    ]
    assert rows[1][:5] == ["64", "90000", "0.046", "1.00", "sender"]
    assert "fastd: absent: fastd is not installed" in text


def test_the_report_says_what_a_reader_must_know() -> None:
    text = "\n".join(caveats(_report()))
    assert "times are shorter than the RFC's (trial_s 0.5 instead of 60," in text
    assert "transfer_s" not in text
    assert "virtual" in text
    assert "The sender is Python" in text
    assert "What is called control is the same test over a veth pair without a forwarder" in text
    assert "A rate fails if 2 trials in a row lose more than 0.5 % of the frames." in text


def test_what_is_not_so_is_not_said() -> None:
    own = _report(times=RFC, environment={**ENVIRONMENT, "hypervisor": False})
    text = "\n".join(caveats(own))
    assert "shorter" not in text
    assert "A rate fails if a trial loses more than" in text
    assert "virtual" not in text
    assert "busy" not in text
    busy = _report(environment={**ENVIRONMENT, "load_average": [3.5, 1, 1]})
    assert "a load average of 3.5 on 2 CPUs" in "\n".join(caveats(busy))


def test_too_few_delays_are_named() -> None:
    report = _report()
    seen = report["details"]["datagram"][-1]["sizes"]["64"]
    seen["delays"] = [{"count": 500}]
    assert "Fewer than 500" not in "\n".join(caveats(report))
    seen["delays"].append({"count": 499})
    assert (
        "Fewer than 500 frames have a delay (RFC 8219 wants as many): datagram at 64."
        in caveats(report)
    )


def test_a_bandwidth_that_tcp_exceeds_was_measured_too_low() -> None:
    report = _tcp()
    assert "faster than the ideal of connected" in "\n".join(caveats(report))
    report["runs"]["connected"][0]["transfer_time_ratio"] = 1.1
    assert "faster than the ideal" not in "\n".join(caveats(report))
    (row,) = (line for line in table(report).splitlines() if line.startswith("connected"))
    assert row.split() == ["connected", "2044", "-", "-", "-", "-", "-", "1.10", "99.500", "-", "-"]


def test_the_page_has_curves_and_the_caveats() -> None:
    found = sections(_report())
    drawn = [part.svg for part in found[1].parts if isinstance(part, Picture)]
    titles = ["Throughput", "Latency", "Frame loss of datagram", "Frame loss of control"]
    assert [title in svg for title, svg in zip(titles, drawn, strict=True)] == [True] * 4
    assert found[2].parts == caveats(_report())
    text = html(Page("procedure", ENVIRONMENT, found, _report()))
    assert json.dumps("back_to_back_64_frames") in text
    tcp = html(Page("tcp", ENVIRONMENT, sections(_tcp()), _tcp()))
    assert "transfer time ratio, median" in tcp


def test_two_results_of_a_procedure_compare() -> None:
    outcome = compare(_report(), _report())
    assert {row.verdict for row in outcome.rows} == {"no difference seen"}
    assert "datagram" in {row.contender for row in outcome.rows}


def test_only_what_is_less_than_the_rfc_s_is_shorter() -> None:
    assert shorter("rfc2544", RFC) == shorter("rfc6349", RFC) == []
    assert shorter("rfc6349", RFC.with_seconds(5)) == ["transfer_s 5 instead of 30"]
    assert "burst_repeats 3 instead of 50" in shorter("rfc2544", RFC.with_repeats(3))
    assert "trial_s 5 instead of 60" in shorter("rfc2544", RFC.with_seconds(5))


def test_an_unknown_contender_is_refused() -> None:
    with pytest.raises(UsageError, match="'vxlam' is not measured: expected one of datagram"):
        Plan("rfc2544", only=("vxlam",))
