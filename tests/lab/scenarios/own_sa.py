# SPDX-License-Identifier: BSD-2-Clause
"""Our SA client asks the SA of an rxe port that looks like InfiniBand, over ib_umad."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from typing import Any, Final

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.errors import IpoibuError
from ipoibu.fabric.sa.client import SaClient
from ipoibu.lab.machines.inside.links import link_local
from ipoibu.lab.machines.scenarios.verbs_machine import on_the_wire
from ipoibu.proto.sa.records import link_params
from ipoibu.wire import mgid

DEFAULT: Final = PKey(0xFFFF)
SECOND: Final = PKey(0x8001)
ABSENT: Final = PKey(0x8002)
OFF_SUBNET: Final = Gid.parse("fe80::1:ff:fe00:1")


def ask() -> None:
    """Print the answers, one JSON object."""
    on_the_wire()
    print(json.dumps(asyncio.run(_ask())))


async def _ask() -> dict[str, Any]:
    answers: dict[str, Any] = {}
    peer = Gid.parse(link_local(2))
    async with SaClient.open("rxe0", 1) as sa:
        answers["send-only full members"] = (await sa.class_port_info()).has_send_only_full_member
        for pkey in (DEFAULT, SECOND):
            params = link_params(await sa.join(mgid.broadcast(pkey)))
            answers[f"broadcast {int(pkey):04x}"] = [params.mtu_bytes, int(params.qkey)]
            path = await sa.path(peer, pkey)
            answers[f"path {int(pkey):04x}"] = [
                path.dlid,
                path.slid,
                str(path.dgid),
                path.hop_limit,
            ]
        group = Gid(mgid.broadcast(DEFAULT).raw[:12] + bytes(range(4)))
        params = link_params(await sa.join(mgid.broadcast(DEFAULT)))
        answers["group"] = (await sa.join(group, params=params)).mlid
        await sa.leave(group)
        answers["sender"] = (await sa.join_to_send(group, params)).mlid
        await sa.leave(group)
        answers["no path off the subnet"] = await _refusal(sa.path(OFF_SUBNET, DEFAULT))
        answers["no path in a foreign partition"] = await _refusal(sa.path(peer, ABSENT))
        answers["no join in a foreign partition"] = await _refusal(sa.join(mgid.broadcast(ABSENT)))
        answers["no tables"] = await _refusal(sa.groups(DEFAULT))
    return answers


async def _refusal(question: Awaitable[Any]) -> str:
    try:
        return repr(await question)
    except IpoibuError as error:
        return type(error).__name__
