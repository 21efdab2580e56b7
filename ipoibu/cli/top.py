# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu top`: interfaces, drops by reason and connections by traffic, live."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from ipoibu.base.bounds import Range
from ipoibu.base.errors import IpoibuError
from ipoibu.cli.view import Asked, parse_period

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ipoibu.cli.parser import Parser

PERIOD_S: Final = 2.0
TIMES: Final = Range(1, 1_000_000, "refreshes")
ROWS: Final = 12  # of drops, and of connections
PIPE_COLUMNS: Final = 160
LEAST_COLUMNS: Final = 20  # of a text that is cut
GAP: Final = 2  # blanks between two columns

Report = dict[str, list[dict[str, Any]]]


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "top",
        help="show traffic, live",
        description="Show interfaces with their rates, drops by reason and connections by traffic, live;"
        " Ctrl-C ends the command.",
    )
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="the interface; all of this namespace by default"
    )
    parser.add_argument(
        "-d",
        "--delay",
        metavar="SECONDS",
        type=parse_period,
        default=PERIOD_S,
        help="time between two refreshes; 2 by default",
    )
    parser.add_argument("-n", "--times", metavar="N", type=TIMES.read, help="end after N refreshes")
    parser.add_argument(
        "-j", "--json", action="store_true", help="print a line of JSON for each refresh"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    show = _print_json if options.json else _show_live
    seen = Asked()  # of the last refresh
    with contextlib.suppress(KeyboardInterrupt):
        show(_reports(options.name, options.delay, options.times, seen))
    return seen.report()


def _reports(name: str | None, period_s: float, times: int | None, seen: Asked) -> Iterator[Report]:
    from ipoibu.cli.traffic import Sample, report

    before = Sample.take(name)
    while times is None or times > 0:
        time.sleep(period_s)
        after = Sample.take(name)
        seen.silent = after.silent
        yield report(before, after)
        before = after
        times = None if times is None else times - 1


def _print_json(reports: Iterator[Report]) -> None:
    for report in reports:
        print(json.dumps({"time": round(time.time(), 6), **report}), flush=True)


def _show_live(reports: Iterator[Report]) -> None:
    try:
        from rich.console import Console
        from rich.live import Live
    except ImportError as error:
        raise IpoibuError(
            "top needs the library rich: install python3-rich (Debian) or `pip install ipoibu[top]`;"
            " `ipoibu top -j` works without"
        ) from error
    is_terminal = sys.stdout.isatty()
    console = Console(width=None if is_terminal else _pipe_columns())
    if not is_terminal:
        for report in reports:
            console.print(screen(report, console.width))
        return
    with Live(console=console, screen=True, auto_refresh=False) as live:
        for report in reports:
            live.update(screen(report, console.width), refresh=True)


def _pipe_columns() -> int:
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 5 else PIPE_COLUMNS


def screen(report: Report, width: int) -> RenderableType:
    """Return the tables of one refresh, each line of which has at most `width` columns."""
    from rich.console import Group

    drops = report["drops"][:ROWS]
    connections = report["connections"][:ROWS]
    tables = [_table("interfaces", INTERFACES, report["interfaces"], width)]
    if drops:
        tables.append(_table("drops", DROPS, drops, width))
    if connections:
        tables.append(_table("connections", CONNECTIONS, connections, width))
    return Group(*tables)


def _bits(value: float) -> str:
    """Return bytes a second as bits."""
    value *= 8
    for unit in ("", "k", "M"):
        if value < 1000:
            return f"{value:.4g} {unit}b/s"
        value /= 1000
    return f"{value:.4g} Gb/s"


def _number(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ")


class Column(NamedTuple):
    """A column of texts has no `form`. Where the terminal is too narrow, columns of the highest `rank` are
    left out first, and one that is `flexible` is cut."""

    heading: str
    key: str
    form: Callable[[float], str] | None = None
    rank: int = 0
    flexible: bool = False


INTERFACES: Final = (
    Column("interface", "dev"),
    Column("state", "state"),
    Column("mode", "mode", None, 4),
    Column("MTU", "mtu", str, 5),
    Column("received", "rx_bytes_s", _bits),
    Column("sent", "tx_bytes_s", _bits),
    Column("packets/s in", "rx_packets_s", _number, 2),
    Column("out", "tx_packets_s", _number, 2),
    Column("drops/s", "drops_s", _number, 1),
    Column("neighbours", "neighbours", _number, 6),
    Column("groups", "groups", _number, 7),
    Column("connections", "connections", _number, 3),
)
DROPS: Final = (
    Column("interface", "dev"),
    Column("drops/s", "per_s", _number),
    Column("total", "total", _number, 1),
    Column("counter", "counter"),
    Column("reason", "reason", flexible=True),
)
CONNECTIONS: Final = (
    Column("interface", "dev"),
    Column("peer", "peer", flexible=True),
    Column("role", "role", None, 2),
    Column("state", "state", None, 1),
    Column("received", "rx_bytes_s", _bits),
    Column("sent", "tx_bytes_s", _bits),
)


def _table(
    title: str, columns: Sequence[Column], rows: list[dict[str, Any]], width: int
) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    shown, widths = _fitting(columns, rows, width)
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column, most in zip(shown, widths, strict=True):
        justify: Literal["left", "right"] = "left" if column.form is None else "right"
        table.add_column(
            column.heading, justify=justify, no_wrap=True, overflow="ellipsis", max_width=most
        )
    for row in rows:
        table.add_row(*(Text(_cell(column, row)) for column in shown))
    return table


def _fitting(
    columns: Sequence[Column], rows: list[dict[str, Any]], width: int
) -> tuple[list[Column], list[int]]:
    """Return the columns that fit into `width`, with their widths."""
    shown = list(columns)
    while True:
        widths = [
            max([len(column.heading), *(len(_cell(column, row)) for row in rows)])
            for column in shown
        ]
        excess = sum(widths) + (len(shown) - 1) * GAP - width
        room = sum(
            max(0, own - LEAST_COLUMNS)
            for own, it in zip(widths, shown, strict=True)
            if it.flexible
        )
        rank = max(column.rank for column in shown)
        if excess <= room or not rank:
            break
        shown = [column for column in shown if column.rank < rank]
    for index, column in enumerate(shown):
        if column.flexible:
            widths[index] -= min(max(0, excess), max(0, widths[index] - LEAST_COLUMNS))
    return shown, widths


def _cell(column: Column, row: dict[str, Any]) -> str:
    return column.form(row[column.key]) if column.form is not None else str(row[column.key])
