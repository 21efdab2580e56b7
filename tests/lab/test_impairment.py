# SPDX-License-Identifier: BSD-2-Clause
"""A wire that loses frames, and the capture that shows it."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from ipoibu.lab.machines.capture import Capture
from ipoibu.lab.machines.impairment import MEND_COMMAND, impair_command, impairments
from ipoibu.lab.machines.runner import INFINIBAND, run, shell

pytestmark = pytest.mark.lab

PINGS = 300


def frames(path: Path, filters: str) -> int:
    """Return the number of frames in a capture."""
    words = ["tshark", "-r", str(path), "-Y", filters, "-T", "fields", "-e", "frame.number"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return len(done.stdout.splitlines())


def test_a_fifth_of_the_frames_is_lost_and_the_capture_has_the_others(
    lab_kernel: Path, tmp_path: Path
) -> None:
    impair = shlex.join(impair_command(impairments(["a:loss 20%"], "ab")["a"]))
    script = f"""
        link_up vec0; rdma_up rxe0 rxe vec0
        ip link set ib0 up; ip addr add 10.9.0.$LAB_INDEX/24 dev ib0
        meet up
        if ((LAB_INDEX == 1)); then
            reach 10.9.0.2
            {impair}
            ping -q -c {PINGS} -i 0.002 10.9.0.2 || true
            tc -s qdisc show dev vec0
            {shlex.join(MEND_COMMAND)}
            reach 10.9.0.2
        fi
        meet done
    """
    path = tmp_path / "wire.pcapng"
    with Capture(path, "ab") as capture:
        results = run(
            lab_kernel,
            [shell(script)] * 2,
            directory=tmp_path,
            kernel_arguments=[INFINIBAND] * 2,
            capture=capture,
        )
    output = results[0].check().output
    results[1].check()
    match = re.search(rf"{PINGS} packets transmitted, (\d+) received", output)
    assert match is not None
    assert int(match[1]) < PINGS - 25  # five standard deviations
    requests = frames(path, 'frame.interface_name == "a" && infiniband && icmp.type == 8')
    assert PINGS - 100 < requests < PINGS - 25 + 2
    assert frames(path, 'frame.interface_name == "b" && infiniband && icmp.type == 0') > 100
    assert frames(path, "_ws.malformed") == 0
    assert capture.dropped_frames == 0
