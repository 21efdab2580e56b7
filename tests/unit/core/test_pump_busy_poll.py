# SPDX-License-Identifier: BSD-2-Clause
"""The time that a pump polls before it sleeps, and its change while the pump runs."""

from __future__ import annotations

import time

from ipoibu import _core

MINUTE_US = 60_000_000


def _sync(pump: _core.Pump, token: int) -> None:
    """Return when the pump has executed all commands."""
    pump.sync(token)
    deadline = time.monotonic() + 30
    while token not in [event.token for event in pump.events() if event.type == _core.EVENT_SYNC]:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _wakeups(pump: _core.Pump) -> int:
    before = pump.counters()["wakeups"]
    for token in range(100, 120):
        _sync(pump, token)
    return pump.counters()["wakeups"] - before


def test_the_time_of_polling_changes_while_the_pump_runs() -> None:
    port = _core.MemoryPort(_core.MemorySwitch(1), bytes(15) + b"\x01")
    pump = _core.Pump(port, _core.QueueDevice(), mtu=2044 - 1024, busy_poll_us=0)
    pump.start()
    try:
        pump.busy_poll(MINUTE_US)
        _sync(pump, 1)
        assert _wakeups(pump) == 0  # it polls for each command
        pump.busy_poll(0)
        _sync(pump, 2)
        deadline = time.monotonic() + 30
        while _wakeups(pump) == 0:  # it sleeps before some command
            assert time.monotonic() < deadline
        pump.busy_poll(None)
        _sync(pump, 3)
        assert pump.counters()["commands_bad"] == 0
    finally:
        pump.stop()
        pump.close()
