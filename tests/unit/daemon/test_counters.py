# SPDX-License-Identifier: BSD-2-Clause
"""The counters' explanations, and the page that they make."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from ipoibu.daemon.metrics.counters import Section, counter, sections
from tests.interpreter import run

each_section = pytest.mark.parametrize("section", sections(), ids=lambda section: section.title)


def test_the_page_of_counters_is_what_the_explanations_say() -> None:
    run(["docs/make/list_counters.py", "--check"])


@each_section
def test_a_section_marks_counters_that_it_has(section: Section) -> None:
    assert section.ends <= set(section.counters)
    for pattern in (*section.drops, *section.per_port):
        assert any(fnmatchcase(name, pattern) for name in section.counters), pattern


def test_a_counter_is_explained_in_plain_text() -> None:
    assert (
        counter("fabric.tx_calls").meaning
        == "calls of sendmmsg: tx_packets / tx_calls is the batching"
    )
    assert (
        counter("engine.renewals").meaning == "heavy flushes (sa.md): the queue pair was made anew"
    )
    assert counter("no.such").meaning is None


def test_a_queues_counter_is_explained_as_the_sum_is() -> None:
    assert counter("queue.3.tx_missed") == counter("tx_missed")


def test_a_counter_says_whether_it_counts_lost_packets() -> None:
    lost = ("tx_unreachable", "rx_device_full", "fabric.drop_icrc", "engine.arp_short")
    assert all(counter(name).is_drop for name in lost)
    assert not any(counter(name).is_drop for name in ("tx_packets", "rx_control", "wakeups"))


def test_a_counter_says_whether_the_interfaces_of_a_port_share_it() -> None:
    assert all(counter(name).is_per_port for name in ("fabric.rx_calls", "engine.cm_retry"))
    assert not any(counter(name).is_per_port for name in ("tx_packets", "engine.connection_idle"))
