# SPDX-License-Identifier: BSD-2-Clause
"""An endpoint takes fewer packet frames where the device may not pin more memory."""

from __future__ import annotations

import errno
import logging
from typing import Any

import pytest

from ipoibu import Endpoint, EndpointConfig, Gid, LinkError, UsageError, _core
from ipoibu._core import MemorySwitch
from ipoibu.fabric.memory import MemoryPort

REAL = _core.Pump


def refuse_more_than(frames: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let pumps with more receives fail as they do at the limit; return the numbers that are tried."""
    tried: list[int] = []

    def make(*args: Any, frames_halved: int, **options: Any) -> _core.Pump:
        tried.append(1024 >> frames_halved)
        if tried[-1] > frames:
            raise OSError(errno.ENOMEM, "pump")
        return REAL(*args, frames_halved=frames_halved, **options)

    monkeypatch.setattr(_core, "Pump", make)
    return tried


def endpoint(**options: Any) -> Endpoint:
    port = MemoryPort(MemorySwitch(7), Gid.parse("fe80::1"), active_mtu_bytes=2048)
    return Endpoint(EndpointConfig("ib0", "memory", **options), port=port)


def test_it_halves_the_frames_until_they_fit_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = refuse_more_than(128, monkeypatch)
    with caplog.at_level(logging.WARNING), endpoint() as opened:
        assert opened.mtu == 2044
    assert tried == [1024, 512, 256, 128]
    assert "ib0: no more memory may be locked: 128 frames in place of 1024" in caplog.text


def test_it_begins_with_the_configured_number(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = refuse_more_than(1024, monkeypatch)
    with endpoint(frames=300):
        pass
    assert tried == [256]


def test_below_the_smallest_number_the_error_names_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = refuse_more_than(32, monkeypatch)
    with pytest.raises(LinkError, match="64 packet frames need 2 MiB of locked memory: ulimit -l"):
        endpoint().open()
    assert tried[-1] == 64


@pytest.mark.parametrize("frames", [63, 1025])
def test_a_number_that_cannot_be_is_refused(frames: int) -> None:
    with pytest.raises(UsageError, match=f"frames {frames}: expected 64 to 1024 frames"):
        EndpointConfig("ib0", "memory", frames=frames)


def test_fewer_frames_still_carry_packets() -> None:
    switch = MemorySwitch(7)
    first, second = (
        Endpoint(
            EndpointConfig("ib0", "memory", frames=64, dad_ipv4="off"),
            port=MemoryPort(switch, Gid.parse(gid), active_mtu_bytes=2048),
        )
        for gid in ("fe80::1", "fe80::2")
    )
    with first, second:
        first.address_added("10.0.0.1/24")
        second.address_added("10.0.0.2/24")
        packet = bytes.fromhex("4500001c000000004011 0000 0a000001 0a000002 1388138900080000")
        received = 0
        for _ in range(10):
            first.send([packet] * 50)
            received += len(list(second.recv(timeout=5)))
        assert received > 0
