# SPDX-License-Identifier: BSD-2-Clause
"""A restart over an RDMA device: the TUN and the streams over it stay, the queue pair does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ipoibu.lab.machines.runner import SCENARIOS, shell, source
from tests.lab.bare import run

from .scenarios.restart import PORT

pytestmark = pytest.mark.lab

PRELUDE = source(SCENARIOS / "verbs_host.sh")
CALL = "python -m ipoibu.lab.machines.inside.call tests.lab.scenarios.restart:restart"


@pytest.mark.parametrize("mode", ["datagram", pytest.param("connected", marks=pytest.mark.nightly)])
def test_a_restart_over_rxe_keeps_the_interface_and_its_streams(
    lab_kernel: Path, tmp_path: Path, mode: str
) -> None:
    options = f"rxe0 --mtu 4092 --mode {mode}"
    echo = f"socat TCP4-LISTEN:{PORT},reuseaddr EXEC:cat"
    there = f"ib_up {options}; {echo} & listening {PORT}; meet up 100; meet done 100; ib_down"
    first, second = run(
        lab_kernel,
        [
            shell(f"{PRELUDE}as_host rxe0 {CALL} {options}"),
            shell(f"{PRELUDE}there() {{ {there}; }}; as_host rxe0 there"),
        ],
        directory=tmp_path,
        timeout_s=110,
    )
    second.check()
    seen = json.loads(first.check().output.splitlines()[-1])
    before, after = seen["before"], seen["after"]
    assert seen["stored"] == ["state", "tun-0-ib0"]  # nothing of an RDMA device can be stored
    assert seen["echoes"] == ["before the restart", "between", "\0" * 5]
    assert (after["index"], after["addresses"]) == (before["index"], before["addresses"])
    assert after["addresses"] == ["10.7.0.1", "10.9.0.1"]
    assert after["hwaddr"] != before["hwaddr"]  # another queue pair ...
    assert after["hwaddr"][12:] == before["hwaddr"][12:]  # ... of the same port
