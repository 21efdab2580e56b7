# SPDX-License-Identifier: BSD-2-Clause
"""The carrier follows the port at once, and outlasts a flush."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ipoibu import Endpoint, EndpointConfig
from ipoibu._core import MemorySwitch
from ipoibu.base.ib import port_speed_mbps
from ipoibu.endpoint.callbacks import Callbacks
from ipoibu.endpoint.interface import carrier
from ipoibu.endpoint.interface.carrier import Carrier
from ipoibu.fabric.memory import MemoryPort
from tests.doubles.administered import until
from tests.doubles.fake_sa import port_gid


class FastPort(MemoryPort):
    is_active = True

    def __init__(self) -> None:
        super().__init__(MemorySwitch(1), port_gid(1))

    def active(self) -> bool:
        return self.is_active

    def speed_mbps(self) -> int:
        return 100_000


def _played(deeds: Callable[[Carrier], None], wait_s: float) -> list[tuple[bool, int | None]]:
    reports: list[tuple[bool, int | None]] = []

    async def play() -> None:
        port = FastPort()
        it = Carrier(
            asyncio.get_running_loop(), port, lambda up, speed: reports.append((up, speed))
        )
        deeds(it)
        await asyncio.sleep(wait_s)
        it.stop()
        port.close()

    asyncio.run(play())
    return reports


def test_a_flush_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrier, "GRACE_S", 3600)

    def flush(it: Carrier) -> None:
        it.note_link(True)
        it.note_link(False)
        it.note_link(True)

    assert _played(flush, 0) == [(True, 100_000)]


def test_a_link_that_does_not_come_back_loses_its_carrier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrier, "GRACE_S", 0.01)

    def leave(it: Carrier) -> None:
        it.note_link(True)
        it.note_link(False)

    assert _played(leave, 0.5) == [(True, 100_000), (False, None)]


def test_a_port_that_goes_down_takes_the_carrier_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrier, "GRACE_S", 3600)

    def pull(it: Carrier) -> None:
        it.port_down()  # down already
        it.note_link(True)
        it.note_link(False)
        it.port_down()
        it.port_down()

    assert _played(pull, 0) == [(True, 100_000), (False, None)]


def test_an_endpoint_reports_its_link_with_the_ports_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipoibu.endpoint.interface.port_follower.PORT_POLL_S", 0.01)
    reports: list[tuple[bool, int | None]] = []
    port = FastPort()
    with Endpoint(
        EndpointConfig("ib0", "memory"),
        port=port,
        callbacks=Callbacks(on_link=lambda *report: reports.append(report)),
    ):
        until(lambda: reports == [(True, 100_000)])
        port.is_active = False
        until(lambda: reports[1:] == [(False, None)])
        port.is_active = True
        until(lambda: reports[2:] == [(True, 100_000)])
    assert len(reports) == 3
    port.close()


@pytest.mark.parametrize(
    ("width", "speed", "mbps"),
    [
        (2, 32, 100_000),
        (1, 1, 2500),
        (2, 4, 40_000),
        (16, 128, 200_000),
        (3, 1, None),
        (2, 3, None),
    ],
)
def test_a_ports_speed_is_its_lanes_times_their_speed(
    width: int, speed: int, mbps: int | None
) -> None:
    assert port_speed_mbps(width, speed) == mbps
