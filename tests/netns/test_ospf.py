# SPDX-License-Identifier: BSD-2-Clause
"""bird and FRR speak OSPF on the link, once they know that a TUN is no point-to-point link."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from tests.netns.bird import ask, bird
from tests.netns.conftest import Until
from tests.netns.frr import frr
from tests.netns.page_configs import config

pytestmark = pytest.mark.netns

Sh = Callable[[Host, str], str]
Says = Callable[[], str]
Speak = Callable[[Host], AbstractContextManager[Says]]


def _of(host: Host, title: str) -> str:
    return config(title).replace("10.77.0.1", str(host.ipv4.ip))


@contextmanager
def _bird(host: Host) -> Iterator[Says]:
    with bird(host, _of(host, "# bird.conf: three routers")) as control:
        yield lambda: ask(host, control, "show", "ospf", "neighbors")


@contextmanager
def _frr(host: Host) -> Iterator[Says]:
    with frr(host, _of(host, "! frr.conf: three routers"), "ospfd") as vtysh:
        yield lambda: vtysh("show ip ospf neighbor")


@pytest.fixture(scope="module")
def three(sh: Sh) -> Iterator[NamespaceLab]:
    """Three hosts, each with a network behind it."""
    with NamespaceLab(3) as lab:
        for host in lab.hosts:
            sh(host, "ip link add stub0 type veth peer name stub1; ip link set stub1 up")
            sh(host, f"ip address add 10.{90 + host.number}.0.1/24 dev stub0")
            sh(host, "ip link set stub0 up")
        yield lab


@pytest.mark.parametrize("speak", [_bird, _frr])
def test_three_routers_become_neighbours_and_routes_carry_packets(
    three: NamespaceLab, until: Until, speak: Speak
) -> None:
    first, *others = three.hosts
    targets = [f"10.{90 + other.number}.0.1" for other in others]
    assert not any(_reaches(first, target) for target in targets)
    with ExitStack() as stack:
        says = [stack.enter_context(speak(host)) for host in three.hosts]
        # One of three is the designated router, and one its backup: everybody is full with both.
        until(lambda: [each().count("Full/") for each in says] == [2, 2, 2])
        for target in targets:
            until(lambda target=target: _reaches(first, target))


def _reaches(host: Host, target: str) -> bool:
    return host.run(["ping", "-c1", "-W1", target]).returncode == 0
