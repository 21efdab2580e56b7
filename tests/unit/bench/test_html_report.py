# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from ipoibu.bench.html_report import Page, Pre, Section, Table, html, write
from ipoibu.bench.picture import Interval, bars, curves, intervals

SVG = "{http://www.w3.org/2000/svg}"
RESULTS = {"hostile": "</script><b>&amp;", "figures": [1.5, None], "name": "é"}


def _parsed(page: Page) -> ElementTree.Element:
    """The page's tree: it is well-formed XML after the document type."""
    return ElementTree.fromstring(html(page).removeprefix("<!DOCTYPE html>\n"))


def _page(*parts: Any, environment: dict[str, Any] | None = None) -> Page:
    return Page("A <title> & more", environment or {}, [Section("One <of> two", parts)], RESULTS)


def test_the_results_come_back_as_they_went_in() -> None:
    found = _parsed(_page()).find(".//script[@id='results']")
    assert found is not None
    assert json.loads(found.text or "") == RESULTS
    assert html(_page()).count("</script>") == 1


def test_text_is_no_markup() -> None:
    page = _page("a < b\n\nand & c", Pre("00 01\n  <x>"), Table(["<h>"], [["<td>"]], "<c>"))
    tree = _parsed(page)
    assert [p.text for p in tree.findall(".//section/p")] == ["a < b", "and & c"]
    assert tree.findtext(".//pre") == "00 01\n  <x>"
    assert [tree.findtext(f".//section//{it}") for it in ("th", "td", "caption")] == [
        "<h>",
        "<td>",
        "<c>",
    ]
    assert tree.findtext(".//h1") == "A <title> & more"


def test_numbers_and_verdicts_are_marked() -> None:
    cells = [
        "-",
        "1.25",
        ">=500",
        "136 000",
        "-3",
        "12 %",
        "pass",
        "not met",
        "warn",
        "10.0.0.1 up",
        "E2",
    ]
    found = _parsed(_page(Table(["x"] * len(cells), [cells]))).findall(".//td")
    assert [it.get("class") for it in found] == [*["number"] * 6, "good", "bad", "fair", None, None]


def test_the_environment_is_a_table_of_plain_words() -> None:
    environment = {"load_average": [0.5, 1], "programs": {"iperf3": "3.12", "fastd": None}}
    tree = _parsed(_page(environment={**environment, "cpus": 1, "is_quiet": True}))
    found = [it.text for it in tree.findall(".//td")]
    assert found[0::2] == ["load average", "programs", "cpus", "is quiet"]
    assert found[1::2] == ["0.5, 1", "iperf3: 3.12, fastd: -", "1", "yes"]


def test_nothing_is_fetched() -> None:
    text = html(_page(bars("speed", "Gb/s", {"a": 1.0})))
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert not {"src=", "href=", "url(", "@import"} & set(text.split())


def test_a_bar_is_as_long_as_its_figure() -> None:
    tree = ElementTree.fromstring(bars("speed", "Gb/s", {"a&b": 4.0, "c": 1.0, "none": 0.0}).svg)
    lengths = [float(it.get("width", "")) for it in tree.findall(f"{SVG}rect")]
    assert lengths == [440.0, 110.0, 0.0]
    assert tree.findtext(f"{SVG}title") == "speed, Gb/s"
    assert "a&b" in [it.text for it in tree.findall(f"{SVG}text")]


def test_a_curve_meets_its_points_on_a_logarithmic_scale() -> None:
    line = [(1.0, 0.0), (10.0, 5.0), (100.0, 10.0)]
    tree = ElementTree.fromstring(curves("cost", "neighbours", "ns", {"pump": line}).svg)
    (points,) = (it.get("points", "") for it in tree.findall(f"{SVG}polyline"))
    xs, ys = zip(*(map(float, it.split(",")) for it in points.split()), strict=True)
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1])
    assert ys[0] - ys[1] == pytest.approx(ys[1] - ys[2])
    assert ys[0] > ys[2]  # SVG counts downward


def test_one_point_or_none_is_a_drawing_still() -> None:
    for lines in ({}, {"a": [(64.0, 0.0)]}):
        ElementTree.fromstring(curves("cost", "bytes", "ns", lines).svg)
    ElementTree.fromstring(bars("speed", "Gb/s", {}).svg)
    ElementTree.fromstring(intervals("ratios", {}).svg)


def test_an_interval_that_leaves_one_has_another_colour() -> None:
    drawn = intervals("x", {"same": Interval(1.0, 0.9, 1.1), "more": Interval(1.2, 1.1, 1.3)})
    circles = ElementTree.fromstring(drawn.svg).findall(f"{SVG}circle")
    assert len({it.get("fill") for it in circles}) == 2
    assert float(circles[0].get("cx", "")) < float(circles[1].get("cx", ""))


def test_a_page_is_one_file(tmp_path: Path) -> None:
    write(tmp_path / "report.html", _page("é"))
    assert (tmp_path / "report.html").read_text("utf-8") == html(_page("é"))
