# SPDX-License-Identifier: BSD-2-Clause
"""The checkup of the devices of an interface with several."""

from __future__ import annotations

import pytest

from ipoibu.doctor.rails import findings


def _found(
    mode: str, *several: tuple[str, str, int | None], ports: tuple[int, ...] = (1, 1)
) -> list[tuple[str, str]]:
    shown = {
        "rail_mode": mode,
        "rails": [
            {"device": device, "port": port, "state": state, "peers": peers}
            for (device, state, peers), port in zip(several, ports, strict=True)
        ],
    }
    return [(it.status, it.detail) for it in findings("ib0", shown)]


def test_rails_that_carry_traffic_are_fine() -> None:
    found = _found("active-backup", ("soft:eth0", "active", 0), ("soft:eth1", "backup", 0))
    assert found == [("ok", "ib0: soft:eth0 is active"), ("ok", "ib0: soft:eth1 is backup")]
    found = _found("balance-xor", ("soft:eth0", "active", 3), ("soft:eth1", "sharing", 3))
    assert [status for status, _ in found] == ["ok", "ok"]
    assert found[1][1] == "ib0: soft:eth1 is sharing, and carries flows to 3 peers"


def test_two_ports_of_one_device_are_told_apart() -> None:
    found = _found("active-backup", ("mlx4_0", "active", 0), ("mlx4_0", "down", 0), ports=(1, 2))
    assert found == [("ok", "ib0: mlx4_0/1 is active"), ("warn", "ib0: mlx4_0/2 is down")]


@pytest.mark.parametrize("state", ["down", "absent", "suspect", "joining"])
def test_a_rail_that_cannot_take_over_is_a_warning(state: str) -> None:
    found = _found("active-backup", ("soft:eth0", "active", None), ("soft:eth1", state, None))
    assert [status for status, _ in found] == ["ok", "warn"]


def test_a_rail_that_reaches_fewer_peers_is_a_warning() -> None:
    found = _found("balance-xor", ("soft:eth0", "active", 3), ("soft:eth1", "sharing", 1))
    assert found[1] == (
        "warn",
        "ib0: soft:eth1 reaches 1 of the 3 peers that another device reaches",
    )


def test_spreading_without_peers_is_worth_a_word() -> None:
    found = _found("balance-xor", ("soft:eth0", "active", 0), ("soft:eth1", "sharing", 0))
    assert found[-1] == (
        "info",
        "ib0: no other host has several devices and --rail-mode balance-xor",
    )


def test_an_interface_with_one_device_is_not_mentioned() -> None:
    assert list(findings("ib0", {"rails": None, "rail_mode": "active-backup"})) == []
