# SPDX-License-Identifier: BSD-2-Clause
"""Invented hosts that ask a proxy for invented hosts behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from ipoibu.lab import Lab
from tests.attack import attacks
from tests.attack.attacker import Attacker
from tests.attack.attacks import Target
from tests.attack.gates import counted
from tests.netns.behind import forward

pytestmark = [pytest.mark.netns, pytest.mark.serial]

Until = Callable[..., Any]

RATE: Final = 20_000
ANSWERS: Final = 2000


@pytest.mark.parametrize("delay", [0, 80])
def test_a_flood_of_questions_for_hosts_behind_a_proxy_ends_with_it(
    attacker: Attacker, until: Until, sh: Any, delay: int
) -> None:
    with Lab() as lab:
        near, router = lab.hosts
        sh(
            router,
            "ip link add v0 type veth peer name v1; ip link set v0 up; ip link set v1 up;"
            " ip address add 192.0.2.1/24 dev v0; ip route add 198.51.0.0/16 dev v0",
        )
        forward(sh, router, delay=delay)
        router.ask("proxy-add", proxy="198.51.0.0/16")
        target = Target.of(router.ask("show"), router.ipv4.ip, router.ipv6.ip, 0)
        with attacker.flood(near, router, attacks.proxied(target), RATE):
            until(
                lambda: (
                    counted(router, "engine.proxy_answered")
                    + counted(router, "engine.proxy_answers_full")
                    > ANSWERS
                )
            )
            assert router.ask("show")["name"] == "ib0"
        assert (counted(router, "engine.proxy_answers_full") > 0) == (delay > 0)

        def finds() -> bool:
            return near.ask("ping", target="198.51.7.7", timeout_ms=2000)["hwaddr"] is not None

        until(finds)
        assert counted(router, "engine.defect") == 0
