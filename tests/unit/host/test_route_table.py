# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable
from typing import Any

import pytest

from ipoibu.base.limits import ROUTE_CROWD
from ipoibu.host import route_table
from ipoibu.host.netsocket import NLM_F_APPEND, NLM_F_REPLACE
from ipoibu.host.route_message import RouteReader
from ipoibu.host.route_table import RouteTable
from tests.doubles.prefixes import network_of
from tests.unit.host.route_messages import INDEX, OTHER, message


class Bench:
    """A table, and the kernel that sends it messages."""

    def __init__(self) -> None:
        self.table = RouteTable()
        self.reader = RouteReader(INDEX)

    def fill(self, *messages: bytes) -> list[str]:
        found = (self.reader.read(data, 0) for data in messages)
        self.table.replace(each for each in found if each is not None)
        return self.changes()

    def add(self, data: bytes, flags: int = 0) -> list[str]:
        found = self.reader.read(data, 0)
        assert found is not None
        self.table.add(*found, flags)
        return self.changes()

    def remove(self, data: bytes) -> list[str]:
        found = self.reader.read(data, 0, removed=True)
        assert found is not None
        self.table.remove(*found)
        return self.changes()

    def changes(self) -> list[str]:
        texts = []
        for prefix, target in self.table.changes():
            network = str(network_of(prefix))
            if target is None:
                texts.append(f"-{network}")
            else:
                hops = " ".join(str(hop.via) for hop in target.hops)
                texts.append(f"+{network} {hops or target.kind}")
        return texts


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_what_is_listed_at_first_is_a_change_and_then_only_differences(bench: Bench) -> None:
    routes = [message("10.0.0.0/24"), message("0.0.0.0/0", "10.0.0.9")]
    assert sorted(bench.fill(*routes)) == ["+0.0.0.0/0 10.0.0.9", "+10.0.0.0/24 None"]
    assert bench.fill(*routes) == []
    assert bench.fill(routes[0]) == ["-0.0.0.0/0"]


def test_notices_change_one_route_at_a_time(bench: Bench) -> None:
    assert bench.add(message("10.5.0.0/16", "10.0.0.7")) == ["+10.5.0.0/16 10.0.0.7"]
    assert bench.add(message("10.5.0.0/16", "10.0.0.7")) == []
    assert bench.add(message("10.5.0.0/16", "10.0.0.8"), NLM_F_REPLACE) == ["+10.5.0.0/16 10.0.0.8"]
    assert bench.remove(message("10.5.0.0/16", "10.0.0.8")) == ["-10.5.0.0/16"]
    assert bench.remove(message("10.5.0.0/16", "10.0.0.8")) == []
    assert len(bench.table) == 0


def test_a_route_that_moves_to_another_interface_is_gone(bench: Bench) -> None:
    bench.add(message("10.5.0.0/16", "10.0.0.7"))
    elsewhere = message("10.5.0.0/16", "10.8.0.7", index=OTHER)
    assert bench.add(elsewhere) == []
    assert bench.add(elsewhere, NLM_F_REPLACE) == ["-10.5.0.0/16"]
    bench.add(message("fd05::/16", "fe80::7"))
    elsewhere = message("fd05::/16", "fe80::8", index=OTHER)
    assert bench.add(elsewhere, NLM_F_REPLACE) == ["-fd05::/16"]


def test_the_least_metric_of_the_main_table_counts(bench: Bench) -> None:
    routes = [
        message("10.5.0.0/16", "10.0.0.1", table=100, metric=1),  # no default rule leads there
        message("10.5.0.0/16", "10.0.0.2", metric=50),
        message("10.5.0.0/16", "10.0.0.3", metric=10),
    ]
    assert bench.fill(*routes) == ["+10.5.0.0/16 10.0.0.3"]
    assert bench.remove(routes[2]) == ["+10.5.0.0/16 10.0.0.2"]
    assert bench.remove(routes[1]) == ["-10.5.0.0/16"]


def test_of_equal_ipv4_routes_the_kernels_first_counts_not_the_least_text(bench: Bench) -> None:
    """`ip route prepend` goes before, `ip route append` behind."""
    assert bench.add(message("10.5.0.0/16", "10.0.0.5")) == ["+10.5.0.0/16 10.0.0.5"]
    assert bench.add(message("10.5.0.0/16", "10.0.0.3"), NLM_F_APPEND) == []
    assert bench.add(message("10.5.0.0/16", "10.0.0.9")) == ["+10.5.0.0/16 10.0.0.9"]
    assert bench.remove(message("10.5.0.0/16", "10.0.0.9")) == ["+10.5.0.0/16 10.0.0.5"]
    assert bench.remove(message("10.5.0.0/16", "10.0.0.5")) == ["+10.5.0.0/16 10.0.0.3"]


def test_of_default_routers_the_one_with_the_higher_preference_counts(bench: Bench) -> None:
    """RFC 4191 §3.2, whatever the gateways are as text."""
    low = message("::/0", "fe80::1", pref=3, proto=9, metric=1024)
    medium = message("::/0", "fe80::3", pref=0, proto=9, metric=1024)
    high = message("::/0", "fe80::2", pref=1, proto=9, metric=1024)
    assert bench.add(low) == ["+::/0 fe80::1"]
    assert bench.add(high) == ["+::/0 fe80::2"]
    assert bench.add(medium) == []
    assert bench.remove(high) == ["+::/0 fe80::3"]
    raised = message("::/0", "fe80::1", pref=1, proto=9, metric=1024)
    assert bench.add(raised) == ["+::/0 fe80::1"]


