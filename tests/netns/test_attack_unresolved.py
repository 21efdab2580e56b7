# SPDX-License-Identifier: BSD-2-Clause
"""Packets to hosts that do not exist: a neighbour causes them by invented sources, or a local program scans
the link. Neither disturbs a stream more than bad packets do, nor keeps new hosts out."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path
from typing import Any, Final

import pytest

from ipoibu.base.addr import IpAddress
from ipoibu.base.c_limits import RESOLUTIONS, RESOLUTIONS_PER_S
from ipoibu.base.limits import RESOLUTION_REPEATS_BURST, RESOLUTION_REPEATS_PER_S
from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import INTERFACE, Host
from tests.attack import attacks, scan
from tests.attack.attacker import Attacker
from tests.attack.attacks import Target
from tests.attack.gates import (
    FULL,
    FULL_WITHIN_S,
    MEASURE_S,
    RESOLVED_MS,
    TRIES,
    answer_ms,
    back_s_of,
    counted,
    own,
    share_of,
    slowed,
)
from tests.attack.stream import Stream

pytestmark = [pytest.mark.netns, pytest.mark.serial]

Until = Callable[..., Any]

WIDE: Final = IPv4Network("10.78.0.0/16")
NEAR, FAR = (IPv4Interface(f"10.78.0.{number}/16") for number in (1, 2))
RATES: Final = (1000, 5000, 50_000)
SCAN_PER_S: Final = 5000
NEW: Final[list[IpAddress]] = [IPv4Address(f"10.78.0.{number}") for number in range(10, 15)]


@pytest.fixture(scope="module", params=["datagram", "connected"])
def lab(request: pytest.FixtureRequest, until: Until) -> Iterator[NamespaceLab]:
    with NamespaceLab(options=["--mode", request.param]) as lab:
        for host, interface in zip(lab.hosts, (NEAR, FAR), strict=True):
            words = ["ip", "address", "add", str(interface), "dev", INTERFACE]
            assert host.run(words).returncode == 0
        own(lab.hosts[1], NEW, until)
        yield lab


@contextlib.contextmanager
def _scan(host: Host) -> Iterator[None]:
    program = [sys.executable, str(Path(scan.__file__)), str(WIDE), str(SCAN_PER_S)]
    scanner = host.namespace.popen(program)
    try:
        yield
    finally:
        scanner.kill()
        scanner.wait()


def test_packets_of_invented_hosts_cost_tcp_what_bad_packets_cost_and_begin_no_resolution(
    lab: NamespaceLab, attacker: Attacker
) -> None:
    near, far = lab.hosts
    missed = counted(far, "tx_missed")
    with Stream(near, far) as stream:
        target = Target.of(far.ask("show"), far.ipv4.ip, far.ipv6.ip)
        floods = attacks.bad_icrc(target), attacks.invented_hosts(target, FAR.ip)
        for rate in RATES:
            shares, late_s = [0.0], [FULL_WITHIN_S + 1]
            while len(shares) <= TRIES and (max(shares) < 0.5 or min(late_s) > FULL_WITHIN_S):
                full = max(stream.rate(0.3), stream.rate(0.3))
                now = slowed(rate, (len(shares) - 1) // 2)
                shares.append(share_of(attacker, lab, stream, floods, now))
                late_s.append(back_s_of(stream, FULL * full))
            assert max(shares) >= 0.5, (rate, shares)
            assert min(late_s) <= FULL_WITHIN_S, (rate, late_s)
    assert counted(far, "tx_error_unresolved") > 100
    assert counted(far, "tx_missed") - missed < 100


def test_a_scan_by_a_local_program_leaves_tcp_and_new_hosts_alone(
    lab: NamespaceLab, until: Until
) -> None:
    near, far = lab.hosts
    sent, began = counted(near, "tx_multicast_packets"), time.monotonic()
    with Stream(near, far) as stream:
        shares: list[float] = []
        while len(shares) < TRIES and max(shares, default=0.0) < 0.8:
            full = stream.rate(MEASURE_S)
            with _scan(near):
                stream.rate(0.5)
                shares.append(stream.rate(MEASURE_S) / max(full, 1.0))
        assert max(shares) >= 0.8, shares
    with _scan(near):
        until(lambda: counted(near, "tx_resolution_limited") > SCAN_PER_S)
        took = sorted(answer_ms(near, address) for address in NEW)  # one packet each
    assert took[len(took) // 2] < RESOLVED_MS, took
    passed_s = time.monotonic() - began
    bound = RESOLUTIONS + RESOLUTION_REPEATS_BURST
    bound += (RESOLUTIONS_PER_S + RESOLUTION_REPEATS_PER_S) * passed_s + 100
    assert counted(near, "tx_multicast_packets") - sent < bound
    assert "too many new addresses" in near.log()
