# SPDX-License-Identifier: BSD-2-Clause
"""docs/use/rdma-guide.md: each session runs as it stands, but that a script takes the place of the shell."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from ipoibu.lab.machines.kernels import default_release
from tests.doubles.page_blocks import ROOT, Block, blocks, missing

pytestmark = [pytest.mark.lab, pytest.mark.nightly]

PAGE: Final = "docs/use/rdma-guide.md"
START: Final = ".venv/bin/ipoibu lab "
BETWEEN: Final = "=== next block ==="
# The release that the lab boots or that the environment names, and that of Debian 13.
RELEASES: Final = ("", "6.12") if default_release() != "6.12" else ("",)


def sessions() -> list[list[Block]]:
    """Return the blocks of each session, whose first one starts the machines."""
    found: list[list[Block]] = []
    for block in blocks(PAGE, "console"):
        if block.commands[0].startswith(START):
            found.append([])
        found[-1].append(block)
    return found


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("session", sessions(), ids=lambda it: it[0].line)
def test_a_session_prints_what_the_page_shows(
    lab_kernel: Path, session: list[Block], release: str
) -> None:
    start, *first = session[0].commands
    words = shlex.split(start.removeprefix(START))
    at = words.index("--shell")
    machine = words.pop(at + 1)
    words.pop(at)
    script = "\n".join(first)
    for block in session[1:]:
        script += "\n".join(["", f"echo '{BETWEEN}'", *block.commands])
    assert script.endswith("\nexit")
    # What is for all begins when the scripts before it have ended, as the shell does.
    words += ["--run", "all=:", "--run", f"{machine}={script}", "--timeout", "200"]
    done = subprocess.run(
        [sys.executable, "-m", "ipoibu.cli", "lab", *words],
        cwd=ROOT,
        env={**os.environ, **({"IPOIBU_LAB_KERNEL": release} if release else {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = [it[4:] for it in done.stdout.splitlines() if it.startswith(f"{machine} | ")]
    parts = "\n".join(said).replace("\t", " ").split(BETWEEN)
    for block, printed in zip(session, parts, strict=True):
        line = missing(block.output, printed)
        assert line is None, f"{block.page}:{block.line}: no {line!r} in its place in:\n{printed}"
