# SPDX-License-Identifier: BSD-2-Clause
"""docs/reference/counters.md names every counter of the verbs fabric, and no other."""

from __future__ import annotations

from tests.doubles.counter_docs import counted_in, explained_under


def test_every_counter_is_explained() -> None:
    counted = counted_in("verbs/verbs.h")
    assert len(counted) > 10
    assert explained_under("RDMA devices") == counted
