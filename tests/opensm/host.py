# SPDX-License-Identifier: BSD-2-Clause
"""A host of the simulated fabric: a client that runs commands, one line of JSON each.

It is a program of its own, because libumad2sim must be loaded before libibumad, and because a process is
one host. Commands are `[method, argument...]`; the host answers each with one line.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from typing import Any, Final

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.errors import IpoibuError
from ipoibu.base.ib import PartitionParams
from ipoibu.fabric.sa.client import SaClient
from ipoibu.fabric.sa.transport import Event
from ipoibu.lab.ibsim import DEVICE
from ipoibu.proto.sa.records import link_params
from ipoibu.proto.sa.requests import Change, Pace
from ipoibu.wire.mcmember import JoinState, McMemberRecord
from ipoibu.wire.notice import Trap
from ipoibu.wire.pathrecord import PathRecord

# Two attempts: the client notices a silent SA within ten seconds, and waits for a busy one.
PACE: Final = Pace(timeout_s=3.0, attempts=2, probe_min_s=0.1, probe_max_s=0.4)


class Host:
    """The commands; `params` has the link's parameters once `broadcast` has joined it."""

    def __init__(self, client: SaClient) -> None:
        self._client = client
        self._params: PartitionParams | None = None
        self._events: list[Event] = []
        self._listening = asyncio.ensure_future(self._listen())

    async def info(self) -> dict[str, Any]:
        info = self._client.info
        return {
            "lid": info.lid,
            "sa_lid": info.sa_lid,
            "gid": str(info.gid),
            "guid": info.guid,
            "active": info.is_active,
            "pkeys": [int(key) for key in info.pkeys if key],
        }

    async def broadcast(self, group: str) -> dict[str, Any]:
        record = await self._client.join(Gid.parse(group))
        self._params = link_params(record)
        return _shown(record)

    async def join(self, groups: list[str], state: int = 1, **wrong: int) -> list[dict[str, Any]]:
        """Join all groups at once with the link's parameters, some of which `wrong` may replace."""
        assert self._params is not None
        params = PartitionParams(**{**asdict(self._params), **wrong})
        joins = (self._client.join(Gid.parse(one), JoinState(state), params) for one in groups)
        return [_shown(record) for record in await asyncio.gather(*joins)]

    async def join_existing(self, group: str, state: int = 1) -> dict[str, Any]:
        return _shown(await self._client.join(Gid.parse(group), JoinState(state)))

    async def join_to_send(self, group: str) -> dict[str, Any]:
        assert self._params is not None
        return _shown(await self._client.join_to_send(Gid.parse(group), self._params))

    async def leave(self, groups: list[str], state: int = 1) -> None:
        await asyncio.gather(
            *(self._client.leave(Gid.parse(one), JoinState(state)) for one in groups)
        )

    async def held(self) -> list[str]:
        return [str(group) for group, _ in self._client.held]

    async def rejoin(self) -> dict[str, str]:
        return {str(key[0]): str(why) for key, why in (await self._client.rejoin()).items()}

    async def group(self, group: str) -> dict[str, Any]:
        return _shown(await self._client.group(Gid.parse(group)))

    async def membership(self, group: str) -> dict[str, Any]:
        return _shown(await self._client.membership(Gid.parse(group)))

    async def groups(self) -> list[dict[str, Any]]:
        return [_shown(record) for record in await self._client.groups()]

    async def path(self, gid: str, pkey: int) -> dict[str, Any]:
        return _shown(await self._client.path(Gid.parse(gid), PKey(pkey)))

    async def class_port_info(self) -> dict[str, Any]:
        info = await self._client.class_port_info()
        return {**asdict(info), "sends": info.has_send_only_full_member}

    async def subscribe(self, trap: int, *, on: bool = True) -> None:
        await (self._client.subscribe if on else self._client.unsubscribe)(Trap(trap))

    async def changes(self, count: int) -> list[str]:
        """Wait until `events` has so many changes of the SA, and return all of them."""
        while True:
            changes = [event.value for event in self._events if isinstance(event, Change)]
            if len(changes) >= count:
                return changes
            await asyncio.sleep(0.01)

    async def counts(self) -> dict[str, int]:
        return dict(self._client.counts)

    async def close(self) -> None:
        await self._client.aclose()
        await self._listening

    async def _listen(self) -> None:
        async for event in self._client.events():
            self._events.append(event)


def _shown(record: McMemberRecord | PathRecord) -> dict[str, Any]:
    """Return GIDs as text and keys as numbers."""
    fields = {name: getattr(record, name) for name in record.__dataclass_fields__}
    return {name: str(value) if isinstance(value, Gid) else value for name, value in fields.items()}


async def serve() -> None:
    """Answer standard input's lines until `close`."""
    loop = asyncio.get_running_loop()
    host = Host(SaClient.open(DEVICE, pace=PACE))
    print(json.dumps({"ok": await host.info()}), flush=True)
    name = ""
    while name != "close":
        line = await loop.run_in_executor(None, sys.stdin.readline)
        name, positional, named = json.loads(line or '["close", [], {}]')
        try:
            said: dict[str, Any] = {"ok": await getattr(host, name)(*positional, **named)}
        except IpoibuError as error:
            said = {"error": type(error).__name__, "text": str(error)}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    asyncio.run(serve())
