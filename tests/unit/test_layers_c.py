# SPDX-License-Identifier: BSD-2-Clause
"""The rooms of the C side include each other only as the table in docs/understand/design.md says.

The districts of the pump do so as the table in ext/README.md says, and call each other the same way.
And inside a room no two files call each other: one is below the other.
"""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

EXT = Path(__file__).resolve().parents[2] / "ext"
SOURCES = sorted(
    path.relative_to(EXT)
    for kind in "ch"
    for path in EXT.rglob(f"*.{kind}")
    if not {"tests", "build"} & set(path.relative_to(EXT).parts)
)
# What is no call: comments, and the names of types, of which one may be that of an object, too.
SILENT = re.compile(r"/\*.*?\*/|\b(struct|enum|union) \w+", re.DOTALL)
# A function or an object that other files may name, from the first column on.
DEFINED = re.compile(
    r"^(?!static|typedef)[a-z][\w\s*]*?\b(\w+)(?:\([^;{}]*\)\n\{|(?:\[\w*\])? = )", re.MULTILINE
)
INLINE = re.compile(
    r"^static inline [^;{}]*?\b(\w+)\([^;{}]*\)\n\{\n(.*?)^\}", re.MULTILINE | re.DOTALL
)
NAMED = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def _written(table: str) -> dict[str, set[str]]:
    """Each room or district with those that it may include, in the order of the table."""
    rows = re.findall(r"^\| `(\w+)` \|.*\|([^|]*)\|$", table, re.MULTILINE)
    rooms = {name: set(re.findall(r"`(\w+)`", allowed)) for name, allowed in rows}
    for name, allowed in rows:
        if allowed.strip() == "all":
            rooms[name] = set(rooms) - {name}
    return rooms


ROOMS = _written((EXT.parent / "docs/understand/design.md").read_text("utf-8").split("\n## ")[0])
_PUMP = (EXT / "README.md").read_text("utf-8").split("\n## The pump\n")[1].split("\n### ")[0]
DISTRICTS = _written(_PUMP)


def _included(source: Path) -> list[Path]:
    """What a file includes; soft's files name each other without their room."""
    names = NAMED.findall((EXT / source).read_text("utf-8"))
    return [source.parent / name if source.parts[0] == "soft" else Path(name) for name in names]


def _district(source: Path) -> str:
    """The folder of a file of the pump, which has no file outside of them."""
    assert len(source.parts) == 3, f"{source} lies in no district"
    return source.parts[1]


@pytest.mark.parametrize("written", [ROOMS, DISTRICTS], ids=["rooms", "districts"])
def test_a_table_names_each_row_below_those_that_it_may_include(
    written: dict[str, set[str]],
) -> None:
    above: set[str] = set()
    for room, allowed in written.items():
        assert allowed <= above, room
        above.add(room)


def test_the_tables_name_every_room_and_every_district_of_the_pump() -> None:
    assert set(ROOMS) == {source.parts[0] for source in SOURCES}
    assert set(DISTRICTS) == {_district(it) for it in SOURCES if it.parts[0] == "pump"}


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_a_file_includes_only_what_its_room_may(source: Path) -> None:
    room = source.parts[0]
    for header in _included(source):
        assert (EXT / header).is_file(), f"{header}: no such file"
        assert header.parts[0] in ROOMS[room] | {room}, f"{room} may not include {header}"
        if room == header.parts[0] == "pump":
            district = _district(source)
            allowed = DISTRICTS[district] | {district}
            assert _district(header) in allowed, f"{district} may not include {header}"


def test_the_cython_side_names_headers_with_their_room() -> None:
    for source in (path for kind in ("pxd", "pxi", "pyx") for path in EXT.glob(f"python/*.{kind}")):
        for name in re.findall(r'cdef extern from "([^"<]+)"', source.read_text("utf-8")):
            assert (EXT / name).is_file(), f"{source.name} names {name}"


def test_no_header_includes_itself_by_way_of_others() -> None:
    headers = {source: set(_included(source)) for source in SOURCES if source.suffix == ".h"}
    assert list(TopologicalSorter(headers).static_order())  # raises CycleError


def _calls(room: str) -> dict[Path, set[Path]]:
    """Each .c file of a room with the others whose functions and objects it names.

    What it calls by way of a function in a header counts, too.
    """
    text = {
        source: SILENT.sub(r"\1", (EXT / source).read_text("utf-8"))
        for source in SOURCES
        if source.parts[0] == room
    }
    files = {source: code for source, code in text.items() if source.suffix == ".c"}
    home = {name: file for file, code in files.items() for name in DEFINED.findall(code)}
    headers = [code for source, code in text.items() if source.suffix == ".h"]
    inline = {name: body for code in headers for name, body in INLINE.findall(code)}
    calls = {}
    for file, code in files.items():
        names = set(re.findall(r"\w+", code))
        waiting = names & set(inline)
        while waiting:
            more = set(re.findall(r"\w+", inline.pop(waiting.pop()))) - names
            names |= more
            waiting |= more & set(inline)
        calls[file] = {home[name] for name in names & set(home)} - {file}
    return calls


@pytest.mark.parametrize("room", ROOMS)
def test_no_file_of_a_room_is_called_by_one_that_it_calls(room: str) -> None:
    calls = _calls(room)
    assert room == "python" or any(calls.values())
    assert list(TopologicalSorter(calls).static_order()) or not calls  # raises CycleError


def test_a_file_of_the_pump_calls_only_districts_that_its_own_reaches() -> None:
    """It reaches those that it may include, and what these reach: their headers bring the others."""
    reached: dict[str, set[str]] = {}
    for district, allowed in DISTRICTS.items():
        reached[district] = {district}.union(*(reached[below] for below in allowed))
    for file, called in _calls("pump").items():
        for other in called:
            assert _district(other) in reached[_district(file)], f"{file} calls {other}"


def test_the_page_describes_every_file_of_the_pump_in_its_district() -> None:
    rows = [
        re.findall(r"`(\w+/\w+)\.[ch]`", row)
        for row in re.findall(r"^\| (`.*?) \|", _PUMP, re.MULTILINE)
    ]
    described = [file for row in rows for file in row]
    files = {
        source.relative_to("pump").with_suffix("")
        for source in SOURCES
        if source.parts[0] == "pump"
    }
    assert sorted(described) == sorted(str(file) for file in files)
