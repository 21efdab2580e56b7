# SPDX-License-Identifier: BSD-2-Clause
"""The pages that are drawn from the engine's source, or document its counters."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from pathlib import Path

import ipoibu.proto
from ipoibu._core import FaultyFabric, MemoryPort, MemorySwitch
from ipoibu.proto.machine.table import Table
from tests.interpreter import ROOT, run

COUNTERS = (ROOT / "docs/reference/counters.md").read_text(encoding="utf-8")


def documented(section: str) -> set[str]:
    """Return the names in the table of one section."""
    body = COUNTERS.split(f"## {section}\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)`", body, re.MULTILINE))


def counted(source: str) -> set[str]:
    """Return the literals in `count("...")`, `Count("...")` and `warn("...", ...)`."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and node.args:
            callee = node.func
            name = callee.attr if isinstance(callee, ast.Attribute) else getattr(callee, "id", "")
            named = node.args[-1 if name == "drop" else 0]
            if name in ("count", "Count", "warn", "drop") and isinstance(named, ast.Constant):
                names.add(str(named.value))
    return names


def test_the_state_machines_page_is_what_the_tables_say() -> None:
    run(["docs/make/draw_state_machines.py", "--check"])


def test_every_machine_is_drawn() -> None:
    page = (ROOT / "docs/reference/state-machines.md").read_text(encoding="utf-8")
    machines = {
        value.name
        for module in pkgutil.walk_packages(ipoibu.proto.__path__, "ipoibu.proto.")
        for value in vars(importlib.import_module(module.name)).values()
        if isinstance(value, Table)
    }
    drawn = set(re.findall(r"^## (.+)$", page, re.MULTILINE))
    assert drawn == machines | {"Neighbour advertisement to input"}


def test_every_counter_of_the_engine_is_documented_and_no_other() -> None:
    sources = Path(ipoibu.proto.__path__[0]).rglob("*.py")
    names = set().union(*(counted(path.read_text(encoding="utf-8")) for path in sources))
    assert documented("Engine") == names


def test_every_reason_for_a_bad_frame_is_documented_and_no_other() -> None:
    """Only for the codecs that the engine and its parts load: the reasons of others never become counters."""
    program = (
        "import sys, ipoibu.proto.engine, ipoibu.proto.ethernet.host\n"
        "from ipoibu.proto.dhcp import client, client6, other_clients\n"
        "codecs = [m for name, m in sys.modules.items() if name.startswith('ipoibu.wire.')]\n"
        "print(*set().union(*(getattr(m, 'REASONS', ()) for m in codecs)))"
    )
    assert documented("Malformed input") == set(run(["-c", program]).split())


def test_every_counter_of_the_data_path_is_documented_and_no_other() -> None:
    header = (ROOT / "ext/pump/records/counters.h").read_text(encoding="utf-8")
    assert documented("Data path") == set(re.findall(r"^ +X\((\w+)\)", header, re.MULTILINE))


def test_every_counter_of_the_data_path_is_counted() -> None:
    header = (ROOT / "ext/pump/records/counters.h").read_text(encoding="utf-8")
    names = set(re.findall(r"^ +X\((\w+)\)", header, re.MULTILINE))
    paths = [it for it in (ROOT / "ext/pump").rglob("*.[ch]") if it.name != "counters.h"]
    sources = [path.read_text(encoding="utf-8") for path in paths]
    words = "".join(sources).replace("IPU_COUNTER_", " ")
    assert names <= set(re.findall(r"\w+", words))


def test_every_counter_of_the_built_in_hca_is_documented_and_no_other() -> None:
    names = (ROOT / "ext/soft/hca.c").read_text(encoding="utf-8")
    counters = set(re.findall(r'^ +\[SOFT_C_\w+\] = "(\w+)",', names, re.MULTILINE))
    assert len(counters) > 30
    assert documented("Built-in HCA") == counters


def test_every_counter_of_faults_is_listed_and_documented() -> None:
    """C alone once counted losses above the MTU."""
    header = (ROOT / "ext/fabric/faults.h").read_text(encoding="utf-8")
    struct = header.split("struct ipu_faults_counters {")[1].split("};")[0]
    counters = re.findall(r"_Atomic uint64_t (\w+);", struct)
    inner = MemoryPort(MemorySwitch(1), bytes(15) + b"\x01")
    assert list(FaultyFabric(inner).counters()) == counters
    assert documented("Faults") == {f"faults_{name}" for name in counters}
