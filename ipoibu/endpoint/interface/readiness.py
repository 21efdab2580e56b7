# SPDX-License-Identifier: BSD-2-Clause
"""Waits until an interface is usable: up, its addresses checked, its leases there."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from ipoibu.endpoint.interface.transitions import Transitions
from ipoibu.proto.engine import Engine
from ipoibu.proto.machine.transition import Transition
from ipoibu.proto.neigh.dad import State as AddressState

LOOK_S: Final = 1.0  # a removed address is no transition


async def wait_usable(engine: Engine, transitions: Transitions, timeout_s: float | None) -> bool:
    """See `Endpoint.wait_up`; on the engine's loop."""
    changed = asyncio.Event()

    def note(transition: Transition) -> None:
        changed.set()

    transitions.add(note)
    try:
        async with asyncio.timeout(timeout_s):
            while not _is_usable(engine):
                changed.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), LOOK_S)
    except TimeoutError:
        return False
    finally:
        transitions.remove(note)
    return True


def _is_usable(engine: Engine) -> bool:
    states = [entry.state for entry in engine.addresses()]
    dhcp, dhcp6 = engine.dhcp, engine.dhcp6
    has_lease = dhcp is None or dhcp.has_lease
    has_lease6 = dhcp6 is None or dhcp6.has_lease
    is_checked = AddressState.TENTATIVE not in states
    return engine.is_up and has_lease and has_lease6 and is_checked
