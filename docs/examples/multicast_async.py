# SPDX-License-Identifier: BSD-2-Clause
"""Three endpoints and asyncio: one sends to an IPv6 multicast group that the two others joined.

Run: python docs/examples/multicast_async.py [soft:NETDEV]
With a device, a fourth endpoint on the built-in HCA says what it sits on (needs a net device with an
IPv6 link-local address; no privilege).
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import struct
import sys

from ipoibu import Endpoint, EndpointConfig, Gid
from ipoibu.fabric.memory import MemoryPort, MemorySwitch

GROUP = ipaddress.IPv6Address("ff02::4242")
NO_NEXT_HEADER = 59


def packet(source: ipaddress.IPv6Address, data: bytes) -> bytes:
    head = struct.pack(">IHBB", 6 << 28, len(data), NO_NEXT_HEADER, 1)
    return head + source.packed + GROUP.packed + data


async def listen(endpoint: Endpoint) -> None:
    for received in await endpoint.arecv():
        print(endpoint.config.name, "heard", received[40:].decode())


async def main() -> None:
    switch = MemorySwitch()
    endpoints = [
        Endpoint(
            EndpointConfig(name, "memory"), port=MemoryPort(switch, Gid.parse(f"fe80::{number}"))
        )
        for number, name in enumerate(("speaker", "left", "right"), start=1)
    ]
    async with contextlib.AsyncExitStack() as stack:
        for endpoint in endpoints:
            await stack.enter_async_context(endpoint)
        speaker, *listeners = endpoints
        for listener in listeners:
            listener.join(GROUP)
        hearing = [asyncio.create_task(listen(listener)) for listener in listeners]
        await speaker.asend([packet(ipaddress.IPv6Address("fe80::1"), b"hello, group")])
        await asyncio.wait_for(asyncio.gather(*hearing), timeout=10)
    for device in sys.argv[1:]:
        with Endpoint(EndpointConfig("ib0", device)) as endpoint:
            print(endpoint.config.device, "has", endpoint.hwaddr)


if __name__ == "__main__":
    asyncio.run(main())
