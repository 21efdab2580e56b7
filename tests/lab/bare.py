# SPDX-License-Identifier: BSD-2-Clause
"""Machines in which nothing runs but a test's own commands: no RDMA device is there, and vec0 is down."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ipoibu.lab import Lab, Result, play


def run(
    kernel: Path,
    commands: Sequence[str | Sequence[str]],
    directory: Path | None = None,
    *,
    timeout_s: float = 60,
    kernel_arguments: Sequence[Sequence[str]] = (),
    init: str = "lab",
    share: Path | None = None,
) -> list[Result]:
    """Run a command in each machine of a lab, side by side, and return their results.

    `directory` is an empty one for what the machines write to /run/lab, and `share` what they see at /src.
    """
    lab = Lab(
        len(commands),
        kernel=kernel,
        fabric="none",
        output=directory,
        kernel_arguments=kernel_arguments,
        init=init,
        share=share,
    )
    return play(lab, commands, timeout_s)
