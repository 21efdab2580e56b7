# SPDX-License-Identifier: BSD-2-Clause
"""`Endpoint.ping`: waits for the answers to the engine's pings. Everything runs on the engine's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from ipoibu.base.addr import Gid, HwAddr, IpAddress, link_local
from ipoibu.base.errors import LinkError
from ipoibu.base.limits import PINGS_MAX, STATUS_PAGE
from ipoibu.fabric.base import Port
from ipoibu.proto.effects import Effect
from ipoibu.proto.engine import Engine


class Pinger:
    """The pings of one interface, at most PINGS_MAX at a time."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        engine: Engine,
        perform: Callable[[Iterable[Effect]], None],
        port: Port,
    ) -> None:
        self._loop = loop
        self._port = port
        self._engine = engine
        self._perform = perform
        self._waiting: dict[IpAddress, set[asyncio.Future[HwAddr | None]]] = {}

    def follow(self, port: Port) -> None:
        """Ping from another port from now on."""
        self._port = port

    def note_answered(self, ip: IpAddress, hwaddr: HwAddr | None) -> None:
        """Take the engine's effect `Answered`."""
        for future in self._waiting.get(ip, ()):
            if not future.done():
                future.set_result(hwaddr)

    async def ping(self, target: IpAddress | HwAddr, timeout_s: float) -> dict[str, Any]:
        """Ask once; see `Endpoint.ping`."""
        ip, known = await self._resolve(target)
        obstacle = self._obstacle(ip)
        if obstacle is not None:
            return _outcome(ip, known, None, obstacle)
        return await self._ask(ip, known, timeout_s)

    async def _resolve(self, target: IpAddress | HwAddr) -> tuple[IpAddress, HwAddr | None]:
        """Return the IP address to ask for, and the host to ask if it is known."""
        if not isinstance(target, HwAddr):
            return target, None
        ips = self._engine.neighbour_ips()
        for first in range(0, len(ips), STATUS_PAGE):
            for info in self._engine.neighbours(0.0, ips[first : first + STATUS_PAGE]):
                if info.hwaddr is not None and info.hwaddr.same_queue_pair(target):
                    return info.ip, target
            await asyncio.sleep(0)  # the engine does other work
        return link_local(self._guid_of(target.gid)).ip, target

    def _guid_of(self, gid: Gid) -> bytes:
        """Return the port GUID behind a GID, made as ours is: the hosts of a link have like ports."""
        own = self._port.info
        return gid.interface_id if own.guid == own.gid.interface_id else gid.hashed_guid

    def _obstacle(self, ip: IpAddress) -> str | None:
        if not self._engine.is_up:
            return "the link is down"
        if sum(map(len, self._waiting.values())) >= PINGS_MAX:
            raise LinkError(f"{PINGS_MAX} pings are under way; try again later")
        return self._engine.pings.obstacle(ip)

    async def _ask(self, ip: IpAddress, known: HwAddr | None, timeout_s: float) -> dict[str, Any]:
        future: asyncio.Future[HwAddr | None] = self._loop.create_future()
        waiting = self._waiting.setdefault(ip, set())
        waiting.add(future)
        began = self._loop.time()
        try:
            self._perform(self._engine.pings.ask(began, ip, known))
            await asyncio.wait((future,), timeout=timeout_s)
            if not future.done():
                return _outcome(ip, known, None, self._engine.pings.silence(ip, known))
            return _outcome(ip, future.result() or known, self._loop.time() - began, None)
        finally:
            self._engine.pings.end(ip)
            waiting.discard(future)
            if not waiting:
                self._waiting.pop(ip, None)


def _outcome(
    ip: IpAddress, hwaddr: HwAddr | None, rtt_s: float | None, reason: str | None
) -> dict[str, Any]:
    return {
        "ip": str(ip),
        "hwaddr": str(hwaddr) if hwaddr is not None else None,
        "method": "arp" if ip.version == 4 else "nd",
        "rtt_ms": round(rtt_s * 1000, 3) if rtt_s is not None else None,
        "reason": reason,
    }
