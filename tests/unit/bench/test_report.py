# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ipoibu.base.errors import UsageError
from ipoibu.bench import plot, scale
from ipoibu.bench.contender import Absent, Contender, Veth
from ipoibu.bench.html_report import Page, Table, html
from ipoibu.bench.picture import Picture
from ipoibu.bench.report import COLUMNS, grid, sections, summary, table
from ipoibu.bench.run import CONTENDERS, NAMES, QUICK, Plan, about, take_turns
from ipoibu.cli.main import main
from ipoibu.lab.underlay import LINK

ENVIRONMENT = {
    "command": "ipoibu bench --rounds 2",
    "cpu": "AMD EPYC",
    "cpus": 2,
    "kernel": "6.18",
    "tcp_congestion_control": "cubic",
    "load_average": [0.5, 0.4, 0.3],
    "load_average_after": [1.5, 0.4, 0.3],
}


def _report(**changes: Any) -> dict[str, Any]:
    report: dict[str, Any] = {
        "environment": ENVIRONMENT,
        "rounds": 2,
        "seconds": 1,
        "streams": 1,
        "runs": {
            "datagram": [
                {"tcp_gbit_s": 7.0, "ping_p50_us": 30.0, "tcp_ns_per_byte": 1.2},
                {"tcp_gbit_s": 3.0, "ping_p50_us": 24.0, "tcp_ns_per_byte": 1.4},
            ],
            "vxlan": [
                {"tcp_gbit_s": 10.0, "ping_p50_us": 10.0},
                {"tcp_gbit_s": 5.0, "ping_p50_us": 10.0},
            ],
            "tunnel": [
                {"tcp_gbit_s": 10.0, "ping_p50_us": 20.0, "tcp_ns_per_byte": 0.5},
                {"tcp_gbit_s": 6.0, "ping_p50_us": 20.0, "tcp_ns_per_byte": 0.5},
            ],
            "tunnel-again": [{"tcp_ns_per_byte": 0.45}, {"tcp_ns_per_byte": 0.55}],
            "ceiling-datagram": [
                {"tcp_gbit_s": 7.0, "tcp_ns_per_byte": 1.0},
                {"tcp_gbit_s": 4.0, "tcp_ns_per_byte": 1.0},
            ],
        },
        "absent": {"fastd": "fastd is not installed"},
        "failed": {"relay": "the relay did not start"},
        "neighbours": [
            {"neighbours": 1, "ns_per_packet": 200.0},
            {"neighbours": 100_000, "ns_per_packet": 250.0},
        ],
        "hosts": [{"hosts": 2, "up_s": 1.25, "met_s": 0.01, "rss_mib": 38.0}],
        **changes,
    }
    return report | summary(report)


def _target(report: dict[str, Any], start: str) -> dict[str, Any]:
    (entry,) = (entry for entry in report["targets"] if entry["target"].startswith(start))
    return dict(entry)


def test_medians_and_ratios_are_of_what_was_measured() -> None:
    report = _report()
    assert report["median"]["datagram"] == {
        "tcp_gbit_s": 5.0,
        "ping_p50_us": 27.0,
        "tcp_ns_per_byte": pytest.approx(1.3),
    }
    assert report["ratio_to_vxlan"]["datagram"]["tcp_gbit_s"] == pytest.approx(
        {"median": 0.65, "low": 0.6, "high": 0.7, "count": 2}
    )
    assert "udp_gbit_s" not in report["ratio_to_vxlan"]["datagram"]


def test_a_target_is_met_or_not_or_not_measured() -> None:
    report = _report()
    assert _target(report, "datagram TCP, to the tunnel")["value"] == pytest.approx(0.6)
    assert _target(report, "datagram TCP, to the tunnel")["met"] is True
    assert _target(report, "datagram CPU a byte, to the tunnel")["met"] is False
    assert _target(report, "aim: datagram TCP")["value"] == pytest.approx((1 + 0.75) / 2)
    assert _target(report, "aim: datagram TCP")["met"] is False
    assert _target(report, "datagram ping")["value"] == pytest.approx(1.35)
    assert _target(report, "datagram ping")["met"] is False
    assert _target(report, "aim: datagram CPU")["value"] == pytest.approx(1.3)
    assert _target(report, "100 000 neighbours")["value"] == pytest.approx(1.25)
    assert _target(report, "connected TCP, to the tunnel")["met"] is None
    better = _report(neighbours=[{"neighbours": 1, "ns_per_packet": 200.0}] * 2)
    assert _target(better, "100 000 neighbours")["met"] is True


