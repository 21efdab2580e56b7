# SPDX-License-Identifier: BSD-2-Clause
"""Two results compared, with differences that the test has put in."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from ipoibu.base.errors import UsageError
from ipoibu.bench import interval
from ipoibu.bench.comparison import Comparison, Method, Row, compare, load, sections, table
from ipoibu.bench.picture import Picture
from ipoibu.cli.main import main

NOISE = 0.04  # the deviation of a figure on a machine that others use, too
EXPERIMENTS = 200


def _result(**runs: list[dict[str, float]]) -> dict[str, Any]:
    return {"runs": runs, "seconds": 1, "environment": {"cpu": "AMD EPYC"}}


def _of(figure: str, *values: float) -> dict[str, Any]:
    return _result(datagram=[{figure: value} for value in values])


def _only(comparison: Comparison) -> Row:
    (row,) = comparison.rows
    return row


def _simulated(chance: random.Random, rounds: int, speed: float) -> dict[str, Any]:
    return _of("tcp_gbit_s", *(speed * chance.lognormvariate(0, NOISE) for _ in range(rounds)))


def _share_of_verdicts(speed: float, rounds: int) -> dict[str, float]:
    """How often each verdict comes out of so many rounds, if the second result is `speed` times as fast."""
    chance = random.Random(7)
    seen: dict[str, float] = {}
    for _ in range(EXPERIMENTS):
        first, second = (_simulated(chance, rounds, each) for each in (1.0, speed))
        verdict = _only(compare(first, second)).verdict
        seen[verdict] = seen.get(verdict, 0) + 1 / EXPERIMENTS
    return seen


def test_three_percent_is_told_from_noise_with_as_many_rounds_as_it_names() -> None:
    chance = random.Random(3)
    few = compare(_simulated(chance, 30, 1.0), _simulated(chance, 30, 1.0))
    needed = _only(few).rounds_needed
    assert needed is not None
    assert 20 < needed < 45  # 2 (1.96 + 0.84)^2 (0.04 / 0.0296)^2 = 29, by variances of 30 rounds
    seen = _share_of_verdicts(1.03, 31)
    assert seen["faster"] > interval.POWER - 0.1
    assert "slower" not in seen
    slow = _share_of_verdicts(1 / 1.03, 31)
    assert slow["slower"] > interval.POWER - 0.1


def test_no_difference_is_seldom_taken_for_one() -> None:
    for rounds in (3, 31):
        assert _share_of_verdicts(1.0, rounds)["no difference seen"] > interval.CONFIDENCE - 0.04


def test_three_percent_in_three_noisy_rounds_is_not_seen_and_the_note_says_what_would() -> None:
    row = _only(compare(_of("tcp_gbit_s", 9.6, 10.0, 10.4), _of("tcp_gbit_s", 9.9, 10.3, 10.7)))
    assert row.verdict == "no difference seen"
    assert row.ratio == pytest.approx(1.03, abs=1e-3)
    assert row.note == f"3 % needs {row.rounds_needed} rounds"
    assert row.rounds_needed is not None
    assert row.rounds_needed > 3


def test_pairs_see_what_the_machine_s_load_hides() -> None:
    loads = [1.0, 0.5, 0.8, 0.6]
    first = _of("tcp_gbit_s", *(10 * load for load in loads))
    second = _of(
        "tcp_gbit_s",
        *(
            10.3 * load * (1 + error)
            for load, error in zip(loads, (0.001, -0.001, 0.002, 0), strict=True)
        ),
    )
    assert _only(compare(first, second)).verdict == "no difference seen"
    row = _only(compare(first, second, Method(in_pairs=True)))
    assert row.verdict == "faster"
    assert row.low is not None
    assert row.high is not None
    assert row.low < 1.03 < row.high


def test_a_base_takes_the_load_of_each_round_away() -> None:
    def result(speed: float, *loads: float) -> dict[str, Any]:
        errors = (1.001, 0.999, 1.0)
        own = [{"tcp_gbit_s": speed * it * e} for it, e in zip(loads, errors, strict=True)]
        return _result(datagram=own, vxlan=[{"tcp_gbit_s": 20 * it} for it in loads])

    first, second = result(10, 1.0, 0.5, 0.7), result(9, 0.6, 0.9, 0.4)
    assert [row.verdict for row in compare(first, second).rows] == ["no difference seen"] * 2
    row = _only(compare(first, second, Method(base="vxlan")))
    assert row.verdict == "slower"
    assert row.ratio == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("figure", "more", "less"),
    [
        ("tcp_gbit_s", "faster", "slower"),
        ("ping_p50_us", "slower", "faster"),
        ("throughput_64_frames_s", "faster", "slower"),
        ("setup_s", "slower", "faster"),
        ("rss_mib", "worse", "better"),
        ("tcp_efficiency_percent", "better", "worse"),
        ("something_new", "larger", "smaller"),
    ],
)
def test_the_verdict_knows_which_way_is_good(figure: str, more: str, less: str) -> None:
    few, many = _of(figure, 1.0, 1.01, 0.99), _of(figure, 2.0, 2.01, 1.99)
    assert _only(compare(few, many)).verdict == more
    assert _only(compare(many, few)).verdict == less


def test_a_narrow_interval_around_one_says_that_nothing_large_can_hide() -> None:
    row = _only(compare(_of("a_us", 1.0, 1.001, 0.999), _of("a_us", 1.0, 0.999, 1.001)))
    assert (row.verdict, row.note) == ("no difference seen", "under 3 %")


def test_one_round_and_zero_are_not_judged() -> None:
    assert _only(compare(_of("a_us", 1.0), _of("a_us", 2.0, 2.1))).verdict == "not judged"
    assert _only(compare(_of("a_us", 1.0), _of("a_us", 2.0))).ratio == 2.0
    assert _only(compare(_of("a_us", 0.0, 1.0), _of("a_us", 2.0, 2.1))).verdict == "not compared"
    few, many = _of("a_us", 2.0, 2.1), _of("a_us", 1.0, 1.1, 1.2)
    assert _only(compare(few, many, Method(in_pairs=True))).verdict == "not judged"


def test_among_many_comparisons_a_weak_one_may_be_chance() -> None:
    chance = random.Random(5)
    names = [f"f{number}_us" for number in range(60)]

    def result() -> dict[str, Any]:
        return _result(
            datagram=[{name: chance.lognormvariate(0, 0.1) for name in names} for _ in range(4)]
        )

    first, second = result(), result()
    seen = [row for row in compare(first, second).rows if row.verdict in ("faster", "slower")]
    assert seen
    assert {row.note for row in seen} == {"perhaps by chance: one of 60 comparisons"}
    alone = compare(first, second, Method(only=(seen[0].figure,)))
    assert _only(alone).note == ""


def test_the_report_names_method_and_conditions() -> None:
    first, second = _of("a_us", 1.0, 1.1), _of("a_us", 1.0, 1.2)
    second["seconds"] = 2
    outcome = compare(first, second)
    text = table(outcome)
    assert "Welch's t, rounds unpaired, on logarithms" in text
    assert "the two results differ in seconds: 1 and 2" in text
    assert json.loads(json.dumps(outcome.as_dict()))["rows"][0]["figure"] == "a_us"
    assert "Student's t of pairs" in table(compare(first, second, Method(in_pairs=True)))
    assert [isinstance(it, Picture) for it in sections(outcome)[1].parts] == [True]


def test_files_that_hold_no_result_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    for text in ("", "[]", '{"runs": []}', '{"runs": {"a": [3]}}'):
        file.write_text(text)
        with pytest.raises(UsageError, match=r"x\.json: no "):
            load(file)
    with pytest.raises(UsageError, match="no figure in common"):
        compare(_of("a_us", 1.0), _of("b_us", 1.0))
    with pytest.raises(UsageError, match="--only: vxlan: not in both"):
        compare(_of("a_us", 1.0), _of("a_us", 1.0), Method(only=("vxlan",)))


def test_the_command_compares_two_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    first.write_text(json.dumps(_of("tcp_gbit_s", 1.0, 1.01)))
    second.write_text(json.dumps(_of("tcp_gbit_s", 2.0, 2.01)))
    files = ["--json", str(tmp_path / "out.json"), "--html", str(tmp_path / "out.html")]
    assert main(["bench", "compare", str(first), str(second), "--difference", "5", *files]) == 0
    assert "faster" in capsys.readouterr().out
    assert json.loads((tmp_path / "out.json").read_text())["rows"][0]["verdict"] == "faster"
    assert "<svg" in (tmp_path / "out.html").read_text("utf-8")
    for words in (["--base", "vxlan"], ["--difference", "0"], ["--difference", "x"]):
        assert main(["bench", "compare", str(first), str(second), *words]) == 2
        assert words[1] in capsys.readouterr().err
