# SPDX-License-Identifier: BSD-2-Clause
"""Soft-RoCE as the judge of the built-in HCA over IPv4: ext/soft/README.md, "IPv4"."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.lab.pingpong import RXE, SOFT, play

pytestmark = pytest.mark.lab

GIDS = "/sys/class/infiniband/rxe0/ports/1/gids/1"
COUNT = 300


@pytest.mark.parametrize("kind", ["ud", "rc"])
@pytest.mark.parametrize("server", [RXE, SOFT])
def test_ibv_pingpong_plays_over_ipv4(
    lab_kernel: Path, tmp_path: Path, server: str, kind: str
) -> None:
    """The kernel accepts every packet of ours. In its packets the ICRC covers an identification that we do
    not see, so we accept any: `-i`."""
    name = "soft_pingpong" if kind == "ud" else "soft_rc_pingpong"
    game = f"-e -n {COUNT} -s 1024"
    watch = f"python3 -m tests.lab.scenarios.ipv4_headers vec0 {COUNT} /run/lab/headers.json"
    prepare = (
        f"until grep -q ffff:0a08 {GIDS}; do sleep 0.05; done; {watch} &"
        " until [ -e /run/lab/headers.json ]; do sleep 0.05; done"
    )
    ibv = f"ibv_{kind}_pingpong -d rxe0 -g 1 {game} $* && wait"
    rxe = f"sh -c '{prepare}; {ibv}' sh"
    program = f"{name} -c -a ipv4 -i -d vec0 {game}"
    outputs = play(lab_kernel, tmp_path, server, rxe, program)
    assert f"{COUNT} iters in" in outputs[RXE]
    assert f"1024 bytes, {COUNT} messages each way in" in outputs[SOFT]
    numbered = re.search(r"(\d+) packets with another IPv4 ident", outputs[SOFT])
    assert numbered is not None
    assert int(numbered[1]) > COUNT / 2

    headers = json.loads((tmp_path / "run" / "headers.json").read_text())
    ours, theirs = (
        [it for it in headers if it["source"] == ("10.8.0.1" if host == server else "10.8.0.2")]
        for host in (SOFT, RXE)
    )
    assert len(ours) > COUNT / 4
    assert len(theirs) > COUNT / 4
    assert all(it["df"] for it in headers)
    assert {it["id"] for it in ours} == {0}
    assert len({it["id"] for it in theirs}) > len(theirs) / 2
    assert {it["udp_checksum"] for it in theirs} == {0}
    assert 0 not in {it["udp_checksum"] for it in ours}
    assert {it["ttl"] for it in headers} == {64}