def test_ratios_are_to_the_yardsticks_cpu_time_first() -> None:
    report = _report()
    assert set(report["ratio_to_tunnel"]) == set(report["runs"]) - {"tunnel"}
    assert next(iter(report["ratio_to_tunnel"]["datagram"])) == "tcp_ns_per_byte"
    assert report["ratio_to_ceiling"]["datagram"]["tcp_ns_per_byte"]["median"] == pytest.approx(1.3)
    lines = table(report).splitlines()
    assert lines[lines.index("") + 1].startswith("to the tunnel ")
    assert "the tunnel against itself, round by round: CPU ns/byte 0.90 to 1.10;" in table(report)
    assert "against itself" not in table(_report(runs={}))


def test_run_is_compared_with_the_better_of_what_users_without_root_have() -> None:
    def samples(*figures: tuple[float, float]) -> list[dict[str, float]]:
        return [
            {"tcp_gbit_s": tcp, "ping_p50_us": ping, "rr_p50_us": ping / 2} for tcp, ping in figures
        ]

    runs = {
        "run": samples((6.0, 100.0), (4.0, 100.0)),
        "pasta": samples((3.0, 50.0), (1.0, 200.0)),
        "slirp4netns": samples((1.0, 80.0), (2.0, 100.0)),
    }
    report = _report(runs=runs)
    assert _target(report, "run TCP")["value"] == 2.0
    assert _target(report, "run ping p50")["value"] == pytest.approx(1.5)
    assert _target(report, "run rr p50")["value"] == pytest.approx(1.5)
    del runs["slirp4netns"]
    assert _target(_report(runs=runs), "run TCP")["value"] == 3.0
    assert _target(_report(runs={}), "run TCP")["met"] is None


def test_without_vxlan_there_are_no_ratios() -> None:
    report = _report(runs={"datagram": [{"tcp_gbit_s": 7.0}]})
    assert report["ratio_to_vxlan"] == {"datagram": {}}
    assert _target(report, "datagram TCP, to the tunnel")["met"] is None


def test_the_table_names_what_is_absent_and_why() -> None:
    text = table(_report())
    assert "fastd: absent: fastd is not installed" in text
    assert "relay: failed: the relay did not start" in text
    assert "load average 0.5 before and 1.5 after" in text
    assert "0.65 (0.60-0.70)" in text
    (row,) = (line for line in text.splitlines() if line.startswith("connected TCP, to the tunnel"))
    assert row.split()[-3:] == ["-", "not", "measured"]
    for heading, _ in COLUMNS.values():
        assert heading in text


def test_a_report_of_nothing_is_a_table_still() -> None:
    text = table(_report(runs={}, absent={}, failed={}, neighbours=[], hosts=[]))
    assert "not measured" in text
    assert " met" not in text.replace("not met", "")


def test_a_page_has_what_the_table_has_and_pictures() -> None:
    report = _report()
    found = sections(report)
    text = html(Page("bench", report["environment"], found, report))
    for word in ("0.65 (0.60-0.70)", "fastd: absent: fastd is not installed", "AMD EPYC"):
        assert word in text
    by_title = {section.title: section.parts for section in found}
    assert sum(isinstance(it, Picture) for it in by_title["Pictures"]) == 3
    assert sum(isinstance(it, Picture) for it in by_title["Neighbours"]) == 1
    (targets,) = (it for it in by_title["Targets"] if isinstance(it, Table))
    assert len(targets.rows) == len(report["targets"])
    empty = sections(_report(runs={}, absent={}, failed={}, neighbours=[], hosts=[]))
    assert [section.title for section in empty] == ["Result", "Targets", "Pictures"]


def test_a_report_goes_through_json() -> None:
    report = _report()
    assert json.loads(json.dumps(report)) == report


def test_the_table_names_the_streams_and_their_congestion_control() -> None:
    assert "rounds of 1 s, one stream of TCP by cubic\n" in table(_report())
    assert "rounds of 1 s, 4 streams of TCP by cubic\n" in table(_report(streams=4))


def test_the_table_says_in_how_many_labs_the_rounds_were_and_how_long_they_took() -> None:
    text = table(_report(labs=2, took_s=74.6))
    assert "medians of 2 rounds of 1 s in 2 labs that took 75 s, one stream" in text


def test_columns_line_up() -> None:
    assert grid(["", "b"], [["name", "1"], ["x", "10.5"]]) == "         b\nname     1\nx     10.5"


def test_names_are_distinct_and_a_wrong_one_is_refused() -> None:
    assert len(set(NAMES)) == len(NAMES) == len(CONTENDERS) + 2
    with pytest.raises(UsageError, match="'vxlam' is not measured: expected one of datagram"):
        Plan(only=("vxlam",))
    with pytest.raises(UsageError, match="'routed5' is none of link, routed4, routed6"):
        Plan(underlay="routed5")


