# SPDX-License-Identifier: BSD-2-Clause
"""Reliable connections between Soft-RoCE and the built-in HCA, with the kernel as the judge."""

import subprocess
from pathlib import Path

import pytest

from ipoibu.lab.machines.runner import ROOT, SCENARIOS, run, shell, source

pytestmark = pytest.mark.lab

CASES = Path(__file__).parent / "scenarios" / "verbs_cases.sh"
PRELUDE = source(SCENARIOS / "verbs_host.sh", CASES)


@pytest.mark.parametrize("server", ["rxe0", "soft:vec0"])
@pytest.mark.parametrize(("size", "mtu"), [(4096, 1024), (65524, 1024), (65524, 4096), (1, 256)])
def test_ibv_rc_pingpong_plays_with_the_built_in_hca(
    lab_kernel: Path, tmp_path: Path, server: str, size: int, mtu: int
) -> None:
    """rdma-core's own program, unmodified, sends messages of up to 64 packets; ours checks each."""
    program = tmp_path / "build/soft_rc_pingpong"
    make = ["make", "-s", "-C", str(ROOT / "ext/soft"), f"BUILD={program.parent}", str(program)]
    subprocess.run(make, check=True)
    game = f"-e -n 200 -s {size} -m {mtu}"
    players = {
        "rxe0": f"ibv_rc_pingpong -d rxe0 -g 0 {game}",
        "soft:vec0": f"/run/lab/build/soft_rc_pingpong -c -d vec0 {game}",
    }
    client = next(device for device in players if device != server)
    results = run(
        lab_kernel,
        [
            shell(f"{PRELUDE}as_host {server} serve {players[server]}"),
            shell(f"{PRELUDE}as_host {client} join_in {players[client]} 10.8.0.1"),
        ],
        directory=tmp_path,
        timeout_s=60,
    )
    outputs = dict(
        zip((server, client), (result.check().output for result in results), strict=True)
    )
    assert "200 iters in" in outputs["rxe0"]
    assert f"{size} bytes, 200 messages each way in" in outputs["soft:vec0"]
