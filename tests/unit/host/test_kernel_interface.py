# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import ipaddress
import logging
from dataclasses import replace

import pytest

from ipoibu.base.addr import link_local
from ipoibu.base.errors import LinkError, NoSuchDevice
from ipoibu.base.limits import ADDRESSES_MAX
from ipoibu.host.kernel_interface import (
    InterfaceSpec,
    KernelInterface,
    Leased,
    RouteSpec,
    disable_ipv6,
)
from ipoibu.host.netlink import IFA_F_STABLE_PRIVACY, Link, Netlink

IFA_F_PERMANENT = 0x80  # linux/if_addr.h: the kernel's own has it too
GUID = bytes.fromhex("00155dfffd33ff0b")


def test_the_link_local_address_is_the_port_guid_with_its_universal_bit_set() -> None:
    """I1, I2: RFC 4391 §8; an interface of Linux ib_ipoib shows the same pair."""
    assert link_local(GUID) == ipaddress.ip_interface("fe80::215:5dff:fd33:ff0b/64")


def test_a_universal_bit_that_is_set_already_stays_set() -> None:
    guid = bytes.fromhex("02155dfffd33ff0b")
    assert link_local(guid) == ipaddress.ip_interface("fe80::215:5dff:fd33:ff0b/64")


def test_a_guid_has_eight_bytes() -> None:
    with pytest.raises(ValueError, match="8 bytes"):
        link_local(GUID[:7])


def _spec(mtu_bytes: int, *, address: str | None = None, route: str | None = None) -> InterfaceSpec:
    return InterfaceSpec(
        name="ib0",
        mtu_bytes=mtu_bytes,
        guid=GUID,
        addresses=[ipaddress.ip_interface(address)] if address else [],
        routes=[RouteSpec(ipaddress.ip_network(route))] if route else [],
    )


def test_a_link_of_1280_bytes_has_ipv6_and_one_of_1279_has_not() -> None:
    assert _spec(1280).ipv6
    assert not _spec(1279).ipv6


@pytest.mark.parametrize(("address", "route"), [("fd00::1/64", None), (None, "fd00::/48")])
def test_ipv6_on_a_link_that_cannot_carry_it_is_refused_with_both_numbers(
    address: str | None, route: str | None
) -> None:
    with pytest.raises(LinkError, match=r"1280.*1020.*fd00::"):
        _spec(1020, address=address, route=route).check()


def test_ipv4_on_a_small_link_is_fine() -> None:
    _spec(1020, address="10.0.0.1/24", route="10.1.0.0/16").check()


def test_an_interface_without_ipv6_state_needs_no_switching_off() -> None:
    disable_ipv6("ib-not-there")  # raises nothing


def test_an_interface_that_is_gone_is_no_such_device() -> None:
    with Netlink() as netlink, pytest.raises(NoSuchDevice, match="ib0"):
        KernelInterface(_spec(2044), netlink)


class Recorder(Netlink):
    """Records what is set on an interface of the given MTU, and sets nothing."""

    def __init__(self, addresses: list[str]) -> None:
        super().__init__()
        self.log: list[str] = []
        self.held = {ipaddress.ip_interface(address) for address in addresses}
        self.invented: dict[str, int] = {}
        self.collateral: set[ipaddress.IPv4Interface | ipaddress.IPv6Interface] = set()
        self.mode: int | None = 0
        self.is_up = False
        self.frame_bytes: int | None = 65536

    def link(self, name: str | int) -> Link | None:
        mode = self.mode
        return Link(
            7, "ib0", 1500, self.is_up, None, addr_gen_mode=mode, frame_bytes=self.frame_bytes
        )

    def set_link(self, index: int, **changes: object) -> None:
        self.log += [f"{key}={value}" for key, value in changes.items()]

    def addresses(self, index: int) -> set[ipaddress.IPv4Interface | ipaddress.IPv6Interface]:
        return set(self.held)

    def flagged_addresses(
        self, index: int
    ) -> dict[ipaddress.IPv4Interface | ipaddress.IPv6Interface, int]:
        invented = {ipaddress.ip_interface(f"{ip}/64"): bits for ip, bits in self.invented.items()}
        return dict.fromkeys(self.held, 0) | invented

    def add_address(
        self,
        index: int,
        address: object,
        *,
        nodad: bool = False,
        lifetimes_s: tuple[float, float] | None = None,
    ) -> None:
        life = f" {lifetimes_s[0]:.0f} {lifetimes_s[1]:.0f}" if lifetimes_s is not None else ""
        self.log.append(f"add {address}{life}")

    def remove_address(self, index: int, address: object) -> None:
        self.log.append(f"remove {address}")
        self.held -= {address, *self.collateral}

    def add_route(self, index: int, network: object, via: object) -> None:
        self.log.append(f"route {network} via {via}")


