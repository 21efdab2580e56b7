# SPDX-License-Identifier: BSD-2-Clause
"""The script of docs/use/lab.md, which tests keepalived on ib0, in both modes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.doubles.page_blocks import blocks

pytestmark = pytest.mark.lab

PAGE: Final = "docs/use/lab.md"
# It dies on ib0 with an IPv6 address: keepalived#2100.
FAULTY: Final = (2, 2, 7)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The script, in a directory to share."""
    (text,) = (it.text for it in blocks(PAGE, "sh") if it.text.startswith("#!/bin/bash"))
    file = tmp_path / "vrrp.sh"
    file.write_text(text)
    file.chmod(0o755)
    return file


def version() -> tuple[int, ...]:
    said = subprocess.run(["keepalived", "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"Keepalived v([\d.]+)", said.stderr + said.stdout)
    assert found is not None
    return tuple(map(int, found[1].split(".")))


@pytest.mark.parametrize(
    ("mode", "family"),
    [
        ("datagram", 4),
        ("connected", 6),
        pytest.param("connected", 4, marks=pytest.mark.nightly),
        pytest.param("datagram", 6, marks=pytest.mark.nightly),
    ],
)
def test_keepalived_moves_an_address(
    lab_kernel: Path, script: Path, mode: str, family: int
) -> None:
    """The script finds the fault of a keepalived that has it."""
    lab = [sys.executable, "-m", "ipoibu.cli", "lab", "--guests", "3", "--mode", mode]
    run = f"all=./{script.name} {family}"
    done = subprocess.run(
        [*lab, "--share", str(script.parent), "--run", run, "--timeout", "200"],
        capture_output=True,
        text=True,
        check=False,
    )
    output = done.stdout + done.stderr
    if family == 6 and version() <= FAULTY:
        assert done.returncode == 1, output
        assert "buffer overflow detected" in output
    else:
        assert done.returncode == 0, output
