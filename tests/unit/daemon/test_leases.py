# SPDX-License-Identifier: BSD-2-Clause
"""The leases of DHCP and DHCPv6 in the kernel and in the file for resolvers."""

from __future__ import annotations

import asyncio
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface
from pathlib import Path
from typing import Final

import pytest

from ipoibu.base.addr import IpInterface
from ipoibu.base.errors import LinkError
from ipoibu.daemon.interface import leases
from ipoibu.daemon.interface.leases import Leases, resolv_conf
from ipoibu.host.kernel_interface import KernelInterface, RouteSpec
from ipoibu.wire.dhcp6_lease import Lease6
from ipoibu.wire.dhcp_lease import Lease

OLD: Final = Lease(
    IPv4Interface("10.0.0.7/24"),
    IPv4Address("10.0.0.1"),
    600,
    300,
    525,
    dns=(IPv4Address("10.0.0.1"),),
    domain="ib.example",
)
NEW: Final = Lease6(
    IPv6Interface("fd00::7/128"),
    bytes((0, 3, 0, 1)),
    500,
    1000,
    250,
    400,
    (IPv6Address("fd00::1"),),
    ("ib.example", "six.example", "bad name"),
)


class Holder(KernelInterface):
    """Notes what the kernel's interface gets."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.refusal: LinkError | None = None

    def take_lease(
        self,
        address: IpInterface,
        routes: tuple[RouteSpec, ...] = (),
        lifetimes_s: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.log.append(f"take {address} {lifetimes_s[0]:.0f} {lifetimes_s[1]:.0f}")

    def drop_lease(self, version: int = 4) -> None:
        self.log.append(f"drop {version}")


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Leases:
    monkeypatch.setattr(leases, "namespace_dir", lambda: tmp_path)

    async def make() -> Leases:
        return Leases("ib0", lambda: 2044, lambda mtu_bytes: None)

    return asyncio.run(make())


def test_both_leases_are_in_one_file_until_they_are_gone(made: Leases, tmp_path: Path) -> None:
    holder, path = Holder(), tmp_path / "ib0.resolv.conf"
    made.begin(holder)
    made.changed6(NEW)
    assert made.had_one6.is_set()
    assert not made.had_one.is_set()
    made.note_lease(OLD)
    assert path.read_text() == (
        "# from the DHCP server 10.0.0.1\n# from the DHCPv6 server 00:03:00:01\n"
        "search ib.example six.example\nnameserver 10.0.0.1\nnameserver fd00::1\n"
    )
    made.note_lease(None)
    assert "10.0.0.1" not in path.read_text()
    made.changed6(None)
    assert not path.exists()
    assert holder.log == ["take fd00::7/128 500 1000", "take 10.0.0.7/24 0 0", "drop 4", "drop 6"]


def test_each_renewal_of_dhcpv6_refreshes_the_lifetimes(made: Leases) -> None:
    holder = Holder()
    made.begin(holder)
    made.changed6(NEW)
    made.changed6(NEW)
    assert holder.log == ["take fd00::7/128 500 1000"] * 2


def test_a_lease_of_an_earlier_process_goes_if_the_client_does_not_get_it(made: Leases) -> None:
    holder = Holder()
    made.begin(holder)
    made.note_lease(None)
    made.changed6(None)
    assert holder.log == ["drop 4", "drop 6"]


def test_leases_wait_for_the_interface_and_the_last_of_each_counts(
    made: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(leases, "monotonic", lambda: now)
    made.note_lease(None)
    made.note_lease(OLD)
    made.changed6(NEW)
    assert not made.had_one6.is_set()
    now += 100.0
    holder = Holder()
    made.begin(holder)
    assert holder.log == ["take 10.0.0.7/24 0 0", "take fd00::7/128 400 900"]
    made.begin(other := Holder())
    assert other.log == []
    made.changed6(None)
    assert other.log == ["drop 6"]


def test_a_lease_that_the_kernel_refuses_is_reported(
    made: Leases, caplog: pytest.LogCaptureFixture
) -> None:
    holder = Holder()
    holder.refusal = LinkError("no room")
    made.begin(holder)
    made.changed6(NEW)
    assert "the lease of DHCPv6 is not in the kernel: no room" in caplog.text


def test_without_name_servers_there_is_no_text() -> None:
    assert resolv_conf(None) == ""
    assert resolv_conf(None, NEW.aged(2000)).startswith("# from the DHCPv6 server 00:03:00:01\n")
