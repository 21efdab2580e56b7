# SPDX-License-Identifier: BSD-2-Clause
"""The action `ping` of the control socket: one ARP or ND request to one host."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from ipoibu.base.addr import HwAddr, IpAddress
from ipoibu.base.bounds import Range
from ipoibu.base.errors import UsageError
from ipoibu.daemon.config.parsers import parse_ip

TIMEOUT_MS: Final = Range(1, 10_000, "milliseconds")

Ping = Callable[[IpAddress | HwAddr, float], Coroutine[Any, Any, dict[str, Any]]]


def parse_target(text: str) -> IpAddress | HwAddr:
    """Read an IP address or a hardware address of 20 octets."""
    if text.count(":") == 19:
        return HwAddr.parse(text)
    return parse_ip(text, "neither an IP address nor a hardware address", "-I")


def pings(name: str, ping: Ping) -> dict[str, Callable[[Mapping[str, Any]], Any]]:
    """Return the actions of the interface `name`, by its endpoint's `aping`."""

    async def act(request: Mapping[str, Any]) -> object:
        target, timeout_ms = request.get("target"), request.get("timeout_ms", 1000)
        if not isinstance(target, str) or not isinstance(timeout_ms, int):
            raise UsageError('"target" is a text, "timeout_ms" a number')
        TIMEOUT_MS.check("timeout_ms", timeout_ms)
        return {"dev": name} | await ping(parse_target(target[:64]), timeout_ms / 1000)

    return {"ping": act}
