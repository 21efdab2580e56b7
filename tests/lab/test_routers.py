# SPDX-License-Identifier: BSD-2-Clause
"""FRR on the kernel's own ib_ipoib and on ipoibu, as docs/use/routers.md configures it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipoibu.lab.machines.judge import KERNEL, SCRIPTS, SOFT_IB, play
from tests.netns.page_configs import config

ROUTERS = (*SCRIPTS, Path(__file__).parent / "scenarios" / "routers.sh")

pytestmark = [pytest.mark.lab, pytest.mark.timeout(240, func_only=True)]


@pytest.mark.parametrize("protocol", ["OSPF", "BGP"])
@pytest.mark.parametrize("first", [SOFT_IB, pytest.param(KERNEL, marks=pytest.mark.nightly)])
def test_routers_without_a_subnet_meet(
    lab_kernel: Path, tmp_path: Path, first: str, protocol: str
) -> None:
    """FRR on ib_ipoib misplaces the address in its router advertisements, which are heard all the same."""
    text = config(f"! frr.conf: {protocol} without a subnet")
    words = {"OSPF": ("ospf6", "ospfd", "ospf6d"), "BGP": ("bgp", "bgpd")}[protocol]
    play(lab_kernel, tmp_path, (first, KERNEL), "routers", text, *words, scripts=ROUTERS)