def test_the_mtu_comes_before_up_and_addresses_after_it() -> None:
    with Recorder([]) as netlink:
        spec = _spec(2044, address="10.0.0.1/24", route="10.1.0.0/16")
        KernelInterface(spec, netlink).configure()
        assert netlink.log == [
            "mtu_bytes=2044",
            "txqueuelen=1000",
            "frame_bytes=(65536, 65536)",
            "kernel_link_local=False",
            "up=True",
            "add fe80::215:5dff:fd33:ff0b/64",
            "add 10.0.0.1/24",
            "route 10.1.0.0/16 via None",
        ]


def test_frames_of_tcp_become_as_long_as_a_train_and_follow_the_mtu() -> None:
    """A full frame at MTU 2044 is 32 packets, and a train carries 32 of 2016 bytes."""
    with Recorder([]) as netlink:
        interface = KernelInterface(replace(_spec(2044), train_bytes=65507), netlink)
        interface.configure()
        assert "frame_bytes=(65004, 64344)" in netlink.log
        netlink.log.clear()
        interface.follow_mtu(4092, Link(7, "ib0", 2044, True, None))
        assert netlink.log == ["frame_bytes=(65536, 65536)", "mtu_bytes=4092"]
        netlink.log.clear()
        interface.follow_mtu(4092, Link(7, "ib0", 4092, True, None))
        assert netlink.log == ["mtu_bytes=4092"]


def test_without_super_frames_the_kernel_keeps_its_limit() -> None:
    spec = replace(_spec(2044), train_bytes=65507, takes_superframes=False)
    assert spec.frame_bytes == (65536, 65536)


