# SPDX-License-Identifier: BSD-2-Clause
"""The soak's short version: `make soak HOURS=1` is the long one."""

from __future__ import annotations

import pytest

from tests.soak.soak import run

pytestmark = pytest.mark.netns

RESUME_S = 30.0  # this machine may have other work; the long soak asks for 3 s


@pytest.mark.beside
def test_three_hosts_carry_on_after_each_fault_for_twenty_seconds() -> None:
    """Kills, restarts, flaps, MTUs, losses and stops; descriptors, memory and counters at the end."""
    report = run(3, 20, seed=3, resume_s=RESUME_S, faults_min=4)
    assert report.failures == [], str(report)
    assert sum(map(len, report.faults.values())) >= 4
