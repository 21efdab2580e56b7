# SPDX-License-Identifier: BSD-2-Clause
"""Loss at a pulled wire: ipoibu with two devices beside the kernel's bond over two ib_ipoib, in lab machines.

`.venv/bin/python -m bench.rails [--json FILE] [ROUNDS]`. The contenders take turns, each in two machines
that were just booted. In each round the wire of the active rail goes down at the switch, while the other
machine, the kernel's ib_ipoib, pings every 5 ms. See bench/notes/rails.md.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import tempfile
from pathlib import Path
from typing import Any

from ipoibu.bench.environment import environment
from ipoibu.lab.machines.judge import PORT, SCRIPTS
from ipoibu.lab.machines.kernels import find_kernel
from ipoibu.lab.machines.lab import Lab
from ipoibu.lab.machines.plan import NO_FABRIC
from ipoibu.lab.machines.roles import play
from ipoibu.lab.machines.runner import SCENARIOS, source

CONTENDERS = ("bond", "ipoibu")
PING_MS = 5
TURNS = 2


def lost(kernel: Path, contender: str, rounds: int) -> list[int]:
    """Boot two machines; return the lost requests of each round."""
    script = source(*SCRIPTS, SCENARIOS / "rails_host.sh") + f"rails {contender} {rounds}"
    with tempfile.TemporaryDirectory(prefix="ipoibu-bench-") as name:
        directory = Path(name)
        lab = Lab(kernel=kernel, fabric=NO_FABRIC, output=directory, kernel_arguments=[PORT] * 2)
        for result in play(lab, [script] * 2, 120 + 15 * rounds):
            result.check()
        return [_lost((directory / f"ping-{round_}").read_text()) for round_ in range(rounds)]


def _lost(report: str) -> int:
    match = re.search(r"(\d+) packets transmitted, (\d+) received", report)
    if match is None:
        raise SystemExit(f"ping said: {report}")
    return int(match[1]) - int(match[2])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path, help="write the result to this file")
    parser.add_argument("rounds", type=int, nargs="?", default=5, help="wires to pull in each turn")
    options = parser.parse_args()
    kernel = find_kernel()
    found: dict[str, list[int]] = {contender: [] for contender in CONTENDERS}
    for _ in range(TURNS):
        for contender in CONTENDERS:
            found[contender] += lost(kernel, contender, options.rounds)
    result: dict[str, Any] = {
        "environment": environment() | {"command": f"python -m bench.rails {options.rounds}"},
        "ping_ms": PING_MS,
        "lost": found,
    }
    for contender, values in found.items():
        least, middle, most = min(values), statistics.median(values), max(values)
        print(f"{contender:7} lost requests: least {least}, median {middle:g}, most {most}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
