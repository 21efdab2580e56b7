# SPDX-License-Identifier: BSD-2-Clause
"""Drops of the data path in the log: by reason, thinned, with the likely cause."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from ipoibu.base.addr import PKey
from ipoibu.base.errors import Closed
from ipoibu.base.ib import PartitionParams
from ipoibu.daemon.metrics import drop_log
from ipoibu.daemon.metrics.counters import counter
from ipoibu.daemon.metrics.drop_log import CountedDrops, DropLog
from tests.doubles.endpoint import EndpointDouble

SOURCES: Final = {"fabric.drop_too_long": "fe80::7", "fabric.drop_qkey": "192.0.2.7"}


def test_a_reason_is_logged_at_once_and_then_after_1_2_4_minutes() -> None:
    stats = {"tx_no_route": 7, "tx_packets": 1}
    drops = CountedDrops(stats)
    assert drops.look(0.0, stats) == []
    logged = []
    for second in range(1, 7 * 60 + 2):
        stats = {"tx_no_route": 7 + second, "tx_packets": second}
        logged += [(second, *each) for each in drops.look(float(second), stats)]
    assert logged == [
        (1, "tx_no_route", 1),
        (61, "tx_no_route", 60),
        (181, "tx_no_route", 120),
        (421, "tx_no_route", 240),
    ]


def test_a_reason_that_paused_for_long_begins_anew() -> None:
    drops = CountedDrops({"tx_no_route": 0})
    assert drops.look(0.0, {"tx_no_route": 1})
    assert drops.look(60.0, {"tx_no_route": 2})
    assert drops.look(10_000.0, {"tx_no_route": 3})
    assert drops.look(10_060.0, {"tx_no_route": 4}) == [("tx_no_route", 1)]


def test_counters_of_the_engine_of_one_queue_and_of_no_drop_make_no_line() -> None:
    names = ("engine.arp_short", "queue.0.tx_no_route", "rx_echo", "wakeups", "unheard_of")
    assert CountedDrops(dict.fromkeys(names, 0)).look(1.0, dict.fromkeys(names, 9)) == []


def test_a_counter_that_begins_anew_is_no_drop() -> None:
    drops = CountedDrops({"fabric.drop_qpn": 100})
    assert drops.look(1.0, {"fabric.drop_qpn": 0}) == []
    assert drops.look(2.0, {"fabric.drop_qpn": 2}) == [("fabric.drop_qpn", 2)]


Logged = list[tuple[str, str]]
LogOf = Callable[..., Logged]


@pytest.fixture
def log_of(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> LogOf:
    """`log_of(STATS, STATS...)` returns the level and the text of each line about these counters."""
    monkeypatch.setattr(drop_log, "DROP_LOOK_S", 0.0)

    def of(*stats: dict[str, int], is_limited: bool = False) -> Logged:
        with caplog.at_level(logging.INFO):
            _write_all(iter(stats), is_limited=is_limited)
        records = [it for it in caplog.records if it.name.endswith("log")]
        return [(it.levelname, it.getMessage()) for it in records]

    return of


def _write_all(looks: Iterator[dict[str, int]], *, is_limited: bool) -> None:

    class Ended(EndpointDouble):
        mtu = 2044
        params = PartitionParams(PKey(0x8005), 0xB1B, 2048, is_limited=is_limited)

        def stats(self) -> dict[str, int]:
            for look in looks:
                return look
            raise Closed("ib0: the endpoint is not open")

        def drop_sources(self) -> dict[str, str]:
            return SOURCES

    async def main() -> None:
        with ThreadPoolExecutor(1) as executor:
            log = DropLog("ib0", Ended(), executor)
            log.start()
            assert log._task is not None
            async with asyncio.timeout(60):
                await log._task
            await log.close()

    asyncio.run(main())


def test_packets_that_are_too_long_are_a_warning_with_the_likely_cause(log_of: LogOf) -> None:
    assert log_of(
        {"fabric.drop_too_long": 0, "fabric.drop_qkey": 0, "tx_no_route": 0},
        {"fabric.drop_too_long": 1, "fabric.drop_qkey": 2, "tx_no_route": 3},
    ) == [
        (
            "WARNING",
            "ib0: dropped a packet from fe80::7, fabric.drop_too_long: another host of the link probably"
            " has a larger MTU than ours, 2044: give all hosts of the link the same --mtu",
        ),
        (
            "INFO",
            "ib0: dropped 2 packets, the last from 192.0.2.7, fabric.drop_qkey: with another Q_Key",
        ),
        ("INFO", "ib0: dropped 3 packets, tx_no_route: an unreachable route"),
    ]


def test_a_limited_member_names_its_membership_once(
    log_of: LogOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drop_log, "DROP_LOG_MIN_S", 0.0)
    monkeypatch.setattr(drop_log, "DROP_LOG_MAX_S", 0.0)
    lines = log_of(*({"fabric.drop_pkey": count} for count in range(3)), is_limited=True)
    assert lines == [
        (
            "WARNING",
            "ib0: dropped a packet, fabric.drop_pkey: this host is a limited member of partition 0x8005,"
            " and probably the sender is one, too: two limited members cannot reach each other; make one"
            " of them a full member in partitions.conf",
        ),
        ("INFO", f"ib0: dropped a packet, fabric.drop_pkey: {counter('fabric.drop_pkey').meaning}"),
    ]


def test_a_full_member_drops_foreign_packets_without_a_warning(log_of: LogOf) -> None:
    [(level, text)] = log_of({"fabric.drop_pkey": 0}, {"fabric.drop_pkey": 1})
    assert (level, "limited member of partition" in text) == ("INFO", False)
