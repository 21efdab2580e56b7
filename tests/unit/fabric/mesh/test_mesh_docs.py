# SPDX-License-Identifier: BSD-2-Clause
"""docs/reference/counters.md names every counter of meshes and of links without multicast, and no other."""

from __future__ import annotations

import re

from ipoibu.fabric.mesh.mesh_worker import COUNTERS
from ipoibu.wire import mesh, mesh_stream
from tests.doubles.counter_docs import ROOT, counted_in, explained_under


def test_every_counter_of_the_core_is_explained() -> None:
    counted = counted_in("mesh/mesh.h")
    assert len(counted) > 10
    assert explained_under("Mesh queue pairs") == counted


def test_every_counter_of_the_connections_is_explained() -> None:
    documented = set(explained_under("Meshes"))
    code = "".join(
        (ROOT / "ipoibu" / it).read_text("utf-8")
        for it in (
            "proto/mesh/mesh.py",
            "fabric/mesh/connections.py",
            "fabric/unicast/reception.py",
            "fabric/unicast/rendezvous.py",
        )
    )
    counted = set(re.findall(r'"(mesh_\w+)"', code))
    assert documented == counted | mesh.REASONS | mesh_stream.REASONS == set(COUNTERS)


def test_every_counter_of_unicast_links_is_explained() -> None:
    counted = counted_in("unicast/unicast.h")
    assert len(counted) > 5
    assert explained_under("Links without multicast") == [f"unicast_{name}" for name in counted]
