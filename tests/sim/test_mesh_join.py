# SPDX-License-Identifier: BSD-2-Clause
"""How hosts of a mesh find each other, and what that costs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.doubles.mesh_world import MeshWorld

COUNT = 9


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 99), min_size=COUNT - 1, max_size=COUNT - 1), st.booleans())
def test_any_tree_of_seeds_becomes_a_full_mesh(drawn: list[int], at_once: bool) -> None:
    """Host n knows one of the hosts before it; they start together, or one after the other."""
    world = MeshWorld(COUNT)
    for number, pick in enumerate(drawn, start=2):
        world.seed(number, 1 + pick % (number - 1))
        if not at_once:
            world.run(0.05)
    assert world.run(300)


def test_islands_that_learn_of_each_other_become_one() -> None:
    world = MeshWorld(12)
    for number in range(2, 7):
        world.seed(number, 1)
        world.seed(number + 6, 7)
    world.run(5)
    assert {world.peers(number) for number in world.hosts} == {5}
    world.seed(3, 1, 9)
    assert world.run(300)


def test_a_host_that_joins_costs_each_host_a_few_messages() -> None:
    for count in (16, 48):
        world = MeshWorld(count)
        for number in range(2, count):
            world.seed(number, 1)
        world.run(5)
        before = world.messages
        world.seed(count, 1)
        assert world.run(300)
        assert world.messages - before <= 14 * count
