# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu top`: interfaces, drops by reason and connections by traffic, live."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from ipoibu.cli.view import Asked, parse_period
from ipoibu.endpoint.bounds import Range
from ipoibu.errors import IpoibuError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ipoibu.cli.parser import Parser

PERIOD_S: Final = 2.0
TIMES: Final = Range(1, 1_000_000, "refreshes")
ROWS: Final = 12  # of drops, and of connections
PIPE_COLUMNS: Final = 160

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
        seen.silent[:] = after.silent
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
    console = Console(width=None if is_terminal else PIPE_COLUMNS)
    if not is_terminal:
        for report in reports:
            console.print(screen(report))
        return
    with Live(console=console, screen=True, auto_refresh=False) as live:
        for report in reports:
            live.update(screen(report), refresh=True)


def screen(report: Report) -> RenderableType:
    """Return the tables of one refresh."""
    from rich.console import Group

    drops = report["drops"][:ROWS]
    connections = report["connections"][:ROWS]
    tables = [_table("interfaces", INTERFACES, report["interfaces"])]
    if drops:
        tables.append(_table("drops", DROPS, drops))
    if connections:
        tables.append(_table("connections", CONNECTIONS, connections))
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


# (heading, key, form) of each column; a column of texts has no form
Column = tuple[str, str, Any]
INTERFACES: Final[tuple[Column, ...]] = (
    ("interface", "dev", None),
    ("state", "state", None),
    ("mode", "mode", None),
    ("MTU", "mtu", str),
    ("received", "rx_bytes_s", _bits),
    ("sent", "tx_bytes_s", _bits),
    ("packets/s in", "rx_packets_s", _number),
    ("out", "tx_packets_s", _number),
    ("drops/s", "drops_s", _number),
    ("neighbours", "neighbours", _number),
    ("groups", "groups", _number),
    ("connections", "connections", _number),
)
DROPS: Final[tuple[Column, ...]] = (
    ("interface", "dev", None),
    ("drops/s", "per_s", _number),
    ("total", "total", _number),
    ("counter", "counter", None),
    ("reason", "reason", None),
)
CONNECTIONS: Final[tuple[Column, ...]] = (
    ("interface", "dev", None),
    ("peer", "peer", None),
    ("role", "role", None),
    ("state", "state", None),
    ("received", "rx_bytes_s", _bits),
    ("sent", "tx_bytes_s", _bits),
)


def _table(title: str, columns: tuple[Column, ...], rows: list[dict[str, Any]]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for heading, _, form in columns:
        table.add_column(heading, justify="left" if form is None else "right")
    for row in rows:
        table.add_row(
            *(Text(form(row[key]) if form else str(row[key])) for _, key, form in columns)
        )
    return table
