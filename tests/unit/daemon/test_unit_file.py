# SPDX-License-Identifier: BSD-2-Clause
"""The unit file that the project ships, as systemd reads it without running it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from ipoibu.base.errors import IpoibuError, NotPermitted, UsageError

UNIT: Final = Path(__file__).parents[3] / "packaging/systemd/ipoibu@.service"
EXPOSURE_MAX: Final = 30  # tenths: 3.0 of 10, "OK"

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze here (package systemd)"
)


def _analyze(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "SYSTEMD_LOG_TARGET": "console"},
    )


def test_systemd_understands_every_line(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/usr/bin/ipoibu", "/bin/true"))
    done = _analyze("verify", "--man=no", str(unit))
    assert unit.name not in done.stdout + done.stderr


def test_the_exposure_is_at_most_three() -> None:
    done = _analyze(
        "security", "--offline=yes", "--no-pager", f"--threshold={EXPOSURE_MAX}", str(UNIT)
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_errors_that_only_an_administrator_corrects_do_not_restart_the_service() -> None:
    (codes,) = re.findall(r"^RestartPreventExitStatus=(.*)$", UNIT.read_text(), re.MULTILINE)
    assert codes.split() == [str(UsageError.exit_code), str(NotPermitted.exit_code)]
    assert str(IpoibuError.exit_code) not in codes.split()
