# SPDX-License-Identifier: BSD-2-Clause
"""Two RDMA ports under one interface, and the kernel's bond over two ib_ipoib in their place: a wire is
pulled, and another host, the kernel's ib_ipoib or on RoCE one of ours, goes on with both."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ipoibu.lab.machines.judge import PORT, SCRIPTS
from ipoibu.lab.machines.runner import SCENARIOS, shell, source
from tests.lab.bare import run

pytestmark = pytest.mark.lab

ROUNDS = 3


@pytest.mark.parametrize("contender", ["bond", "ipoibu", "connected", "roce"])
def test_the_other_host_goes_on_when_the_active_wire_is_pulled(
    lab_kernel: Path, tmp_path: Path, contender: str
) -> None:
    """The machines check that the active rail changes, that the other host reaches it in each round, and that
    ipoibu makes no queue pair for that."""
    script = source(*SCRIPTS, SCENARIOS / "rails_host.sh") + f"rails {contender} {ROUNDS}"
    commands = [shell(script)] * 2
    arguments = [() if contender == "roce" else PORT] * 2
    for result in run(
        lab_kernel, commands, directory=tmp_path, timeout_s=150, kernel_arguments=arguments
    ):
        result.check()
    for number in range(ROUNDS):
        report = (tmp_path / f"ping-{number}").read_text()
        match = re.search(r"400 packets transmitted, (\d+) received", report)
        assert match is not None, report
        assert int(match[1]) > 100, report


def test_flows_go_by_both_ports(lab_kernel: Path, tmp_path: Path) -> None:
    script = source(*SCRIPTS, SCENARIOS / "rails_host.sh") + "rails_spread"
    for result in run(lab_kernel, [shell(script)] * 2, directory=tmp_path, timeout_s=120):
        result.check()
