# SPDX-License-Identifier: BSD-2-Clause
"""Reliable connections between Soft-RoCE and the built-in HCA, with the kernel as the judge."""

from pathlib import Path

import pytest

from tests.lab.pingpong import RXE, SOFT, play

pytestmark = pytest.mark.lab


@pytest.mark.parametrize("server", [RXE, SOFT])
@pytest.mark.parametrize(("size", "mtu"), [(4096, 1024), (65524, 1024), (65524, 4096), (1, 256)])
def test_ibv_rc_pingpong_plays_with_the_built_in_hca(
    lab_kernel: Path, tmp_path: Path, server: str, size: int, mtu: int
) -> None:
    """rdma-core's own program, unmodified, sends messages of up to 64 packets; ours checks each."""
    game = f"-e -n 200 -s {size} -m {mtu}"
    rxe = f"ibv_rc_pingpong -d rxe0 -g 0 {game}"
    outputs = play(lab_kernel, tmp_path, server, rxe, f"soft_rc_pingpong -c -d vec0 {game}")
    assert "200 iters in" in outputs[RXE]
    assert f"{size} bytes, 200 messages each way in" in outputs[SOFT]
