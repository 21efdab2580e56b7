# SPDX-License-Identifier: BSD-2-Clause
"""The wait between two attempts at what the subnet administrator refuses."""

from __future__ import annotations

import asyncio

from ipoibu.proto.machine.backoff import Backoff


async def rest(backoff: Backoff, changed: asyncio.Event) -> None:
    """Wait until the next attempt is due, or until something has changed: then the waits are short again."""
    try:
        async with asyncio.timeout(backoff.next_s()):
            await changed.wait()
        backoff.shorten()
    except TimeoutError:
        pass
