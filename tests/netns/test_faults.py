# SPDX-License-Identifier: BSD-2-Clause
"""Loss, duplication, reordering and corruption, seeded: every resolution succeeds in the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.check import multicast, ping, tcp
from ipoibu.lab.host import Host

pytestmark = pytest.mark.netns

Sh = Callable[[Host, str], str]
Until = Callable[..., Any]


def _reaches(host: Host, target: str) -> bool:
    return host.run(["ping", "-c1", "-W1", target]).returncode == 0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_hosts_find_each_other_over_a_fabric_with_faults(seed: int) -> None:
    faults = f"loss=0.15,dup=0.1,reorder=0.1,corrupt=0.05,delay=0.1,seed={seed}"
    with NamespaceLab(options=["--faults", faults]) as lab:
        first, second = lab.hosts
        for family in ("ipv4", "ipv6"):
            assert ping(first, second, family).ok
            assert ping(second, first, family).ok
            assert all(outcome.ok for outcome in multicast(first, [second], family))
        counters = first.ask("stats")
        assert sum(counters[f"fabric.faults_{fate}"] for fate in ("lost", "duplicated")) > 0
        states = {entry["ip"]: entry["state"] for entry in first.ask("neigh")}
        assert states["10.77.0.2"] in ("reachable", "stale", "delay", "probe")


def test_what_is_corrupted_never_reaches_an_application() -> None:
    with NamespaceLab(options=["--faults", "corrupt=0.02,loss=0.01,reorder=0.05,seed=5"]) as lab:
        first, second = lab.hosts
        outcome = tcp(first, second, "ipv4", 1 << 20)
        assert outcome.ok, outcome.detail


@pytest.mark.parametrize("seed", [11, 12])
def test_hosts_find_each_other_over_a_wire_with_faults(
    bad_wire: Any, until: Until, seed: int
) -> None:
    with NamespaceLab(hosts=3, start=False) as lab:
        assert lab.bridge is not None
        first, second, _ = lab.hosts
        fates = {"loss": 0.1, "dup": 0.1, "reorder": 0.1, "corrupt": 0.05}
        with bad_wire(lab.bridge, ("p1", "p2"), seed, **fates) as wire:
            for host in (first, second):
                host.start(wait=False)
            for host in (first, second):
                host.wait_ready()
            for family in ("ipv4", "ipv6"):
                assert ping(first, second, family).ok
                assert ping(second, first, family).ok
                assert all(outcome.ok for outcome in multicast(second, [first], family))

            def all_fates() -> bool:
                _reaches(first, "10.77.0.2")
                return all(wire.counts.values())

            def spoilt() -> int:
                return sum(it.ask("stats").get("fabric.drop_icrc", 0) for it in (first, second))

            until(all_fates)
            # The ICRC found every packet that the wire spoiled, and the HCA delivered none of them.
            until(spoilt)


@pytest.mark.serial
def test_a_restarted_host_with_a_new_queue_pair_is_reached_within_3_seconds(
    bare: NamespaceLab, until: Until
) -> None:
    """A busy machine may have ten tries."""
    bare.start()
    first, second = bare.hosts

    def comes_back(restart: Callable[[], object]) -> float:
        for family in ("ipv4", "ipv6"):
            assert ping(first, second, family).ok
        before = second.ask("show")["hwaddr"]
        restart()
        assert not _reaches(first, "10.77.0.2")  # and the neighbour entry has failed meanwhile
        second.start()
        began = time.monotonic()
        assert second.ask("show")["hwaddr"] != before
        for target in ("10.77.0.2", "fd77::2"):
            until(lambda to=target: _reaches(first, to))
        took_s = time.monotonic() - began
        (learnt,) = [n["hwaddr"] for n in first.ask("neigh") if n["ip"] == "10.77.0.2"]
        assert learnt == second.ask("show")["hwaddr"]
        return took_s

    for restart in (second.stop, second.kill):
        assert any(comes_back(restart) < 3.0 for _ in range(10))


def test_a_host_whose_announcements_are_lost_is_found_by_probing(
    bare: NamespaceLab, sh: Sh, until: Until
) -> None:
    bare.start()
    first, second = bare.hosts
    assert ping(first, second, "ipv4").ok
    second.kill()
    # The test cuts the wire until the gratuitous ARPs are over, so only the peer's own probes can help.
    sh(first, "ip link set eth0 down")
    second.start()
    sh(second, "sleep 4")
    sh(first, "ip link set eth0 up; ip -6 address add fe80::ff:fe00:1/64 dev eth0 nodad || true")
    until(lambda: _reaches(first, "10.77.0.2"))
