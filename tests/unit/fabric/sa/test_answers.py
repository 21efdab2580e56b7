# SPDX-License-Identifier: BSD-2-Clause
"""The client compares the subnet administrator's records with its questions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from ipoibu.base.addr import Gid, PKey
from ipoibu.fabric.sa.client import SaClient
from ipoibu.proto.sa.errors import NoAnswer
from ipoibu.proto.sa.requests import Pace
from ipoibu.wire import mcmember, mgid, pathrecord
from ipoibu.wire.sa import SaMad
from tests.doubles.fake_sa import FakePort, FakeSa, port_gid

DEFAULT: Final = PKey(0xFFFF)
BROADCAST: Final = mgid.broadcast(DEFAULT)
FOREIGN: Final = {
    "mgid": mgid.broadcast(PKey(0x8001)),
    "pkey": PKey(0x8001),
    "scope": 5,
    "port_gid": port_gid(9),
}
FOREIGN_PATH: Final = {"dgid": port_gid(9), "sgid": port_gid(9), "pkey": PKey(0x8001)}
Ask = Callable[[SaClient], Awaitable[object]]


def group_with(**fields: Any) -> Callable[[SaMad], list[SaMad]]:
    def spoil(answer: SaMad) -> list[SaMad]:
        record = replace(mcmember.parse_untrusted(answer.data), **fields)
        return [replace(answer, data=record.pack())]

    return spoil


def path_with(**fields: Any) -> Callable[[SaMad], list[SaMad]]:
    def spoil(answer: SaMad) -> list[SaMad]:
        record = replace(pathrecord.parse_untrusted(answer.data), **fields)
        return [replace(answer, data=record.pack())]

    return spoil


def ask(spoil: Callable[[SaMad], list[SaMad]], request: Ask) -> tuple[object, int, bool]:
    """Return the outcome of the request, the count of mismatches, and whether the client holds a group."""

    async def played() -> tuple[object, int, bool]:
        fake_sa = FakeSa()
        fake_sa.make_broadcast(DEFAULT)
        port = FakePort(fake_sa)
        other = FakePort(fake_sa, host=3)
        client = SaClient(port, pace=Pace(timeout_s=60, attempts=1))
        fake_sa.spoil = spoil
        try:
            try:
                outcome: object = await request(client)
            except NoAnswer as error:
                outcome = error
            return outcome, client.counts["sa_mismatch"], bool(client.held)
        finally:
            client.abort()
            other.close()

    return asyncio.run(played())


@pytest.mark.parametrize("field", FOREIGN)
def test_a_broadcast_record_of_another_link_does_not_become_the_links_parameters(
    field: str,
) -> None:
    outcome, mismatches, holds = ask(
        group_with(**{field: FOREIGN[field]}), lambda client: client.join(BROADCAST)
    )
    assert isinstance(outcome, NoAnswer)
    assert "the subnet administrator's answer is wrong: sa_mismatch" in str(outcome)
    assert (mismatches, holds) == (1, False)


def test_a_record_may_lack_scope_and_port_and_have_the_other_membership() -> None:
    spoil = group_with(scope=0, port_gid=Gid(bytes(16)), pkey=PKey(0x7FFF))
    _, mismatches, holds = ask(spoil, lambda client: client.join(BROADCAST))
    assert (mismatches, holds) == (0, True)


@pytest.mark.parametrize("field", FOREIGN_PATH)
def test_a_path_to_another_port_is_no_answer(field: str) -> None:
    outcome, mismatches, _ = ask(
        path_with(**{field: FOREIGN_PATH[field]}),
        lambda client: client.path(port_gid(3), DEFAULT),
    )
    assert isinstance(outcome, NoAnswer)
    assert mismatches == 1


def test_a_path_may_name_the_port_with_the_subnets_own_prefix() -> None:
    prefixed = Gid(bytes.fromhex("fec0000000000001") + port_gid(3).interface_id)
    outcome, mismatches, _ = ask(
        path_with(dgid=prefixed), lambda client: client.path(port_gid(3), DEFAULT)
    )
    assert not isinstance(outcome, NoAnswer)
    assert mismatches == 0
