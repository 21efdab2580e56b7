# SPDX-License-Identifier: BSD-2-Clause
"""Draws a report as PNG pictures; needs matplotlib (`pip install ipoibu[bench]`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ipoibu.base.errors import IpoibuError
from ipoibu.bench.report import COLUMNS, PICTURES, Report


def load() -> Any:
    """Return matplotlib's pyplot, set up to write files; raise `IpoibuError` if it is missing."""
    try:
        import matplotlib as plot
    except ImportError as error:
        raise IpoibuError("--plot needs matplotlib: pip install 'ipoibu[bench]'") from error
    plot.use("agg")  # no display
    from matplotlib import pyplot

    return pyplot


def draw(report: Report, directory: Path) -> list[Path]:
    """Draw a bar chart for each measured figure, and the curve of the neighbours."""
    pyplot = load()
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for figure in PICTURES:
        bars = {name: m[figure] for name, m in report["median"].items() if figure in m}
        if bars:
            canvas, axes = pyplot.subplots(figsize=(8, 0.6 + 0.45 * len(bars)), layout="tight")
            axes.barh(list(bars), list(bars.values()))
            axes.invert_yaxis()
            axes.set_xlabel(COLUMNS[figure][0])
            written.append(_save(pyplot, canvas, directory / f"{figure}.png"))
    if rows := report["neighbours"]:
        canvas, axes = pyplot.subplots(figsize=(6, 3.5), layout="tight")
        axes.semilogx(
            [row["neighbours"] for row in rows], [row["ns_per_packet"] for row in rows], marker="o"
        )
        axes.set_ylim(bottom=0)
        axes.set_xlabel("neighbours")
        axes.set_ylabel("ns a packet")
        written.append(_save(pyplot, canvas, directory / "neighbours.png"))
    return written


def _save(pyplot: Any, canvas: Any, path: Path) -> Path:
    canvas.savefig(path, dpi=120)
    pyplot.close(canvas)
    return path
