# SPDX-License-Identifier: BSD-2-Clause
"""Opening a port by the device's name, and the errors for names that are wrong."""

from __future__ import annotations

import pytest

from ipoibu.errors import NoSuchDevice, UsageError
from ipoibu.fabric.device import open_port
from ipoibu.fabric.device_name import parse_device
from ipoibu.fabric.soft.port import SoftPort


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("soft:eth0", ("soft:eth0", 1)),
        ("rxe0", ("rxe0", 1)),
        ("mlx5_0/2", ("mlx5_0", 2)),
        ("soft:eth0/1", ("soft:eth0", 1)),
        ("soft:eth0@mthca0", ("soft:eth0@mthca0", 1)),
    ],
)
def test_a_device_has_a_name_and_perhaps_a_port(text: str, expected: tuple[str, int]) -> None:
    assert parse_device(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "soft:", "soft:@mthca0", "soft:eth0@", "/1", "rxe0/", "rxe0/x", "rxe0/-1", "soft:\udcff"],
)
def test_what_is_no_device_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="is not a device"):
        parse_device(text)


def test_the_built_in_hca_has_one_port() -> None:
    with pytest.raises(NoSuchDevice, match="port 1 only, not 2"):
        open_port("soft:lo", 2)


@pytest.mark.parametrize("device", ["soft:@ibsim0", "soft:eth0@"])
def test_an_infiniband_personality_names_both_of_its_halves(device: str) -> None:
    with pytest.raises(UsageError, match="expected soft:NETDEV@UMAD"):
        open_port(device)


@pytest.mark.parametrize("netdev", ["nosuchdev0", "a-name-that-is-far-too-long"])
def test_a_net_device_that_is_not_there_is_named(netdev: str) -> None:
    with pytest.raises(NoSuchDevice, match=f"soft:{netdev}: no such network device; `ip link`"):
        SoftPort(netdev)
