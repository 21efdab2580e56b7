# SPDX-License-Identifier: BSD-2-Clause
"""Every container of the code stands in the register of tables, or in the list of those that nobody outside
can fill (`closed.toml`), which says why."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ipoibu.daemon.tables.register import TABLES
from ipoibu.daemon.tables.table import CoreTable

ROOT: Final = Path(__file__).parents[3]
# Rooms whose objects live as long as we do.
ROOMS: Final = ("aio", "daemon", "endpoint", "fabric", "host", "proto", "wire")
KINDS: Final = frozenset(
    [
        "dict",
        "list",
        "set",
        "frozenset",
        "deque",
        "bytearray",
        "Counter",
        "OrderedDict",
        "defaultdict",
        "Queue",
        "SimpleQueue",
        "Waiting",
    ]
)
_ALLOCATION: Final = re.compile(
    r"([\w>.\-]+)(?:\[\w+\])?(?: =)? (?:malloc|calloc|realloc|aligned_alloc)\("
    r"|ipu_(?:slab|ring)_init\(&([\w>.\-]+),"
)


def in_python(path: Path) -> Iterator[str]:
    """Yield the containers of a file: attributes of classes, and caches of functions."""
    room = path.relative_to(ROOT / "ipoibu")
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ClassDef):
            for name in dict.fromkeys(_attributes(node)):
                yield f"{room}:{node.name}.{name}"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for each in node.decorator_list:
                if "cache" in ast.unparse(each).split("(")[0].split("."):
                    yield f"{room}:{node.name}"
                if "lru_cache" in ast.unparse(each):
                    yield f"{room}:{node.name}"


def _attributes(owner: ast.ClassDef) -> Iterator[str]:
    for node in ast.walk(owner):
        target: ast.expr
        kind: ast.expr | None = None
        if isinstance(node, ast.AnnAssign):
            target, value, kind = node.target, node.value, node.annotation
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        else:
            continue
        is_own = isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"
        is_field = isinstance(target, ast.Name) and node in owner.body
        if (is_own or is_field) and (_is_container(value) or _names_kind(kind)):
            yield target.attr if isinstance(target, ast.Attribute) else ast.unparse(target)


def _is_container(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Dict | ast.List | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp):
        return True
    if not isinstance(value, ast.Call):
        return False
    made = [value.func, *(it.value for it in value.keywords if it.arg == "default_factory")]
    return any(ast.unparse(it).split(".")[-1] in KINDS for it in made)


def _names_kind(kind: ast.expr | None) -> bool:
    words = set(re.findall(r"\w+", ast.unparse(kind))) if kind is not None else set()
    return bool(words & KINDS) and not words & {"Callable", "ClassVar"}


def in_c(path: Path) -> Iterator[str]:
    """Yield the pointers to what a file allocates."""
    place = path.relative_to(ROOT / "ext")
    for line in path.read_text("utf-8").splitlines():
        allocated = _ALLOCATION.search(line)
        if allocated is not None:
            yield f"{place}:{re.split(r'->|[.]', allocated[1] or allocated[2])[-1]}"


def containers() -> set[str]:
    python = (path for room in ROOMS for path in (ROOT / "ipoibu" / room).rglob("*.py"))
    c = (
        path
        for pattern in ("*.c", "*.h")
        for path in (ROOT / "ext").rglob(pattern)
        if not {"tests", "build", "python"} & set(path.relative_to(ROOT / "ext").parts)
    )
    return {name for path in python for name in in_python(path)} | {
        name for path in c for name in in_c(path)
    }


def closed() -> list[str]:
    listed = tomllib.loads(Path(__file__).with_name("closed.toml").read_text("utf-8"))
    return [name for section in listed["because"] for name in section["containers"]]


def fixed_arrays(names: list[str]) -> set[str]:
    """Return the names in C that are arrays in a structure, which cannot grow."""
    found = set()
    for name in names:
        file, _, array = name.partition(":")
        if file.endswith(".h") and f"{array}[" in (ROOT / "ext" / file).read_text("utf-8"):
            found.add(name)
    return found


def test_every_container_is_in_the_register_or_closed() -> None:
    registered = [holder for table in TABLES for holder in table.holders]
    unknown = containers() - set(registered) - set(closed())
    assert not unknown, (
        "who fills these? Add each to ipoibu/daemon/tables, with a filling in tests/unit/tables, or to"
        f" tests/unit/tables/closed.toml, with the reason: {sorted(unknown)}"
    )


def test_every_name_is_that_of_a_container_and_stands_once() -> None:
    registered = [holder for table in TABLES for holder in table.holders]
    names = [*registered, *closed()]
    assert sorted({it for it in names if names.count(it) > 1}) == []
    assert sorted(set(names) - containers() - fixed_arrays(registered)) == []


def test_only_tables_of_the_core_are_in_c() -> None:
    for table in TABLES:
        is_in_c = [it.partition(":")[0].endswith((".c", ".h")) for it in table.holders]
        assert all(is_in_c) if isinstance(table, CoreTable) else not any(is_in_c)
