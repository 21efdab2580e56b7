# SPDX-License-Identifier: BSD-2-Clause
"""Pictures of figures as SVG text for a page: bars, curves, and intervals around one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, NamedTuple

WIDTH: Final = 720
NAMES: Final = 190  # the width for names at the left
VALUES: Final = 90  # and for numbers at the right
ROW: Final = 22
HEIGHT: Final = 260  # of a curve
MARGIN: Final = 34
COLOURS: Final = ("#2563a8", "#c2571a", "#3a8f4d", "#8a4fa3", "#a88a1e", "#4a9aa8", "#8a5a44")
TICKS: Final = 4


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing; `html_report` puts it into a page as it is."""

    svg: str


class Interval(NamedTuple):
    """A figure with the bounds around it."""

    middle: float
    low: float
    high: float


def short(value: float) -> str:
    """Return a number as a person reads it on an axis: 0.25, 12.5, 136 000."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.3g}"


def bars(title: str, unit: str, values: Mapping[str, float]) -> Picture:
    """Draw one bar for each name; all figures are at least zero."""
    top = max(values.values(), default=0.0)
    room = WIDTH - NAMES - VALUES
    parts = []
    for row, (name, value) in enumerate(values.items()):
        y, length = MARGIN + row * ROW, room * value / top if top > 0 else 0.0
        parts += [
            _text(NAMES - 8, y + 15, name, "end"),
            f'<rect x="{NAMES}" y="{y + 3}" width="{length:.1f}" height="{ROW - 6}" fill="{COLOURS[0]}"/>',
            _text(NAMES + length + 6, y + 15, short(value)),
        ]
    return _drawing(f"{title}, {unit}", MARGIN + len(values) * ROW + 8, parts)


def curves(
    title: str, across: str, unit: str, lines: Mapping[str, Sequence[tuple[float, float]]]
) -> Picture:
    """Draw a curve for each name through its points; the scale across is logarithmic, and begins above
    zero."""
    points = [point for line in lines.values() for point in line]
    xs = sorted({x for x, _ in points})
    top = max((y for _, y in points), default=0.0) or 1.0
    left, right, bottom = 80, WIDTH - 20, MARGIN + HEIGHT
    span = math.log(xs[-1] / xs[0]) if len(xs) > 1 else 1.0

    def at(x: float, y: float) -> tuple[float, float]:
        return left + (right - left) * math.log(x / xs[0]) / span, bottom - HEIGHT * y / top

    parts = []
    for tick in range(TICKS + 1):
        y = bottom - HEIGHT * tick / TICKS
        parts += [
            f'<line x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" class="rule"/>',
            _text(left - 8, y + 4, short(top * tick / TICKS), "end"),
        ]
    last = -math.inf
    for x in xs:
        place, _ = at(x, 0)
        if place - last >= 40:  # else the numbers would overlap
            parts.append(_text(place, bottom + 16, short(x), "middle"))
            last = place
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [at(x, y) for x, y in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        where = bottom + 38 + 18 * number
        parts += [
            f'<rect x="{left}" y="{where - 9}" width="12" height="9" fill="{colour}"/>',
            _text(left + 18, where, name),
        ]
    parts.append(_text(right, bottom + 34, across, "end"))
    return _drawing(f"{title}, {unit}", bottom + 40 + 18 * len(lines), parts)


def intervals(title: str, ratios: Mapping[str, Interval]) -> Picture:
    """Draw each ratio with its interval beside a line at one."""
    bounds = [1.0, *(bound for it in ratios.values() for bound in (it.low, it.high))]
    low, high = math.log(min(bounds)), math.log(max(bounds))
    room = WIDTH - NAMES - VALUES

    def at(ratio: float) -> float:
        return NAMES + room * (math.log(ratio) - low) / (high - low or 1.0)

    bottom = MARGIN + len(ratios) * ROW
    one = at(1.0)
    parts = [f'<line x1="{one:.1f}" y1="{MARGIN}" x2="{one:.1f}" y2="{bottom}" class="rule"/>']
    for row, (name, it) in enumerate(ratios.items()):
        y = MARGIN + row * ROW + ROW / 2
        colour = COLOURS[0] if it.low <= 1.0 <= it.high else COLOURS[1]
        parts += [
            _text(NAMES - 8, y + 4, name, "end"),
            f'<line x1="{at(it.low):.1f}" y1="{y}" x2="{at(it.high):.1f}" y2="{y}"'
            f' stroke="{colour}" stroke-width="2"/>',
            f'<circle cx="{at(it.middle):.1f}" cy="{y}" r="4" fill="{colour}"/>',
            _text(WIDTH - VALUES + 10, y + 4, f"{it.middle:.3f}"),
        ]
    return _drawing(title, bottom + 8, parts)


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _drawing(title: str, height: float, parts: Sequence[str]) -> Picture:
    head = f'<text x="0" y="16" class="title">{escape(title)}</text>'
    box = f'viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}"'
    shown = f"<title>{escape(title)}</title>{head}{''.join(parts)}"
    return Picture(f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {box}>{shown}</svg>')
