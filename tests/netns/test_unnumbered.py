# SPDX-License-Identifier: BSD-2-Clause
"""bird between two hosts whose link has no subnet: their addresses are on the loopback interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from ipoibu.lab import Lab
from ipoibu.lab.host import Host
from tests.netns.bird import ask, bird
from tests.netns.conftest import Until

pytestmark = pytest.mark.netns

Sh = Callable[[Host, str], str]

COMMON = """
router id 10.255.9.{number};
protocol device {{ scan time 1; }}
protocol direct {{ ipv4; ipv6; interface "lo"; }}
protocol kernel {{ ipv4 {{ export where source != RTS_DEVICE; }}; }}
protocol kernel {{ ipv6 {{ export where source != RTS_DEVICE; }}; }}
"""

OSPF = """
protocol ospf v2 {{
  ipv4 {{ import all; export where source = RTS_DEVICE; }};
  area 0 {{ interface "ib0" {{ type ptp; hello 1; dead count 4; }}; }};
}}
protocol ospf v3 {{
  ipv6 {{ import all; export where source = RTS_DEVICE; }};
  area 0 {{ interface "ib0" {{ type ptp; hello 1; dead count 4; }}; }};
}}
"""

# RFC 8950: next hops of IPv4 routes are IPv6 addresses, here link-local ones.
BGP = """
protocol bgp {{
  local {own} as 6500{number};
  neighbor {peer} as 6500{other};
  interface "ib0";
  direct;
  connect delay time 1;
  connect retry time 2;
  ipv4 {{ import all; export where source = RTS_DEVICE; extended next hop on; }};
  ipv6 {{ import all; export where source = RTS_DEVICE; }};
}}
"""


@pytest.fixture(scope="module")
def unnumbered(sh: Sh) -> Iterator[Lab]:
    with Lab(2) as lab:
        for host in lab.hosts:
            number = host.number
            for address in (f"10.255.9.{number}/32", f"fd55::{number}/128"):
                sh(host, f"ip address add {address} dev lo")
            sh(host, f"ip address del {host.ipv4} dev ib0; ip address del {host.ipv6} dev ib0")
        yield lab


def _link_local(host: Host) -> str:
    return str(
        next(
            it["address"]
            for it in host.ask("show")["addresses"]
            if str(it["address"]).startswith("fe80:")
        )
    )


def _meet(lab: Lab, until: Until, config: str, wanted: str, *question: str) -> str:
    """Run bird in both hosts until the answers contain `wanted`; the hosts reach each other then. Return
    the IPv4 route between them."""
    one, other = lab.hosts
    with ExitStack() as stack:
        controls = {}
        for host, peer in ((one, other), (other, one)):
            text = (COMMON + config).format(
                number=host.number,
                other=peer.number,
                own=_link_local(host),
                peer=_link_local(peer),
            )
            controls[host] = stack.enter_context(bird(host, text))
        for host in lab.hosts:
            until(lambda host=host: wanted in ask(host, controls[host], *question), timeout_s=40)
        for address in ("10.255.9.2", "fd55::2"):
            source = address[:-1] + "1"
            until(
                lambda address=address, source=source: _reaches(one, source, address), timeout_s=30
            )
        route = one.run(["ip", "route", "show", "10.255.9.2"]).stdout
    for address in ("10.255.9.2", "fd55::2"):
        until(lambda address=address: not _has_route(one, address), timeout_s=10)
    return route


def _reaches(host: Host, source: str, target: str) -> bool:
    return host.run(["ping", "-c1", "-W1", "-I", source, target]).returncode == 0


def _has_route(host: Host, address: str) -> bool:
    return " dev ib0" in host.run(["ip", "route", "get", address]).stdout


@pytest.mark.timeout(150)
def test_ospf_needs_no_subnet_on_the_link(unnumbered: Lab, sh: Sh, until: Until) -> None:
    """OSPFv2 borrows the address of the loopback interface, OSPFv3 has link-local addresses."""
    for host in unnumbered.hosts:
        sh(host, f"ip address add 10.255.9.{host.number}/32 dev ib0")
    try:
        _meet(unnumbered, until, OSPF, "Full/", "show", "ospf", "neighbors", "ospf1")
    finally:
        for host in unnumbered.hosts:
            host.run(["ip", "address", "del", f"10.255.9.{host.number}/32", "dev", "ib0"])


@pytest.mark.timeout(150)
def test_bgp_needs_link_local_addresses_alone(unnumbered: Lab, until: Until) -> None:
    """IPv4 routes have IPv6 next hops (RFC 8950)."""
    route = _meet(unnumbered, until, BGP, "Established", "show", "protocols")
    assert "via inet6 fe80:" in route
