# SPDX-License-Identifier: BSD-2-Clause
"""An endpoint that begins with what an earlier process has left."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable

from ipoibu import Endpoint, EndpointConfig, Gid, HwAddr, Qpn
from ipoibu._core import MemorySwitch
from ipoibu.endpoint.handover import HandedNeighbour, Handover
from ipoibu.fabric.memory import MemoryPort

PEER = HwAddr(Qpn(0x2B35BB), Gid.parse("fe80::2"))
OURS = ipaddress.ip_address("fd00::1")


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def opened(kept: Handover) -> Endpoint:
    port = MemoryPort(MemorySwitch(7), Gid.parse("fe80::1"))
    return Endpoint(EndpointConfig("h1", "memory"), port=port, kept=kept)


def test_it_knows_the_neighbours_at_once() -> None:
    neighbours = (
        HandedNeighbour(ipaddress.ip_address("10.0.0.2"), PEER),
        HandedNeighbour(ipaddress.ip_address("10.0.0.3"), PEER, is_permanent=True),
        HandedNeighbour(ipaddress.ip_address("224.0.0.1"), PEER, is_permanent=True),  # no host
    )
    with opened(Handover(neighbours=neighbours)) as endpoint:
        shown = {entry["ip"]: entry for entry in endpoint.neighbours()}
        assert {ip: entry["state"] for ip, entry in shown.items()} == {
            "10.0.0.2": "stale",
            "10.0.0.3": "permanent",
        }
        assert {entry["hwaddr"] for entry in shown.values()} == {str(PEER)}
        assert endpoint.wait_up(timeout=30)
        assert {entry["ip"] for entry in endpoint.neighbours()} == set(shown)


def test_a_kept_address_is_ours_without_probes_but_only_once() -> None:
    with opened(Handover(checked=[OURS])) as endpoint:
        assert endpoint.wait_up(timeout=30)
        endpoint.address_added(f"{OURS}/64")
        until(lambda: endpoint.show()["addresses"][0]["state"] in ("announcing", "preferred"))
        seen: list[str | None] = []
        end = endpoint.watch(lambda it: seen.append(it.after))
        endpoint.address_removed(f"{OURS}/64")
        endpoint.address_added(f"{OURS}/64")
        until(lambda: "tentative" in seen)
        end()
