# SPDX-License-Identifier: BSD-2-Clause
"""IPv6 addresses that the kernel makes for the TUN from a router's prefix: RFC 7217, RFC 8981, RFC 4429."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from ipaddress import IPv6Address, IPv6Network
from typing import Any

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from tests.netns.conftest import Until

pytestmark = pytest.mark.netns

Sh = Callable[[Host, str], str]
PREFIX = IPv6Network("fd66::/64")
ROUTER = "fd66::1"
SECRET = "2001:db8::5eed"
AUTONOMOUS_ON_LINK = 0xC0


def _advertise_prefix(router: Host) -> bool:
    """Send a router advertisement with PREFIX from the host's ib0 (RFC 4861 §4.2, §4.6.2); return False, as
    its effect comes later."""
    option = struct.pack(
        ">BBBBIII16s",
        *(3, 4, PREFIX.prefixlen, AUTONOMOUS_ON_LINK, 7200, 3600, 0),
        PREFIX.network_address.packed,
    )
    advertisement = struct.pack(">BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0) + option
    index = router.interface_index()
    with router.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as raw:
        raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
        raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        raw.sendto(advertisement, ("ff02::1", 0, 0, index))
    return False


def _made(host: Host) -> list[dict[str, Any]]:
    """The addresses of PREFIX that the kernel has."""
    shown = host.run(["ip", "-6", "-j", "address", "show", "dev", "ib0"]).stdout
    entries = [it for link in json.loads(shown) for it in link.get("addr_info", [])]
    return [it for it in entries if IPv6Address(it["local"]) in PREFIX]


def _states(host: Host) -> dict[str, str]:
    return {str(it["address"]): str(it["state"]) for it in host.ask("show")["addresses"]}


def _reaches(host: Host, target: str, source: str) -> bool:
    return host.run(["ping", "-c1", "-W1", "-I", source, target]).returncode == 0


def _set(sh: Sh, host: Host, **values: object) -> None:
    for name, value in values.items():
        sh(host, f"sysctl -qw net.ipv6.conf.ib0.{name}={value}")


@pytest.fixture
def prefixed(sh: Sh) -> Iterator[tuple[Host, Host]]:
    """A host, and a router with an address of PREFIX."""
    with NamespaceLab(2) as lab:
        host, router = lab.hosts
        sh(router, "sysctl -qw net.ipv6.conf.all.forwarding=1")
        sh(router, f"ip address add {ROUTER}/64 dev ib0 nodad")
        yield host, router


@pytest.mark.parametrize("mode", [2, 3])
def test_the_kernel_s_opaque_identifiers_are_probed_for_announced_and_reached(
    prefixed: tuple[Host, Host], sh: Sh, until: Until, mode: int
) -> None:
    """I3: with a secret of the administrator (2), and with a random one (3)."""
    host, router = prefixed
    if mode == 2:
        _set(sh, host, stable_secret=SECRET)
    _set(sh, host, addr_gen_mode=mode)
    (entry,) = until(lambda: _made(host) or _advertise_prefix(router))
    assert entry["stable-privacy"]
    address = entry["local"]
    assert "ff:fe" not in address
    until(lambda: _states(host).get(address) == "preferred")
    until(lambda: _reaches(host, ROUTER, address))
    until(lambda: _reaches(router, address, ROUTER))
    # The same address again, after the interface was down: the mode and the secret stay.
    sh(host, "ip link set ib0 down; ip link set ib0 up")
    until(lambda: "fe80::200:ff:fe00:1" in _states(host))
    until(lambda: [it["local"] for it in _made(host)] == [address] or _advertise_prefix(router))
    until(lambda: _reaches(router, address, ROUTER))
    assert sh(host, "sysctl -n net.ipv6.conf.ib0.addr_gen_mode").strip() == str(mode)


def test_without_a_choice_the_identifier_is_that_of_the_port(
    prefixed: tuple[Host, Host], sh: Sh, until: Until
) -> None:
    host, router = prefixed
    for _ in range(2):
        made = ["fd66::200:ff:fe00:1"]
        until(
            lambda made=made: (
                [it["local"] for it in _made(host)] == made or _advertise_prefix(router)
            )
        )
        sh(host, "ip link set ib0 down; ip link set ib0 up")
        until(lambda: "fe80::200:ff:fe00:1" in _states(host))


def test_temporary_addresses_are_used_and_answered_for(
    prefixed: tuple[Host, Host], sh: Sh, until: Until
) -> None:
    """RFC 8981, use_tempaddr=2: the host prefers the temporary address for what it begins."""
    host, router = prefixed
    _set(sh, host, use_tempaddr=2)
    until(lambda: len(_made(host)) == 2 or _advertise_prefix(router))
    (temporary,) = [it["local"] for it in _made(host) if it.get("temporary")]
    until(lambda: _states(host).get(temporary) == "preferred")
    assert f"src {temporary}" in sh(host, f"ip -6 route get {ROUTER}")
    until(lambda: _reaches(host, ROUTER, temporary))
    until(lambda: _reaches(router, temporary, ROUTER))
    entries = {it["ip"]: it["hwaddr"] for it in router.ask("neigh")}
    assert entries[temporary] == host.ask("show")["hwaddr"]


def test_an_address_that_another_host_has_goes(
    prefixed: tuple[Host, Host], sh: Sh, until: Until
) -> None:
    """The kernel made the address; our probe finds the owner, and the interface loses the address."""
    host, router = prefixed
    _set(sh, host, stable_secret=SECRET, addr_gen_mode=2)
    (entry,) = until(lambda: _made(host) or _advertise_prefix(router))
    address = entry["local"]
    sh(host, f"ip -6 address del {address}/64 dev ib0")
    sh(router, f"ip -6 address add {address}/64 dev ib0 nodad")
    until(lambda: _states(router).get(address) == "preferred")

    def is_refused() -> bool:
        """An owner that is too busy to answer within a second is not found: let the kernel try again."""
        until(lambda: _made(host) or address in host.log() or _advertise_prefix(router))
        end = time.monotonic() + 5
        while time.monotonic() < end:
            if _made(host) == []:
                return True
            time.sleep(0.1)
        sh(host, f"ip -6 address del {address}/64 dev ib0")
        return False

    until(is_refused)
    until(lambda: f"address {address} is also used" in host.log())
    until(lambda: _reaches(host, address, "fd77::1"))


def test_an_optimistic_address_is_reached_before_its_probe_is_over(
    prefixed: tuple[Host, Host], sh: Sh, until: Until
) -> None:
    """RFC 4429: the probe takes a second; without optimistic_dad no host gets an answer so long."""
    host, router = prefixed

    def answered_while_probing(address: str, probing: str) -> bool:
        sh(host, f"ip -6 address add {address}/64 dev ib0")
        while (state := _states(host).get(address)) in (None, "tentative", "optimistic"):
            asked = router.ask("ping", target=address, timeout_ms=200)
            is_still = _states(host).get(address) == state == probing
            if is_still and asked["reason"] is None:
                return True
        return False

    assert not answered_while_probing("fd66::a", "tentative")
    _set(sh, host, optimistic_dad=1)
    addresses = [f"fd66::{number:x}" for number in range(0xB, 0x1B)]
    answered = next(it for it in addresses if answered_while_probing(it, "optimistic"))
    until(lambda: _states(host).get(answered) == "preferred")
