# SPDX-License-Identifier: BSD-2-Clause
"""An SA client and a subnet administrator, on the real ib_umad of two machines.

The machines' ports are RoCE, which routes a MAD by GID alone. So each port assumes that the other's LID
is 1 or 2, and every datagram gets a global route header.
"""

from __future__ import annotations

import asyncio
import json
import random
import select
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.errors import IpoibuError
from ipoibu.fabric.sa import umad
from ipoibu.fabric.sa.client import SaClient
from ipoibu.fabric.sa.mad_port import MadIn, MadPortInfo, MadTo
from ipoibu.fabric.sa.umad import UmadPort
from ipoibu.lab.machines.inside.links import link_local, link_up, rdma_up
from ipoibu.lab.machines.inside.meeting import SHARE, meet, put
from ipoibu.proto.sa.records import link_params
from ipoibu.proto.sa.requests import Change, Pace
from ipoibu.wire import mgid
from ipoibu.wire.mad import RESPONSE, Method
from ipoibu.wire.mcmember import JoinState
from ipoibu.wire.notice import Notice, Trap
from ipoibu.wire.sa import SaMad
from tests.doubles.fake_sa import SA_LID, FakeSa

CLIENT_LID: Final = 2
DEFAULT: Final = PKey(0xFFFF)
GROUPS: Final = 200


class RocePort(UmadPort):
    """Talks to the port with `peer`'s GID, and assumes `lid` as its own LID."""

    def __init__(self, lid: int, peer: Gid, methods: tuple[int, ...]) -> None:
        self.info = MadPortInfo("rxe0", 1, True, lid, SA_LID, 0, _own_gid(), (DEFAULT,))
        self._peer = peer
        super().__init__("rxe0", 1, methods)

    def look(self) -> MadPortInfo:
        return self.info

    def receive(self) -> MadIn | None:
        received = super().receive()
        return received and replace(received, lid=SA_LID + CLIENT_LID - self.info.lid)

    def _address(self, buffer: Any, to: MadTo) -> None:
        super()._address(buffer, to)
        address: Any = umad._ffi.new("ib_mad_addr_t *")
        address.gid[0:16] = list(self._peer.raw)
        address.hop_limit = 64
        self._umad.umad_set_grh(buffer, address)


class Remote:
    """The client, as the SA sees it."""

    def __init__(self, port: RocePort) -> None:
        self.info = replace(port.info, lid=CLIENT_LID, gid=Gid.parse(link_local(2)))
        self._port = port

    def deliver(self, message: SaMad) -> None:
        """Send a MAD; a request waits for its answer, as an SA's does."""
        wait_s = 0.0 if message.method & RESPONSE else 1.0
        self._port.send(message.pack(), MadTo(CLIENT_LID), wait_s)


def _own_gid() -> Gid:
    return Gid.parse(Path("/sys/class/infiniband/rxe0/ports/1/gids/0").read_text().strip())


def administrate() -> None:
    """Answer until the other machine puts "done", but not between its "deaf" and its "back"."""
    _prepare()
    requests = (Method.GET, Method.SET, Method.GET_TABLE, Method.DELETE)
    port = RocePort(SA_LID, Gid.parse(link_local(2)), requests)
    fake_sa = FakeSa()
    broadcast = fake_sa.make_broadcast(DEFAULT)
    client = Remote(port)
    fake_sa.plug(client)
    meet("up")
    waiting = select.poll()
    waiting.register(port.fileno(), select.POLLIN)
    is_reported = False
    while not _is_put("done"):
        fake_sa.is_deaf = _is_put("deaf") and not _is_put("back")
        if fake_sa.subscribers and not is_reported:
            fake_sa.report(Notice(Trap.GROUP_CREATED, broadcast))
            is_reported = True
        if waiting.poll(20):
            while (received := port.receive()) is not None:
                if not received.status:
                    fake_sa.receive(client, received.raw)
    print(json.dumps({"acknowledged": fake_sa.acknowledged}))
    port.close()


def _is_put(key: str) -> bool:
    return (SHARE / "values" / key).exists()


def ask() -> None:
    """Print the answers of the other machine's SA."""
    _prepare()
    meet("up")
    print(json.dumps(asyncio.run(_ask())))
    put("done", "")


def open_ethernet() -> None:
    """Print why UmadPort refuses the port, which is no InfiniBand port."""
    _prepare()
    try:
        UmadPort("rxe0")
    except IpoibuError as error:
        print(f"{type(error).__name__}: {error}")
    meet("up")


async def _ask() -> dict[str, Any]:
    port = RocePort(CLIENT_LID, Gid.parse(link_local(1)), (Method.REPORT,))
    second = RocePort(CLIENT_LID, Gid.parse(link_local(1)), (Method.REPORT,))
    answers: dict[str, Any] = {"reports": [port.hears_unasked, second.hears_unasked]}
    second.close()
    pace = Pace(timeout_s=1.0, attempts=2, probe_min_s=0.2, probe_max_s=0.2)
    client = SaClient(port, pace=pace, rng=random.Random(1))
    async with client:
        params = link_params(await client.join(mgid.broadcast(DEFAULT)))
        answers["mtu"] = params.mtu_bytes
        groups = [_group(number) for number in range(GROUPS)]
        await asyncio.gather(*(client.join(one, JoinState.FULL_MEMBER, params) for one in groups))
        answers["listed"] = len(await client.groups(DEFAULT))
        await client.subscribe(Trap.GROUP_CREATED)
        events = client.events()
        heard = await anext(events)
        answers["event"] = int(heard.trap) if isinstance(heard, Notice) else heard.value
        put("deaf", "")
        await asyncio.sleep(0.1)
        try:
            await client.class_port_info()
        except IpoibuError as error:
            answers["silence"] = type(error).__name__
        put("back", "")
        changes = [await anext(events), await anext(events)]
        answers["changes"] = [one.value for one in changes if isinstance(one, Change)]
        await asyncio.gather(*(client.leave(one) for one in groups))
        answers["left"] = len(await client.groups(DEFAULT))
        answers["counts"] = dict(client.counts)
    return answers


def _group(number: int) -> Gid:
    return Gid(mgid.broadcast(DEFAULT).raw[:12] + number.to_bytes(4, "big"))


def _prepare() -> None:
    link_up("vec0")
    rdma_up("rxe0", "rxe", "vec0")
