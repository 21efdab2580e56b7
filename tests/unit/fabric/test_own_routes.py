# SPDX-License-Identifier: BSD-2-Clause
"""How the built-in HCA's port looks after the routes of its net device, and what it logs."""

from __future__ import annotations

import errno
import logging
from typing import cast

import pytest

from ipoibu._core import SoftHca
from ipoibu.base.limits import SOFT_OWN_ROUTES_S
from ipoibu.fabric.soft.own_routes import OwnRoute, OwnRoutes


class FakeHca:
    netdev = "eth0"

    def __init__(self) -> None:
        self.results = dict.fromkeys(OwnRoute, 0)
        self.unreachable = 0
        self.asked = 0

    def counters(self) -> dict[str, int]:
        return {"tx_unreachable": self.unreachable}

    def restore_route(self, route: int) -> int:
        self.asked += 1
        return self.results[OwnRoute(route)]


@pytest.fixture
def hca() -> FakeHca:
    return FakeHca()


@pytest.fixture
def routes(hca: FakeHca) -> OwnRoutes:
    return OwnRoutes(cast(SoftHca, hca), "soft:eth0")


def test_the_port_looks_once_a_second_and_at_once_after_a_lost_packet(
    hca: FakeHca, routes: OwnRoutes
) -> None:
    routes.look(0.0, hca.counters())
    routes.look(SOFT_OWN_ROUTES_S / 2, hca.counters())
    assert hca.asked == len(OwnRoute)
    hca.unreachable = 1
    routes.look(SOFT_OWN_ROUTES_S / 2, hca.counters())
    assert hca.asked == 2 * len(OwnRoute)
    routes.look(2 * SOFT_OWN_ROUTES_S, hca.counters())
    assert hca.asked == 3 * len(OwnRoute)


def test_each_route_that_comes_back_is_logged(
    hca: FakeHca, routes: OwnRoutes, caplog: pytest.LogCaptureFixture
) -> None:
    hca.results[OwnRoute.GROUPS] = 1
    with caplog.at_level(logging.WARNING):
        routes.look(0.0, hca.counters())
        hca.results[OwnRoute.GROUPS] = 0
        routes.look(1.0, hca.counters())
    assert [record.message for record in caplog.records] == [
        "soft:eth0: eth0 had lost its route for IPv6 multicast, as another device's replaced it;"
        " it is there again"
    ]


def test_without_the_right_to_restore_it_the_port_names_the_command_once(
    hca: FakeHca, routes: OwnRoutes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for now, result in enumerate((-errno.EPERM, -errno.EPERM, 0, -errno.EPERM)):
            hca.results[OwnRoute.LINK] = result
            routes.look(float(now), hca.counters())
    messages = [record.message for record in caplog.records]
    assert len(messages) == 2  # it was there in between
    assert set(messages) == {
        "soft:eth0: eth0 had lost its route to fe80::/64, as another device's replaced it, and cannot be"
        " restored (that needs CAP_NET_ADMIN): ip -6 route append fe80::/64 dev eth0 metric 256"
    }
