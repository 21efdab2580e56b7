# SPDX-License-Identifier: BSD-2-Clause
"""A ping-pong program of ext/soft on the built-in HCA, and one of rdma-core on Soft-RoCE."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ipoibu.lab.machines.mounts import ROOT
from ipoibu.lab.machines.runner import SCENARIOS, shell, source
from tests.lab.bare import run

_CASES = Path(__file__).parent / "scenarios" / "verbs_cases.sh"
_PRELUDE = source(SCENARIOS / "verbs_host.sh", _CASES)
RXE = "rxe0"
SOFT = "soft:vec0"


def play(kernel: Path, directory: Path, server: str, rxe: str, program: str) -> dict[str, str]:
    """Build the program and run both commands, `server` (RXE or SOFT) first; return what each printed.

    `program` is the name with its arguments. The machines' /run/lab is `directory`/run.
    """
    name = program.partition(" ")[0]
    made = directory / "build" / name
    made.parent.mkdir()
    make = ["make", "-s", "-C", str(ROOT / "ext/soft"), f"BUILD={made.parent}", str(made)]
    subprocess.run(make, check=True)
    commands = {RXE: rxe, SOFT: f"/src/{program}"}
    client = SOFT if server == RXE else RXE
    results = run(
        kernel,
        [
            shell(f"{_PRELUDE}as_host {server} serve {commands[server]}"),
            shell(f"{_PRELUDE}as_host {client} join_in {commands[client]} 10.8.0.1"),
        ],
        directory / "run",
        share=made.parent,
    )
    outputs = (result.check().output for result in results)
    return dict(zip((server, client), outputs, strict=True))
