# SPDX-License-Identifier: BSD-2-Clause
"""Opening a port by the device's name, and the errors for names that are wrong."""

from __future__ import annotations

import pytest

from ipoibu.base.addr import Gid
from ipoibu.base.device_name import DeviceKind, GidKind, SoftName, parse_device, parse_soft
from ipoibu.base.errors import NoSuchDevice, NotReady, UsageError
from ipoibu.doctor.machine import DEVICES
from ipoibu.fabric.device import OPENERS, open_port
from ipoibu.fabric.soft.port import SoftPort


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("soft:eth0", ("soft:eth0", 1)),
        ("rxe0", ("rxe0", 1)),
        ("mlx5_0/2", ("mlx5_0", 2)),
        ("soft:eth0/1", ("soft:eth0", 1)),
        ("soft:eth0@mthca0", ("soft:eth0@mthca0", 1)),
        ("soft:eth0,ipv4/1", ("soft:eth0,ipv4", 1)),
        ("soft:eth0,2001:db8::1", ("soft:eth0,2001:db8::1", 1)),
    ],
)
def test_a_device_has_a_name_and_perhaps_a_port(text: str, expected: tuple[str, int]) -> None:
    assert parse_device(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "soft:",
            "soft:@mthca0",
            "soft:eth0@",
            "/1",
            "rxe0/",
            "rxe0/x",
            "rxe0/-1",
            "soft:\udcff",
        ),
        *(
            "soft:eth0,",
            "soft:,ipv4",
            "soft:eth0,ipv5",
            "soft:eth0,ipv4@mthca0",
            "soft:eth0,224.0.0.1",
        ),
        *("soft:eth0,::", "soft:eth0,127.0.0.1", "soft:eth0,fe80::1%eth0"),
    ],
)
def test_what_is_no_device_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="is not a device"):
        parse_device(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("soft:eth0", SoftName("eth0")),
        ("soft:eth0,ipv4", SoftName("eth0", GidKind.IPV4)),
        ("soft:eth0,ipv6", SoftName("eth0", GidKind.IPV6)),
        ("soft:eth0,192.0.2.1", SoftName("eth0", GidKind.IPV4, Gid.parse("::ffff:192.0.2.1"))),
        ("soft:eth0,2001:db8::1", SoftName("eth0", GidKind.IPV6, Gid.parse("2001:db8::1"))),
        ("soft:eth0,fe80::1", SoftName("eth0", GidKind.LINK_LOCAL, Gid.parse("fe80::1"))),
        ("soft:eth0@mthca0", SoftName("eth0", umad="mthca0")),
    ],
)
def test_the_name_of_the_built_in_hca_may_choose_its_address(text: str, name: SoftName) -> None:
    assert parse_soft(text) == name


@pytest.mark.parametrize("gid", ["ipv4", "ipv6", "192.0.2.1"])
def test_a_net_device_without_such_an_address_says_so(gid: str) -> None:
    with pytest.raises(NotReady, match=r"soft:lo: the device (is down|has no (IPv4|IPv6|address))"):
        open_port(f"soft:lo,{gid}")


def test_each_kind_of_device_is_opened_and_checked() -> None:
    assert set(OPENERS) == set(DEVICES) == set(DeviceKind)


@pytest.mark.parametrize(
    ("device", "kind"), [("soft:eth0", DeviceKind.SOFT), ("mlx5_0", DeviceKind.RDMA)]
)
def test_the_prefix_of_a_name_says_the_kind_of_device(device: str, kind: DeviceKind) -> None:
    assert DeviceKind.of(device) is kind


def test_the_built_in_hca_has_one_port() -> None:
    with pytest.raises(NoSuchDevice, match="port 1 only, not 2"):
        open_port("soft:lo", 2)


@pytest.mark.parametrize("device", ["soft:@ibsim0", "soft:eth0@"])
def test_an_infiniband_personality_names_both_of_its_halves(device: str) -> None:
    with pytest.raises(UsageError, match="is not a device"):
        open_port(device)


@pytest.mark.parametrize("netdev", ["nosuchdev0", "a-name-that-is-far-too-long"])
def test_a_net_device_that_is_not_there_is_named(netdev: str) -> None:
    with pytest.raises(NoSuchDevice, match=f"soft:{netdev}: no such network device; `ip link`"):
        SoftPort(f"soft:{netdev}")
