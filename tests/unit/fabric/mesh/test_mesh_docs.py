# SPDX-License-Identifier: BSD-2-Clause
"""docs/counters.md names every counter of a mesh, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from ipoibu.wire import mesh, mesh_stream

ROOT = Path(__file__).resolve().parents[4]


def test_every_counter_of_the_core_is_explained() -> None:
    source = (ROOT / "ext/mesh/mesh.h").read_text("utf-8")
    page = (ROOT / "docs/counters.md").read_text("utf-8")
    table = page.split("## Mesh queue pairs\n")[1].split("\n## ")[0]
    counted = re.findall(r"^ +X\((\w+)\)", source, re.MULTILINE)
    assert len(counted) > 10
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == counted


def test_every_counter_of_the_connections_is_explained() -> None:
    page = (ROOT / "docs/counters.md").read_text("utf-8")
    section = page.split("## Meshes\n")[1].split("\n## ")[0]
    documented = set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE))
    code = "".join(
        (ROOT / "ipoibu" / it).read_text("utf-8")
        for it in (
            "proto/mesh.py",
            "fabric/mesh/connections.py",
            "fabric/unicast/rendezvous.py",
        )
    )
    counted = set(re.findall(r'"(mesh_\w+)"', code))
    assert documented == counted | mesh.REASONS | mesh_stream.REASONS


def test_every_counter_of_unicast_links_is_explained() -> None:
    source = (ROOT / "ext/unicast/unicast.h").read_text("utf-8")
    page = (ROOT / "docs/counters.md").read_text("utf-8")
    table = page.split("## Links without multicast\n")[1].split("\n## ")[0]
    counted = re.findall(r"^ +X\((\w+)\)", source, re.MULTILINE)
    assert len(counted) > 5
    documented = re.findall(r"^\| `unicast_(\w+)` \|", table, re.MULTILINE)
    assert documented == counted
