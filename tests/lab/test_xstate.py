# SPDX-License-Identifier: BSD-2-Clause
"""Machines on a host whose processor has more floating-point state than the kernel reserved."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from ipoibu.lab import Lab, MachineFailed
from tests.lab import wide_host

pytestmark = pytest.mark.lab

# Processes that fork, fault pages in, take signals and share a processor while they compute.
SCRIPT = r"""
    for each in 1 2 3; do
        awk 'BEGIN { for (; n < 40000; n++) total += sqrt(n); printf "%.3f\n", total }' &
    done
    wait
    timeout 0.2 sleep 5 || echo "status $?"
"""


def compute_and_power_off(kernel: Path) -> None:
    with Lab(1, kernel=kernel, fabric="none", kernel_arguments=[["seccomp=off"]]) as lab:
        assert lab.a.succeed(SCRIPT) == "5333233.126\n" * 3 + "status 124\n"
        lab.a.succeed("echo o >/proc/sysrq-trigger; sleep 1000")


@pytest.mark.parametrize("size_bytes", [11008, 40000], ids=["amx", "unheard-of"])
def test_a_machine_runs_where_the_state_is_larger_than_2696_bytes(
    lab_kernel: Path, tmp_path: Path, size_bytes: int
) -> None:
    report = tmp_path / "report"
    kernel = tmp_path / "linux"
    words = [sys.executable, wide_host.__file__, str(size_bytes), str(report), str(lab_kernel)]
    kernel.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    kernel.chmod(0o755)
    # The stand-in for such a host sits between ptrace and the kernel, and reports when that has ended.
    with pytest.raises(MachineFailed, match="the machine ended"):
        compute_and_power_off(kernel)
    counts = json.loads(report.read_text())
    assert counts.pop("gets") > 1000
    assert counts.pop("sets") > 1000
    assert counts == {"refused": 0, "damaged": 0}
