# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu top`: rates, drops by reason, connections by traffic, on a terminal and as JSON."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from ipoibu.cli import top, traffic
from ipoibu.cli.main import main
from ipoibu.cli.traffic import Sample, report

PEER = "00:00:04:4b:fe:80:00:00:00:00:00:00:00:15:5d:ff:fd:33:ff:0b"


def _observed(dev: str = "ib0", parent: str = "", **stats: int) -> tuple[str, dict[str, Any]]:
    return dev, {
        "state": "up",
        "mode": "connected",
        "mtu": 65520,
        "parent": parent,
        "stats": {name.replace("__", "."): value for name, value in stats.items()},
        "neighbours": [{"count": 2}, {"count": 1}],
        "groups": [{"count": 4}],
        "connections": [],
    }


def _connection(tx_bytes: int | None, peer: str = PEER) -> dict[str, Any]:
    entry = {"peer": peer, "role": "active", "state": "live", "qpn": "0x1"}
    return entry | {"tx_bytes": tx_bytes, "rx_bytes": 0}


BEFORE = Sample(
    10.0,
    [_observed(rx_bytes=1000, tx_unreachable=5, fabric__drop_icrc=1)],
    [("ib0", [_connection(0), _connection(100, "b")])],
)
AFTER = Sample(
    12.0,
    [
        _observed(rx_bytes=3000, tx_unreachable=25, fabric__drop_icrc=1, wakeups=9),
        _observed("ib0.8001", "ib0", rx_bytes=500, fabric__drop_icrc=1),
    ],
    [("ib0", [_connection(10), _connection(900, "b"), _connection(None, "mesh")])],
)


def test_rates_are_differences_by_time() -> None:
    shown = report(BEFORE, AFTER)
    ib0, child = shown["interfaces"]
    assert (ib0["rx_bytes_s"], ib0["drops_s"], ib0["neighbours"], ib0["groups"]) == (1000, 10, 3, 4)
    assert child["rx_bytes_s"] == 0  # it is new: nobody knows since when it counts


def test_drops_come_by_rate_with_their_reason_and_a_ports_once() -> None:
    drops = report(BEFORE, AFTER)["drops"]
    assert [(it["dev"], it["counter"], it["per_s"], it["total"]) for it in drops] == [
        ("ib0", "tx_unreachable", 10, 25),
        ("ib0", "fabric.drop_icrc", 0, 1),
    ]
    assert drops[1]["reason"] == "damaged: a wrong ICRC"


def test_connections_come_by_traffic() -> None:
    connections = report(BEFORE, AFTER)["connections"]
    assert [(it["peer"], it["tx_bytes_s"]) for it in connections] == [("b", 400), (PEER, 5)]


def test_a_daemon_that_started_again_has_counted_from_zero() -> None:
    fresh = Sample(12.0, [_observed(rx_bytes=600)], [])
    assert report(BEFORE, fresh)["interfaces"][0]["rx_bytes_s"] == 300


@pytest.fixture
def samples(monkeypatch: pytest.MonkeyPatch) -> None:
    left = [BEFORE, AFTER, AFTER]

    def take(name: str | None) -> Sample:
        return left.pop(0)

    monkeypatch.setattr(traffic.Sample, "take", take)
    monkeypatch.setattr("time.sleep", lambda seconds: None)


@pytest.mark.usefixtures("samples")
def test_json_is_one_line_for_each_refresh_with_documented_keys(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["top", "-j", "-n", "2"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [list(line) for line in lines] == [["time", "interfaces", "drops", "connections"]] * 2
    page = (Path(__file__).parents[3] / "docs/use/watching.md").read_text("utf-8")
    section = page.split("## ipoibu top\n")[1].split("\n## ")[0]
    for key in ("interfaces", "drops", "connections"):
        named = re.split(r"\n- |\n\n", section.split(f"- `{key}`: ")[1])[0]
        assert re.findall(r"`(\w+)`", named) == list(lines[0][key][0])


@pytest.mark.usefixtures("samples")
def test_a_pipe_gets_the_tables_once_for_each_refresh(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rich")
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["top", "-n", "1"]) == 0
    out = capsys.readouterr().out
    assert "8 kb/s" in out
    assert "tx_unreachable" in out
    assert re.search(r"\nib0 +b +active", out)
    assert PEER in out


def test_a_terminal_gets_a_screen() -> None:
    console = pytest.importorskip("rich.console")
    output = io.StringIO()
    console.Console(file=output, force_terminal=True, width=160).print(
        top.screen(report(BEFORE, AFTER), 160)
    )
    assert "resolution failed a moment ago" in output.getvalue()


@pytest.mark.parametrize(
    ("width", "has", "lacks"),
    [
        (200, ["neighbours", "groups", "connections", PEER, "wrong ICRC"], ["…"]),
        (100, ["interface", "mode", "drops/s", "role"], ["groups"]),
        (80, ["interface", "packets/s in", "drops/s", "8 kb/s", "00:00:04"], ["neighbours", "MTU"]),
        (60, ["interface", "received", "sent", "…", "fabric.drop_icrc"], ["mode", "role", "total"]),
    ],
)
def test_each_line_has_the_width_that_there_is(
    width: int, has: list[str], lacks: list[str]
) -> None:
    console = pytest.importorskip("rich.console")
    output = io.StringIO()
    shown = report(BEFORE, AFTER)
    console.Console(file=output, width=width).print(top.screen(shown, width))
    lines = output.getvalue().splitlines()
    rows = sum(map(len, shown.values()))
    assert len(lines) == rows + 2 * 3  # a title and the headings of each table: no row is folded
    assert max(len(line.rstrip()) for line in lines) <= width
    assert all(word in output.getvalue() for word in has)
    assert not any(word in output.getvalue() for word in lacks)


@pytest.mark.usefixtures("samples")
def test_a_pipe_has_the_width_that_columns_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rich")
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["top", "-n", "1"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 60


@pytest.mark.usefixtures("samples")
def test_a_missing_library_is_an_error_that_names_its_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert main(["top", "-n", "1"]) == 1
    assert "python3-rich" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["-d", "0"], ["-n", "0"], ["-n", "x"]])
def test_bad_numbers_are_refused(words: list[str]) -> None:
    assert main(["top", *words]) == 2
