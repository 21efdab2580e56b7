# SPDX-License-Identifier: BSD-2-Clause
"""Whether a net device has lost its carrier, asked beside the kernel's late IFF_RUNNING."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from ipoibu.base.addr import Gid
from ipoibu.base.limits import RAIL_POLL_S, SOFT_CARRIER_LOOK_S
from ipoibu.fabric import link_speed
from ipoibu.fabric.soft import adapter, carrier_check
from ipoibu.fabric.soft.carrier_check import CarrierCheck
from ipoibu.fabric.soft.port import SoftPort


class Driver:
    """Answers the questions; `hold` makes them wait, as the lock of all net devices does."""

    def __init__(self) -> None:
        self.has_carrier = True
        self.asked = 0
        self.free = threading.Event()
        self.free.set()

    def ask(self, control: socket.socket, name: str) -> bool:
        assert name == "eth0"
        self.asked += 1
        answer = self.has_carrier
        assert self.free.wait(10)
        return answer


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    monkeypatch.setattr(carrier_check, "has_carrier", driver.ask)
    return driver


@pytest.fixture
def look(driver: Driver) -> Iterator[Callable[..., bool]]:
    """`look()` is a look at a rail's port, RAIL_POLL_S after the one before."""
    made = CarrierCheck()
    now = 0.0

    def look(*, is_running: bool = True, after_s: float = RAIL_POLL_S) -> bool:
        nonlocal now
        now += after_s
        return made.is_lost(now, "eth0", is_running=is_running)

    yield look
    driver.free.set()
    made.close()


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_carrier_that_is_lost_is_noticed_while_the_device_runs_for_the_kernel(
    look: Callable[..., bool], driver: Driver
) -> None:
    assert not look()
    driver.has_carrier = False
    until(look)
    driver.has_carrier = True
    until(lambda: not look())


def test_a_look_never_waits_for_the_answer(look: Callable[..., bool], driver: Driver) -> None:
    driver.free.clear()
    driver.has_carrier = False
    look()
    assert not any(look() for _ in range(100))
    assert driver.asked <= 1
    driver.free.set()
    until(look)


def test_an_answer_from_before_the_device_came_back_says_nothing(
    look: Callable[..., bool], driver: Driver
) -> None:
    driver.free.clear()
    driver.has_carrier = False
    look()
    look()
    until(lambda: driver.asked == 1)
    look(is_running=False)
    driver.has_carrier = True
    driver.free.set()
    for _ in range(20):
        assert not look()
        time.sleep(0.001)
    until(lambda: driver.asked > 1 and not look())


def test_a_port_that_is_seldom_looked_at_asks_nobody(
    look: Callable[..., bool], driver: Driver
) -> None:
    for _ in range(3):
        assert not look(after_s=2 * SOFT_CARRIER_LOOK_S)
    assert driver.asked == 0


class FakeHca:
    """The net device runs, says the kernel."""

    netdev = "eth0"
    gid, guid = Gid.parse("fe80::1").raw, bytes(8)
    active_mtu_bytes, datagram_bytes = 1024, 1400
    state = reads = 0

    def __init__(self, netdev: str, *, kind: int, gid: bytes | None, socket_fd: int) -> None:
        pass

    def check(self, datagram_bytes: int) -> int:
        return self.state

    def counters(self) -> dict[str, int]:
        FakeHca.reads += 1
        return {"tx_fragments": 0, "tx_unreachable": 0}

    def restore_route(self, route: int) -> int:
        return 0

    def netdev_mtu_now(self) -> int:
        return 1500

    def needed_mtu(self, datagram_bytes: int) -> int:
        return 1500

    def close(self) -> None:
        pass


def test_a_port_without_carrier_is_down_and_says_so(
    monkeypatch: pytest.MonkeyPatch, driver: Driver
) -> None:
    monkeypatch.setattr(adapter, "SoftHca", FakeHca)
    port = SoftPort("soft:eth0")
    assert port.active()
    driver.has_carrier = False
    until(lambda: not port.active())
    assert port.why_down() == "eth0 is down or has no carrier"
    driver.has_carrier = True
    until(port.active)
    port.close()


def test_a_look_reads_the_counters_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "SoftHca", FakeHca)
    port = SoftPort("soft:eth0")
    before = FakeHca.reads
    assert port.active()
    assert FakeHca.reads == before + 1
    port.close()


def test_a_device_that_says_nothing_about_it_has_a_carrier() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        assert link_speed.has_carrier(control, "lo")
        assert link_speed.has_carrier(control, "none0")
