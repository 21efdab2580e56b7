# SPDX-License-Identifier: BSD-2-Clause
"""Soft-RoCE as the judge of the built-in HCA over IPv4: ext/soft/README.md, "IPv4"."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from ipoibu.lab.machines.runner import ROOT, SCENARIOS, run, shell, source

pytestmark = pytest.mark.lab

CASES = Path(__file__).parent / "scenarios" / "verbs_cases.sh"
PRELUDE = source(SCENARIOS / "verbs_host.sh", CASES)
GIDS = "/sys/class/infiniband/rxe0/ports/1/gids/1"
COUNT = 300


@pytest.mark.parametrize("kind", ["ud", "rc"])
@pytest.mark.parametrize("server", ["rxe0", "soft:vec0"])
def test_ibv_pingpong_plays_over_ipv4(
    lab_kernel: Path, tmp_path: Path, server: str, kind: str
) -> None:
    """The kernel accepts every packet of ours. In its packets the ICRC covers an identification that we do
    not see, so we accept any: `-i`."""
    name = "soft_pingpong" if kind == "ud" else "soft_rc_pingpong"
    program = tmp_path / "build" / name
    make = ["make", "-s", "-C", str(ROOT / "ext/soft"), f"BUILD={program.parent}", str(program)]
    subprocess.run(make, check=True)
    game = f"-e -n {COUNT} -s 1024"
    watch = f"python3 -m tests.lab.scenarios.ipv4_headers vec0 {COUNT} /run/lab/headers.json"
    prepare = (
        f"until grep -q ffff:0a08 {GIDS}; do sleep 0.05; done; {watch} &"
        " until [ -e /run/lab/headers.json ]; do sleep 0.05; done"
    )
    play = f"ibv_{kind}_pingpong -d rxe0 -g 1 {game} $* && wait"
    players = {
        "rxe0": f"sh -c '{prepare}; {play}' sh",
        "soft:vec0": f"/run/lab/build/{name} -c -a ipv4 -i -d vec0 {game}",
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
    assert f"{COUNT} iters in" in outputs["rxe0"]
    assert f"1024 bytes, {COUNT} messages each way in" in outputs["soft:vec0"]
    numbered = re.search(r"(\d+) packets with another IPv4 ident", outputs["soft:vec0"])
    assert numbered is not None
    assert int(numbered[1]) > COUNT / 2

    headers = json.loads((tmp_path / "headers.json").read_text())
    addresses = {server: "10.8.0.1", client: "10.8.0.2"}
    ours = [it for it in headers if it["source"] == addresses["soft:vec0"]]
    theirs = [it for it in headers if it["source"] == addresses["rxe0"]]
    assert len(ours) > COUNT / 4
    assert len(theirs) > COUNT / 4
    assert all(it["df"] for it in headers)
    assert {it["id"] for it in ours} == {0}
    assert len({it["id"] for it in theirs}) > len(theirs) / 2
    assert {it["udp_checksum"] for it in theirs} == {0}
    assert 0 not in {it["udp_checksum"] for it in ours}
    assert {it["ttl"] for it in headers} == {64}
