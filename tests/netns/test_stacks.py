# SPDX-License-Identifier: BSD-2-Clause
"""Stacks in user space, PyTCP and lwIP, are guests of a TAP of ours: ARP, neighbour discovery, fragments,
UDP and TCP of a third and a fourth implementation reach the kernel behind a TUN, and it them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from tests.netns.behind import reaches
from tests.netns.conftest import Until
from tests.stacks.guests import BRIDGE, EXCHANGES, GUESTS, MTU, Guest, peer

pytestmark = [pytest.mark.netns, pytest.mark.nightly]

Pair = tuple[Host, Host]
NETWORKS = ("10.77.0", "fd77")
EACH_GUEST = pytest.mark.parametrize("guest", GUESTS, ids=lambda it: it.stack)


@pytest.fixture(scope="module", params=["datagram", "connected"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Return a host with a TAP for a guest in its bridge, and one with the kernel's stack behind a TUN."""
    with NamespaceLab(start=False, options=["--mode", request.param]) as lab:
        host, far = lab.hosts
        host.addresses = []
        host.options.append("--ethernet")
        for guest in GUESTS:
            host.options += guest.option(guest.addresses(*NETWORKS))
        host.start()
        far.start()
        for command in BRIDGE:
            done = host.run(command.split())
            assert done.returncode == 0, done.stderr
        assert far.run(["ip", "link", "set", "ib0", "mtu", str(MTU)]).returncode == 0
        yield host, far


@contextmanager
def started(host: Host, words: list[str]) -> Iterator[list[str]]:
    """Run a program that prints "serving"; return the lines before that."""
    process = host.namespace.popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            lines: list[str] = []
            while (line := str(process.stdout.readline())) not in ("serving\n", ""):
                lines.append(line.rstrip())
            assert line, process.stderr.read()
            yield lines
        finally:
            process.stdin.close()


@EACH_GUEST
def test_a_stack_and_the_kernel_converse_both_ways(pair: Pair, guest: Guest, until: Until) -> None:
    host, far = pair
    peers = [str(far.ipv4.ip), str(far.ipv6.ip)]
    own = guest.addresses(*NETWORKS)
    with (
        started(far, peer("serve")),
        started(host, guest.command(*own, *peers)) as asked,
    ):
        assert asked == [f"holds {' '.join(own)}", *EXCHANGES]
        for address in own:
            until(lambda to=address: reaches(far, to))
            assert far.run(["ping", "-c1", "-W20", "-s4000", address]).returncode == 0
        done = far.run(peer("ask", *own), timeout_s=150)
        assert done.stdout.splitlines() == EXCHANGES, done.stderr
        guests = {it["ip"]: it for it in host.ask("guests") if it["kind"] == "guest"}
        neighbours = {it["ip"]: it["hwaddr"] for it in far.ask("neigh")}
        for address in own:
            assert guests[address]["mac"] == guest.mac
            own_hwaddr = guests[address]["hwaddr"]  # none in connected mode
            assert neighbours[address] == (own_hwaddr or host.ask("show")["hwaddr"])


@EACH_GUEST
def test_a_stack_leaves_addresses_that_a_host_of_the_link_has(pair: Pair, guest: Guest) -> None:
    """lwIP 2.1 asks about IPv6 addresses only."""
    host, far = pair
    stranger = replace(guest, mac="02:00:00:77:77:99", is_bound=False)
    ipv4, ipv6 = str(far.ipv4.ip), str(far.ipv6.ip)
    free = stranger.addresses(*NETWORKS)[0].replace(".9", ".99")
    wanted, held = {"pytcp": ((ipv4, ipv6), "holds"), "lwip": ((free, ipv6), f"holds {free}")}[
        guest.stack
    ]
    with started(host, stranger.command(*wanted)) as said:
        assert [it.rstrip() for it in said] == [held]
