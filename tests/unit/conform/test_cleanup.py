# SPDX-License-Identifier: BSD-2-Clause
"""What a test can do beside sending and expecting: clean up, whatever came out, and answer as a router."""

from __future__ import annotations

import pytest

from ipoibu.conform.headers.ip import ipv6
from ipoibu.conform.headers.nd import na, ra
from ipoibu.conform.link import CannotSend
from ipoibu.conform.suite import Suite, Surroundings
from ipoibu.conform.symbols import ALL_NODES, ME6
from ipoibu.conform.tables.rfc4861 import ping, pong
from ipoibu.conform.test import MUST, Answer, Expect, Join, Send, Step, Test
from ipoibu.conform.verdict import Outcome
from tests.doubles.peer.whole import WholeHost, peer_of
from tests.doubles.peer.wire import Wire

RESTORE: Step = Send(
    ipv6(source=ME6, destination=ALL_NODES, hop_limit=255) / ra(hop_limit=42, lifetime_s=0),
    to=ALL_NODES,
)


def judge(host: WholeHost, *steps: Step, cleanup: tuple[Step, ...] = ()) -> Outcome:
    suite = Suite(host.wire, peer_of(host), Surroundings(seed=1))
    return suite.judge(Test("T-1", "T", MUST, "", "", *steps, cleanup=cleanup)).outcome


def test_a_failure_is_cleaned_up_after() -> None:
    host = WholeHost(Wire())
    assert judge(host, Expect(na(), within_s=0.1), cleanup=(RESTORE,)) is Outcome.FAIL
    host.wire.receive(host.wire.now() + 0.1)
    assert host.hop_limit == 42


def test_a_cleanup_that_fails_changes_no_verdict() -> None:
    host = WholeHost(Wire())
    failing = Expect(na(), within_s=0.1)
    assert judge(host, Send(ping(1)), Expect(pong(1)), cleanup=(failing, RESTORE)) is Outcome.PASS


def test_a_group_that_cannot_be_left_changes_no_verdict() -> None:
    class Staying(Wire):
        def leave(self, mgid: bytes) -> None:
            raise CannotSend("the subnet administrator is silent")

    host = WholeHost(Staying())
    assert judge(host, Join("ff05::1"), Send(ping(1)), Expect(pong(1))) is Outcome.PASS


@pytest.mark.parametrize("as_router", [True, False])
def test_the_tester_answers_as_a_router_when_it_is_told_to(as_router: bool) -> None:
    host = WholeHost(Wire())
    flags = []
    take = host.by_protocol[6, 58, 136]

    def took(message: bytes, sender: bytes, source: str, target: str) -> None:
        flags.append(bool(message[4] & 0x80))
        take(message, sender, source, target)

    host.by_protocol[6, 58, 136] = took
    steps = (Answer(True, as_router=as_router), Send(ping(1)), Expect(pong(1)))
    assert judge(host, *steps) is Outcome.PASS
    assert flags[0] is as_router
