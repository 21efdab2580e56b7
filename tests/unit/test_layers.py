# SPDX-License-Identifier: BSD-2-Clause
"""The order of the Python files: no circle among them, and an engine that knows no compiled code.

`make lint` checks the order of the rooms (import-linter's contracts in pyproject.toml).
"""

from __future__ import annotations

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PURE = ("ipoibu.proto", "ipoibu.wire", "ipoibu.base.ib", "ipoibu.base.addr", "ipoibu.base.errors")
CORE = "ipoibu._core"
COMPILED = {CORE, f"{CORE}.fabric", f"{CORE}.device", f"{CORE}.pump", "ipoibu._verbs"}


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path): path for path in (ROOT / "ipoibu").rglob("*.py")}


@cache
def imports(path: Path) -> frozenset[str]:
    """Every module that the file names in an import, at any depth and under TYPE_CHECKING too."""
    named: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            named.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            assert node.module
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                known = submodule in MODULES or submodule in COMPILED
                named.add(submodule if known else node.module)
    return frozenset(named)


def test_there_is_no_circle_among_the_files() -> None:
    assert len(MODULES) > 150
    graph = {
        name: {other for other in imports(path) if other in MODULES and other != name}
        for name, path in MODULES.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from error


def test_the_engine_and_the_codecs_import_nothing_that_is_compiled() -> None:
    for name, path in MODULES.items():
        if name.startswith(PURE):
            assert not imports(path) & COMPILED, name


def test_what_is_shipped_imports_no_tests() -> None:
    for name, path in MODULES.items():
        assert not any(module.split(".")[0] == "tests" for module in imports(path)), name