@pytest.mark.parametrize("refuses", [False, True])
def test_a_kernel_that_does_not_limit_its_frames_is_worth_a_debug_line(
    refuses: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    with Recorder([]) as netlink:
        if refuses:
            set_link = netlink.set_link

            def refuse(index: int, **changes: object) -> None:
                if "frame_bytes" in changes:
                    raise LinkError("setting interface 7: Invalid argument")
                set_link(index, **changes)

            monkeypatch.setattr(netlink, "set_link", refuse)
        else:
            netlink.frame_bytes = None
        KernelInterface(_spec(2044), netlink).configure()
        assert "up=True" in netlink.log
    reason = "setting interface 7" if refuses else "None bytes, not 65536"
    assert [reason in record.message for record in caplog.records] == [True]


def test_a_link_too_small_for_ipv6_gets_no_link_local_address() -> None:
    with Recorder([]) as netlink:
        KernelInterface(_spec(1020, address="10.0.0.1/24"), netlink).configure()
        assert netlink.log == [
            "mtu_bytes=1020",
            "txqueuelen=1000",
            "frame_bytes=(65536, 65536)",
            "up=True",
            "add 10.0.0.1/24",
        ]


def test_an_mtu_above_the_links_is_set_back_and_a_smaller_one_is_left() -> None:
    with Recorder([]) as netlink:
        interface = KernelInterface(_spec(2044), netlink)
        interface.hold_mtu(Link(7, "ib0", 9000, True, None))
        assert netlink.log == ["mtu_bytes=2044"]
        interface.hold_mtu(Link(7, "ib0", 1500, True, None))
        assert netlink.log == ["mtu_bytes=2044"]


@pytest.mark.parametrize(
    ("held", "link", "log"),
    [(2044, 4092, ["mtu_bytes=4092"]), (1500, 4092, []), (1500, 1020, ["mtu_bytes=1020"])],
)
def test_another_mtu_of_the_link_is_taken_over_but_not_against_someones_smaller_one(
    held: int, link: int, log: list[str]
) -> None:
    with Recorder([]) as netlink:
        interface = KernelInterface(_spec(2044), netlink)
        interface.follow_mtu(link, Link(7, "ib0", held, True, None))
        assert netlink.log == log
        interface.hold_mtu(Link(7, "ib0", 9000, True, None))
        assert netlink.log[len(log) :] == [f"mtu_bytes={link}"]


@pytest.mark.parametrize(
    ("takes_superframes", "mtu_bytes", "packets"),
    [(True, 2044, 1000), (True, 65520, 1000), (False, 2044, 4000), (False, 65520, 1000)],
)
def test_the_ring_holds_more_packets_where_all_are_short(
    takes_superframes: bool, mtu_bytes: int, packets: int
) -> None:
    spec = InterfaceSpec("ib0", mtu_bytes, GUID, takes_superframes=takes_superframes)
    assert spec.ring_packets == packets


def test_another_mode_changes_the_ring_with_the_mtu() -> None:
    with Recorder([]) as netlink:
        spec = InterfaceSpec("ib0", 2044, GUID, takes_superframes=False)
        interface = KernelInterface(spec, netlink)
        interface.follow_mtu(65520, Link(7, "ib0", 2044, True, None))
        assert netlink.log == ["txqueuelen=1000", "mtu_bytes=65520"]


def test_a_duplicate_is_taken_off_and_not_set_again_when_the_interface_comes_back() -> None:
    with Recorder(["10.0.0.1/24", "fd00::1/64"]) as netlink:
        spec = InterfaceSpec("ib0", 2044, GUID, [ipaddress.ip_interface("fd00::1/64")])
        interface = KernelInterface(spec, netlink)
        interface.drop(ipaddress.ip_address("fd00::1"))
        assert netlink.log == ["remove fd00::1/64"]
        netlink.log.clear()
        netlink.held.clear()
        interface.restore()
        assert netlink.log == ["kernel_link_local=False", "add fe80::215:5dff:fd33:ff0b/64"]


def test_what_the_kernel_removes_with_a_duplicate_comes_back() -> None:
    """Without promote_secondaries the secondaries of a subnet go with its first address."""
    with Recorder(["10.0.0.1/24", "10.0.0.5/24", "10.0.0.6/24"]) as netlink:
        interface = KernelInterface(_spec(2044, address="10.0.0.1/24"), netlink)
        netlink.collateral = {ipaddress.ip_interface("10.0.0.6/24")}
        assert interface.drop(ipaddress.ip_address("10.0.0.5")) is False
        netlink.collateral = {ipaddress.ip_interface("10.0.0.5/24")}
        netlink.held |= netlink.collateral | {ipaddress.ip_interface("10.0.0.6/24")}
        assert interface.drop(ipaddress.ip_address("10.0.0.1")) is True
        assert netlink.log == ["remove 10.0.0.5/24", "add 10.0.0.6/24", "remove 10.0.0.1/24"]


def test_the_memory_of_duplicates_is_bounded() -> None:
    """A host of the link can advertise any number of prefixes, and then claim each address."""
    with Recorder([]) as netlink:
        interface = KernelInterface(_spec(2044), netlink)
        for number in range(2 * ADDRESSES_MAX):
            interface.drop(ipaddress.ip_address((0xFD << 120) + number))
            assert len(interface._unwanted) <= ADDRESSES_MAX


def test_a_duplicate_of_the_spec_is_set_again_by_a_retry() -> None:
    with Recorder(["fe80::215:5dff:fd33:ff0b/64"]) as netlink:
        interface = KernelInterface(_spec(2044), netlink)
        link_local = ipaddress.ip_address("fe80::215:5dff:fd33:ff0b")
        assert interface.drop(link_local) is True
        interface.retry(link_local)
        assert netlink.log == [f"remove {link_local}/64", f"add {link_local}/64"]


def test_a_link_local_address_that_the_kernel_invented_goes_and_ours_comes() -> None:
    with Recorder(["10.0.0.1/24", "fe80::7/64"]) as netlink:
        netlink.invented = {"fe80::5054:1234:9:1": IFA_F_STABLE_PRIVACY | IFA_F_PERMANENT}
        KernelInterface(_spec(2044), netlink).restore()
        assert netlink.log == [
            "kernel_link_local=False",
            "remove fe80::5054:1234:9:1/64",
            "add fe80::215:5dff:fd33:ff0b/64",
        ]


def test_an_address_of_dhcpv6_has_lifetimes_and_each_renewal_refreshes_them() -> None:
    with Recorder([]) as netlink:
        interface = KernelInterface(_spec(2044), netlink)
        address = ipaddress.ip_interface("fd00::7/128")
        interface.take_lease(address, lifetimes_s=(500, 1000))
        interface.take_lease(address, lifetimes_s=(600, 1200))
        interface.take_lease(ipaddress.ip_interface("fd00::8/128"), lifetimes_s=(600, 1200))
        interface.take_lease(ipaddress.ip_interface("10.0.0.7/24"))
        interface.take_lease(ipaddress.ip_interface("10.0.0.7/24"))
        interface.drop_lease(6)
        interface.drop_lease(6)
        interface.drop_lease()
        assert netlink.log == [
            "add fd00::7/128 500 1000",
            "add fd00::7/128 600 1200",
            "add fd00::8/128 600 1200",
            "remove fd00::7/128",
            "add 10.0.0.7/24",
            "remove fd00::8/128",
            "remove 10.0.0.7/24",
        ]


def test_an_address_of_the_configuration_that_dhcpv6_grants_too_stays_for_ever() -> None:
    with Recorder([]) as netlink:
        interface = KernelInterface(_spec(2044, address="fd00::7/128"), netlink)
        interface.take_lease(ipaddress.ip_interface("fd00::7/128"), lifetimes_s=(500, 1000))
        interface.drop_lease(6)
        assert netlink.log == ["add fd00::7/128"]


def test_a_lease_that_the_kernel_dropped_while_it_was_down_comes_back_until_its_end() -> None:
    with Recorder([]) as netlink:
        interface = KernelInterface(_spec(2044), netlink)
        interface.take_lease(ipaddress.ip_interface("fd00::7/128"), lifetimes_s=(500, 1000))
        netlink.log.clear()
        interface.restore()
        assert "add fd00::7/128 500 1000" in netlink.log
        interface.take_lease(ipaddress.ip_interface("fd00::7/128"), lifetimes_s=(0, 0))
        netlink.log.clear()
        interface.restore()
        assert not any("fd00::7" in line for line in netlink.log)


def test_a_lease_of_an_earlier_process_stays_until_its_client_says_otherwise() -> None:
    old = Leased(ipaddress.ip_interface("10.0.0.7/24"))
    new = Leased(ipaddress.ip_interface("fd00::7/128"))
    with Recorder([]) as netlink:
        interface = KernelInterface(_spec(2044), netlink)
        interface.adopt_leases([old, new], [6])
        assert netlink.log == ["remove 10.0.0.7/24"]
        assert [each.address for each in interface.leased()] == [new.address]
        interface.take_lease(ipaddress.ip_interface("fd00::8/128"), lifetimes_s=(500, 1000))
        assert netlink.log[1:] == ["add fd00::8/128 500 1000", "remove fd00::7/128"]
        interface.adopt_leases([new], [6])
        interface.drop_lease(6)
        assert netlink.log[3:] == ["remove fd00::7/128"]


@pytest.mark.parametrize(
    ("mode", "is_up", "is_kept"),
    [
        (0, False, False),
        (1, True, False),
        (2, False, True),
        (2, True, True),
        (3, False, True),
        (3, True, False),
        (None, False, False),
    ],
)
def test_an_addr_gen_mode_of_the_administrator_stays(
    mode: int | None, is_up: bool, is_kept: bool
) -> None:
    """I3: the kernel itself sets mode 3 when a TUN comes up: only before is it a choice."""
    with Recorder(["fe80::215:5dff:fd33:ff0b/64"]) as netlink:
        netlink.mode, netlink.is_up = mode, is_up
        KernelInterface(_spec(2044), netlink).restore()
        assert ("kernel_link_local=False" in netlink.log) != is_kept


def test_an_addr_gen_mode_that_is_chosen_later_stays_while_its_ipv6_does() -> None:
    with Recorder(["fe80::215:5dff:fd33:ff0b/64"]) as netlink:
        netlink.invented = {"fe80::5054:1234:9:1": IFA_F_STABLE_PRIVACY | IFA_F_PERMANENT}
        interface = KernelInterface(_spec(2044), netlink)
        netlink.mode = 2
        link = netlink.link("ib0")
        assert link is not None
        interface.note_mode(link)
        interface.restore()
        assert netlink.log == ["add fe80::215:5dff:fd33:ff0b/64"]
        netlink.mode = 3  # the kernel made IPv6 anew: the secret is gone
        interface.restore()
        assert netlink.log[1:3] == ["kernel_link_local=False", "remove fe80::5054:1234:9:1/64"]