def test_ipv6_routes_of_one_metric_with_gateways_join_to_one_multipath_route(bench: Bench) -> None:
    first = message("fd05::/16", "fe80::1", metric=1024)
    both = [(INDEX, "fe80::1", 1), (INDEX, "fe80::2", 1)]
    assert bench.add(first) == ["+fd05::/16 fe80::1"]
    # the kernel names all hops of the route when one joins, and only one hop when it goes
    joined = message("fd05::/16", metric=1024, hops=both)
    assert bench.add(joined, NLM_F_APPEND) == ["+fd05::/16 fe80::1 fe80::2"]
    assert bench.remove(first) == ["+fd05::/16 fe80::2"]
    assert bench.add(first, NLM_F_REPLACE) == ["+fd05::/16 fe80::1"]


def test_the_memory_of_equal_contents_is_bounded(bench: Bench) -> None:
    bench.table = RouteTable(shared_max=4)
    for number in range(20):
        bench.add(message(f"10.{number}.0.0/16", f"10.0.0.{number}"))
    assert len(bench.table) == 20
    assert len(bench.table._shared) <= 5
    assert len(bench.table._targets) <= 5


def test_whether_a_route_prefers_a_source_address(bench: Bench) -> None:
    bench.add(message("10.5.0.0/16", "10.0.0.7", source="10.0.0.1"))
    assert bench.table.prefers({bytes((10, 0, 0, 1))})
    assert not bench.table.prefers({bytes((10, 0, 0, 2))})


# Prefixes with many routes


def router(number: int, **values: Any) -> bytes:
    """The default route that the kernel makes for an advertising router."""
    gateway = f"fe80::{number // 60_000:x}:{number % 60_000:x}"
    return message("::/0", gateway, proto=9, metric=1024, **values)


def calls_of(work: Callable[[], object]) -> int:
    """Return how many functions of Python and C the work calls."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()  # Hypothesis has the collector call its own functions
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def test_a_notice_costs_the_same_however_many_next_hops_the_prefix_has(bench: Bench) -> None:
    costs = []
    for first, size in ((0, 100), (100, 4000)):
        for number in range(first, size):
            bench.add(router(number))
        new = bench.reader.read(router(10_000), 0)
        gone = bench.reader.read(router(10_000), 0, removed=True)
        assert new is not None
        assert gone is not None

        def notices(new: Any = new, gone: Any = gone) -> None:
            bench.table.add(new[0], new[1], NLM_F_APPEND)
            bench.changes()
            bench.table.remove(*gone)
            bench.changes()

        costs.append(calls_of(notices))
    assert costs[0] == costs[1]


def test_the_routes_of_a_prefix_are_kept_once_not_with_each_of_its_former_states(
    bench: Bench,
) -> None:
    for number in range(2000):
        bench.add(router(number))
    assert sum(map(len, bench.table._shared)) <= ROUTE_CROWD * ROUTE_CROWD
    assert sum(map(len, bench.table._targets)) <= ROUTE_CROWD * ROUTE_CROWD
    for number in range(2000):
        bench.remove(router(number))
    assert len(bench.table) == 0


@pytest.mark.parametrize("seed", range(20))
def test_many_routes_of_a_prefix_are_what_few_ones_are(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The same notices, with a table of its own for each prefix and with none."""
    rng = random.Random(seed)
    benches = []
    for crowd in (0, 1 << 30):
        monkeypatch.setattr(route_table, "ROUTE_CROWD", crowd)
        benches.append(Bench())
    for _ in range(300):
        number = rng.randrange(12)
        data = rng.choice(
            [
                router(number, pref=(0, 1, 3)[number % 3]),
                message("fd05::/16", f"fe80::{number}", metric=1024 + number % 2),
                message("10.5.0.0/16", f"10.0.0.{number}", metric=number % 3),
                message("10.5.0.0/16", f"10.0.0.{number}", index=rng.choice([INDEX, OTHER])),
            ]
        )
        flags = rng.choice([0, NLM_F_APPEND, NLM_F_APPEND, NLM_F_REPLACE])
        if data[16:20] == router(number)[16:20]:
            flags = 0  # as the kernel's notices of advertising routers
        is_new = rng.random() < 0.6
        heard = []
        for crowd, bench in zip((0, 1 << 30), benches, strict=True):
            monkeypatch.setattr(route_table, "ROUTE_CROWD", crowd)
            heard.append(bench.add(data, flags) if is_new else bench.remove(data))
        assert heard[0] == heard[1]


def test_routes_beyond_the_cap_of_a_prefix_wait_for_a_listing(bench: Bench) -> None:
    bench.table = RouteTable(prefix_max=32)
    for number in range(64):
        bench.add(router(number))
    assert bench.table.left_out == 32
    for number in range(32):
        assert not bench.table.needs_listing or number > 32 // 8 - 1
        bench.remove(router(number))
    assert bench.table.needs_listing
    bench.fill(*(router(number) for number in range(32, 64)))
    assert not bench.table.needs_listing
    assert bench.table.left_out == 32


def test_routes_beyond_the_cap_of_the_table_wait_for_a_listing(bench: Bench) -> None:
    bench.table = RouteTable(entries_max=32)
    routes = [message(f"10.{number}.0.0/16", "10.0.0.1") for number in range(40)]
    assert len(bench.fill(*routes)) == 32
    assert bench.add(message("10.50.0.0/16", "10.0.0.1")) == []
    assert bench.add(message("10.0.0.0/16", "10.0.0.2"), NLM_F_REPLACE) == ["+10.0.0.0/16 10.0.0.2"]
    assert bench.table.left_out == 9
    for number in range(4):
        assert not bench.table.needs_listing
        bench.remove(message(f"10.{number}.0.0/16", "10.0.0.2" if number == 0 else "10.0.0.1"))
    assert bench.table.needs_listing
