# SPDX-License-Identifier: BSD-2-Clause
"""bird and FRR between two hosts whose link has no subnet: their addresses are on the loopback interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from tests.netns.bird import ask, bird
from tests.netns.conftest import Until
from tests.netns.frr import frr
from tests.netns.page_configs import config, swapped

pytestmark = pytest.mark.netns

Sh = Callable[[Host, str], str]
HasMet = Callable[[], bool]
# Runs a routing daemon in a host, and yields whether it has met its peer.
Speak = Callable[[Host], AbstractContextManager[HasMet]]

BIRD = """
router id 10.255.9.1;
protocol device { scan time 1; }
protocol direct { ipv4; ipv6; interface "lo"; }
protocol kernel { ipv4 { export where source != RTS_DEVICE; }; }
protocol kernel { ipv6 { export where source != RTS_DEVICE; }; }
"""


@pytest.fixture(scope="module")
def unnumbered(sh: Sh) -> Iterator[NamespaceLab]:
    with NamespaceLab(2) as lab:
        for host in lab.hosts:
            number = host.number
            for address in (f"10.255.9.{number}/32", f"fd55::{number}/128"):
                sh(host, f"ip address add {address} dev lo")
            sh(host, f"ip address del {host.ipv4} dev ib0; ip address del {host.ipv6} dev ib0")
        yield lab


def _bird(title: str, wanted: str, *question: str) -> Speak:
    @contextmanager
    def speak(host: Host) -> Iterator[HasMet]:
        with bird(host, swapped(BIRD + config(title), host.number)) as control:
            yield lambda: wanted in ask(host, control, *question)

    return speak


def _frr(title: str, wanted: str, question: str, *daemons: str) -> Speak:
    @contextmanager
    def speak(host: Host) -> Iterator[HasMet]:
        with frr(host, swapped(config(title), host.number), *daemons) as vtysh:
            yield lambda: wanted in vtysh(question)

    return speak


BIRD_OSPF = _bird(
    "# bird.conf: OSPF without a subnet", "Full/", "show", "ospf", "neighbors", "ospf1"
)
FRR_OSPF = _frr(
    "! frr.conf: OSPF without a subnet", "Full/", "show ip ospf neighbor", "ospfd", "ospf6d"
)
BIRD_BGP = _bird("# bird.conf: BGP without a subnet", "Established", "show", "protocols")
FRR_BGP = _frr(
    "! frr.conf: BGP without a subnet", "= Established", "show bgp neighbors ib0", "bgpd"
)


def _meet(lab: NamespaceLab, until: Until, speak: Speak) -> str:
    """Run the daemons in both hosts until they have met; the hosts reach each other then. Return the IPv4
    route between them."""
    one = lab.hosts[0]
    with ExitStack() as stack:
        for has_met in [stack.enter_context(speak(host)) for host in lab.hosts]:
            until(has_met)
        for address in ("10.255.9.2", "fd55::2"):
            source = address[:-1] + "1"
            until(lambda address=address, source=source: _reaches(one, source, address))
        route = str(until(lambda: one.run(["ip", "route", "show", "10.255.9.2"]).stdout))
    for address in ("10.255.9.2", "fd55::2"):
        until(lambda address=address: not _has_route(one, address))
    return route


def _reaches(host: Host, source: str, target: str) -> bool:
    return host.run(["ping", "-c1", "-W1", "-I", source, target]).returncode == 0


def _has_route(host: Host, address: str) -> bool:
    return " dev ib0" in host.run(["ip", "route", "get", address]).stdout


@pytest.mark.parametrize(
    "speak", [pytest.param(BIRD_OSPF, id="bird"), pytest.param(FRR_OSPF, id="frr")]
)
def test_ospf_needs_no_subnet_on_the_link(
    unnumbered: NamespaceLab, sh: Sh, until: Until, speak: Speak
) -> None:
    """OSPFv2 borrows the address of the loopback interface, OSPFv3 has link-local addresses."""
    for host in unnumbered.hosts:
        sh(host, f"ip address add 10.255.9.{host.number}/32 dev ib0")
    try:
        _meet(unnumbered, until, speak)
    finally:
        for host in unnumbered.hosts:
            host.run(["ip", "address", "del", f"10.255.9.{host.number}/32", "dev", "ib0"])


@pytest.mark.parametrize(
    ("speak", "compatible"),
    [
        pytest.param(BIRD_BGP, 1, id="bird"),
        pytest.param(FRR_BGP, 1, id="frr"),
        pytest.param(FRR_BGP, 0, id="frr with numbers alone"),
    ],
)
def test_bgp_needs_link_local_addresses_alone(
    unnumbered: NamespaceLab, sh: Sh, until: Until, speak: Speak, compatible: int
) -> None:
    """IPv4 routes have IPv6 next hops (RFC 8950).

    FRR learns its neighbour from router advertisements, and its next hops are nexthop objects; without
    nexthop_compat_mode the kernel names these by their numbers alone.
    """
    for host in unnumbered.hosts:
        sh(host, f"sysctl -qw net.ipv4.nexthop_compat_mode={compatible}")
    route = _meet(unnumbered, until, speak)
    assert ("via inet6 fe80:" in route) == bool(compatible), route
