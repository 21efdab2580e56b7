# SPDX-License-Identifier: BSD-2-Clause
"""Each room says what lives in it, and what it imports; the drawing of the rooms stays small, and each class.

A room is a package of ipoibu, or a directory of ext. Its docstring names every file under "Where to look".
"""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

from tests.unit.test_layers import MODULES, ROOT, imports

ROOMS: Final = {
    name: path.parent
    for name, path in MODULES.items()
    if path.name == "__init__.py" and name not in ("ipoibu", "ipoibu._core")
}
PROTOCOLS_MAX: Final = 18
# 74, and those of `aio`: it uses an endpoint, makes packets, and takes limits of rate and number from below.
ARROWS_MAX: Final = 78
FLOORS_MAX: Final = 12
METHODS_MAX: Final = 50
FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
INCLUDE: Final = re.compile(r'#include "(?:[\w.]+/)*([\w.]+)"')


@cache
def docstring(room: str) -> str:
    return ast.get_docstring(ast.parse((ROOMS[room] / "__init__.py").read_text("utf-8"))) or ""


def inhabitants(directory: Path) -> set[str]:
    files = {path.stem for path in directory.glob("*.py")} - {"__init__"}
    return files | {path.parent.name for path in directory.glob("*/__init__.py")}


def shown(room: str, module: str) -> str | None:
    """The name of a module's room in the docstring of `room`; None for a file of that room."""
    own, other = room.split(".")[1:], module.split(".")[1:]
    if not other or other[: len(own)] == own:
        return (
            None if other == own or len(other) == len(own) + 1 else ".".join(other[: len(own) + 1])
        )
    if other[0] != own[0]:
        return other[0]
    depth = next(i for i, (a, b) in enumerate(zip([*own, ""], other, strict=False)) if a != b)
    return ".".join(other[: depth + 1])


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_names_each_of_its_files_and_no_other(room: str) -> None:
    listed = re.findall(r"^- `(\w+)`: \S", docstring(room), re.MULTILINE)
    assert sorted(listed) == sorted(inhabitants(ROOMS[room]))


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_it_imports_and_what_does_not_belong_in_it(room: str) -> None:
    found = {
        name
        for path in ROOMS[room].glob("*.py")
        for module in imports(path)
        if module.startswith("ipoibu.") and (name := shown(room, module)) is not None
    }
    (line,) = re.findall(r"^It imports: (.*?)\.$", docstring(room), re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"`([\w.]+)`", line)) == found
    assert re.search(r"^Not here:\n\n- ", docstring(room), re.MULTILINE)


def protocols() -> list[str]:
    """Every class of ipoibu that describes another one, by file and name."""
    return [
        f"{name}.{node.name}"
        for name, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if ast.unparse(base).split("[")[0].split(".")[-1] == "Protocol"
    ]


def test_a_class_is_described_once() -> None:
    """One contract for all who use a class; who needs one function of it takes a `Callable`."""
    assert len(protocols()) <= PROTOCOLS_MAX, protocols()


def arrows() -> set[tuple[str, str]]:
    """The uses between the rooms of the first floor down, by imports of Python and includes of C."""
    found = set()
    for name, path in MODULES.items():
        for module in imports(path):
            if module.startswith("ipoibu.") and name != "ipoibu":
                found.add((name.split(".")[1], module.split(".")[1]))
    headers = {path.name: path for path in (ROOT / "ext").rglob("*.h") if "tests" not in path.parts}
    for path in (ROOT / "ext").rglob("*.[ch]"):
        if "tests" in path.parts:
            continue
        for header in INCLUDE.findall(path.read_text("utf-8")):
            if header in headers:
                room, other = (it.relative_to(ROOT).parts[1] for it in (path, headers[header]))
                found.add((f"ext/{room}", f"ext/{other}"))
    return {(a, b) for a, b in found if a != b}


def test_the_drawing_of_the_rooms_stays_small() -> None:
    graph: dict[str, set[str]] = {}
    for above, below in arrows():
        graph.setdefault(above, set()).add(below)
    floors: dict[str, int] = {}
    for room in TopologicalSorter(graph).static_order():  # raises CycleError for a circle
        floors[room] = 1 + max((floors[below] for below in graph.get(room, ())), default=0)
    assert len(arrows()) <= ARROWS_MAX
    assert max(floors.values()) <= FLOORS_MAX


@pytest.mark.parametrize("room", ["daemon", "endpoint", "proto"])
def test_there_is_no_circle_among_the_rooms_within_a_room(room: str) -> None:
    """A file that stands loose in the room counts as a room of its own."""
    inside = {name: name.split(".")[2] for name in MODULES if name.startswith(f"ipoibu.{room}.")}
    graph: dict[str, set[str]] = {}
    for name, own in inside.items():
        others = {inside[module] for module in imports(MODULES[name]) if module in inside}
        graph.setdefault(own, set()).update(others - {own})
    assert len(graph) > 5
    TopologicalSorter(graph).prepare()  # raises CycleError for a circle


def classes() -> list[tuple[int, str]]:
    """Each class of ipoibu, with the number of its methods."""
    return [
        (sum(isinstance(it, FUNCTIONS) for it in node.body), f"{name}.{node.name}")
        for name, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    ]


def test_no_class_has_more_methods_than_a_reader_can_keep() -> None:
    assert [name for count, name in classes() if count > METHODS_MAX] == []
