# SPDX-License-Identifier: BSD-2-Clause
"""Invented hosts that ask a proxy for invented hosts behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from ipoibu.lab import NamespaceLab
from tests.attack import attacks
from tests.attack.attacker import Attacker
from tests.attack.attacks import Target
from tests.attack.gates import counted
from tests.netns.behind import forward

pytestmark = [pytest.mark.netns, pytest.mark.serial]

Until = Callable[..., Any]

RATE: Final = 20_000
ANSWERS: Final = 500
IN_A_ROW: Final = 3  # answers to a known host: one may come by chance


@pytest.mark.parametrize("delay", [0, 80])
def test_a_known_host_gets_answers_during_a_flood_of_questions_for_hosts_behind_a_proxy(
    attacker: Attacker, until: Until, sh: Any, delay: int
) -> None:
    with NamespaceLab() as lab:
        near, router = lab.hosts
        sh(
            router,
            "ip link add v0 type veth peer name v1; ip link set v0 up; ip link set v1 up;"
            " ip address add 192.0.2.1/24 dev v0; ip route add 198.51.0.0/16 dev v0",
        )
        forward(sh, router, delay=delay)
        router.ask("proxy-add", proxy="198.51.0.0/16")
        target = Target.of(router.ask("show"), router.ipv4.ip, router.ipv6.ip, 0)
        assert router.run(["ping", "-c1", "-W5", str(near.ipv4.ip)]).returncode == 0  # near answers

        def finds(last: int) -> bool:
            found = near.ask("ping", target=f"198.51.7.{last}", timeout_ms=2000)
            return found["hwaddr"] is not None

        with attacker.flood(near, router, attacks.proxied(target), RATE):
            until(
                lambda: (
                    counted(router, "engine.proxy_answered")
                    + counted(router, "engine.proxy_answers_full")
                    > ANSWERS
                )
            )
            assert router.ask("show")["name"] == "ib0"
            until(lambda: all(finds(last) for last in range(IN_A_ROW)))
            until(lambda: counted(router, "engine.proxy_limited") > 0)
        assert (counted(router, "engine.proxy_answers_full") > 0) == (delay > 0)
        until(lambda: finds(IN_A_ROW))
        assert counted(router, "engine.defect") == 0
