# SPDX-License-Identifier: BSD-2-Clause
"""Each table of the register, filled to twice its cap: bytes, work, counter, log, and an honest host."""

from __future__ import annotations

import gc
import logging
import statistics
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

from ipoibu.base.limits import PEER_LOGS_PER_S
from ipoibu.daemon.metrics.counters import sections
from ipoibu.daemon.metrics.drop_log import CountedDrops
from ipoibu.daemon.tables.register import TABLES
from ipoibu.daemon.tables.table import CoreTable, Table
from tests.unit.tables import engine, ethernet, host, peers, sockets
from tests.unit.tables.filling import Filling

ROOT: Final = Path(__file__).parents[3]
FILLINGS: Final[dict[str, type[Filling]]] = {
    **engine.FILLINGS,
    **ethernet.FILLINGS,
    **host.FILLINGS,
    **peers.FILLINGS,
    **sockets.FILLINGS,
}
PYTHON: Final = [it for it in TABLES if not isinstance(it, CoreTable)]
CORE: Final = [it for it in TABLES if isinstance(it, CoreTable)]
LINES: Final = 10  # of the log: those of a token bucket, or 1, 2, 5, 10, 20 ..
SAMPLE: Final = 15  # entries whose work is counted
SLACK_BYTES: Final = 100_000  # of the table itself, and caches of the interpreter
STEP: Final = 60  # byte codes of one step, such as one turn of a loop


def name_of(table: Table) -> str:
    return table.name.replace(" ", "-")


def test_names_are_unique_and_each_table_is_filled() -> None:
    names = [it.name for it in TABLES]
    assert len(names) == len(set(names))
    assert {it.name for it in PYTHON} == FILLINGS.keys()


@pytest.mark.parametrize("table", PYTHON, ids=name_of)
def test_a_full_table_stays_small_and_quick_and_takes_an_honest_host(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)  # the records would count as memory
    filling = FILLINGS[table.name]()
    began = filling.now
    assert (filling.true_cap or filling.cap) == table.cap
    cap = filling.cap // filling.entries_each
    first = min(SAMPLE, cap // 3)
    work, peak = [], []
    tracemalloc.start()
    try:
        empty, _ = tracemalloc.get_traced_memory()
        for number in range(2 * cap):
            if number < first or number >= 2 * cap - first:
                steps, bytes_ = _measured(lambda number=number: filling.add(number))  # type: ignore[misc]
                work.append(steps)
                peak.append(bytes_)
            else:
                filling.add(number)
            if number == cap - 1:
                assert len(filling) >= filling.cap - filling.entries_each, (
                    "each `add` makes an entry"
                )
        gc.collect()  # what only a cycle keeps is not in the table
        full, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(filling) <= filling.cap
    assert full - empty <= filling.cap * table.entry_bytes + SLACK_BYTES
    early, late = statistics.median(work[:first]), statistics.median(work[first:])
    assert late <= 4 * early + STEP * table.steps
    early, late = statistics.median(peak[:first]), statistics.median(peak[first:])
    assert late <= 4 * early + 2000 + 100 * table.steps
    if table.counter:
        assert filling.counts[table.counter] >= (cap // 2 if filling.entries_each == 1 else 1)
    assert filling.lines > 0 or not table.is_logged
    assert filling.lines <= LINES + 2 * PEER_LOGS_PER_S * (filling.now - began)
    assert filling.admits_honest()


@pytest.mark.parametrize("table", TABLES, ids=name_of)
def test_a_counter_is_explained(table: Table) -> None:
    explained = {name for section in sections() for name in section.counters}
    assert table.counter in explained if table.counter else table.uncounted
    assert not (table.counter and table.uncounted)


@pytest.mark.parametrize("table", [it for it in CORE if it.counter], ids=name_of)
def test_a_table_of_the_core_is_logged_by_its_counter(table: CoreTable) -> None:
    """The core writes no log: the daemon reads its counters of drops (`drop_log.py`), and the engine logs
    what it counts itself."""
    (name,) = (it.prefix + table.counter for it in sections() if table.counter in it.counters)
    if name.startswith("engine."):
        return
    lines = CountedDrops({name: 0}).look(1.0, {name: table.cap})
    assert lines == ([(name, table.cap)] if table.is_logged else [])


def test_each_full_table_of_the_rails_has_a_line() -> None:
    rails = [it for it in CORE if it.holders[0].startswith("rails/")]
    assert [it.is_logged for it in rails] == [True, True]


def _measured(act: Callable[[], None]) -> tuple[int, int]:
    """Return how many byte codes `act` runs, and by how many bytes its memory exceeds that before."""
    steps = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal steps
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        steps += event == "opcode"
        return trace

    former = sys.gettrace()
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(former)
    return steps, tracemalloc.get_traced_memory()[1] - before