def test_a_plan_of_some_wants_only_these() -> None:
    plan = Plan(only=("vxlan", "hosts"))
    assert [name for name in NAMES if plan.wants(name)] == ["vxlan", "hosts"]
    assert all(Plan().wants(name) for name in NAMES)


class _NoLab:
    """Counts the labs, and makes none."""

    made = 0

    def __init__(self, *_: object, **__: object) -> None:
        type(self).made += 1

    def __enter__(self) -> _NoLab:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_rounds_are_in_turn_over_the_labs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipoibu.bench.run.NamespaceLab", _NoLab)
    monkeypatch.setattr("ipoibu.bench.run.number_wire", lambda lab: None)
    monkeypatch.setattr("ipoibu.bench.run.need", lambda *programs: None)
    monkeypatch.setattr(_NoLab, "made", 0)
    order: list[str] = []
    lines: list[str] = []

    def take(contender: Contender, lab: object) -> dict[str, float]:
        order.append(contender.name)
        if contender.name == "c":
            raise Absent("no c")
        return {"n": len(order)}

    chosen = [Veth(name) for name in "abc"]
    runs, absent, failed = take_turns(chosen, take, 3, LINK, lines.append, labs=2)
    assert order == ["a", "b", "c", "b", "a", "a", "b"]
    assert runs == {"a": [{"n": 1}, {"n": 5}, {"n": 6}], "b": [{"n": 2}, {"n": 4}, {"n": 7}]}
    assert (absent, failed) == ({"c": "no c"}, {})
    assert _NoLab.made == 2
    assert lines[0].endswith(" left: round 1 of 3, lab 1 of 2: a")
    assert lines[2].endswith("lab 1 of 2: c: no c")
    assert lines[-1].startswith(" 88 %, about 10 s left: round 3 of 3, lab 2 of 2: b")


def test_a_plan_says_how_long_it_takes() -> None:
    quick = Plan(rounds=3, only=QUICK, few=True)
    assert 60 < quick.takes_s() < 100
    assert Plan().takes_s() > 6 * quick.takes_s()
    parts = Plan(only=("neighbours", "hosts")).takes_s()
    assert Plan(only=("hosts", "veth")).takes_s() > parts > 0
    assert [about(it) for it in (0, 71, 119, 121, 750)] == [
        "about 10 s",
        "about 80 s",
        "about 120 s",
        "about 2 minutes",
        "about 12 minutes",
    ]


def test_the_hit_path_is_timed_for_each_size_of_table() -> None:
    rows = scale.neighbours((1, 300), batches=2)
    assert [row["neighbours"] for row in rows] == [1, 300]
    assert all(row["ns_per_packet"] > 0 for row in rows)


@pytest.mark.parametrize(
    "words",
    [
        ["--rounds", "0"],
        ["--rounds", "x"],
        ["--seconds", "0.5"],
        ["--streams", "0"],
        ["--only", "vxlam"],
    ],
)
def test_wrong_words_are_a_usage_error(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *words]) == 2
    assert words[1] in capsys.readouterr().err


def test_plots_without_matplotlib_are_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["bench", "--only", "neighbours", "--plot", str(tmp_path / "plots")]) == 1
    seen = capsys.readouterr()
    assert "pip install 'ipoibu[bench]'" in seen.err
    assert seen.out == ""
    assert not (tmp_path / "plots").exists()


class _Canvas:
    """Stands for matplotlib, and records every call of `plot`."""

    def __init__(self) -> None:
        self.bars: list[tuple[list[str], list[float]]] = []

    def subplots(self, **_: object) -> tuple[_Canvas, _Canvas]:
        return self, self

    def barh(self, names: list[str], values: list[float]) -> None:
        self.bars.append((names, values))

    def savefig(self, path: Path, **_: object) -> None:
        path.write_bytes(b"PNG")

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def test_a_picture_is_drawn_for_each_figure_that_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canvas = _Canvas()
    monkeypatch.setattr(plot, "load", lambda: canvas)
    written = plot.draw(_report(), tmp_path / "plots")
    names = ["tcp_gbit_s", "ping_p50_us", "tcp_ns_per_byte", "neighbours"]
    assert written == [tmp_path / "plots" / f"{name}.png" for name in names]
    assert all(path.exists() for path in written)
    assert canvas.bars[0] == (
        ["datagram", "vxlan", "tunnel", "ceiling-datagram"],
        [5.0, 7.5, 8.0, 5.5],
    )
