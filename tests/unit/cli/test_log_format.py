# SPDX-License-Identifier: BSD-2-Clause
"""The form of the log lines of `ipoibu up`."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = (
    "import logging; from ipoibu.cli.log_format import log_format;"
    " logging.basicConfig(format=log_format()); logging.error('x')"
)


def _line(journal: bool) -> str:
    reader, writer = os.pipe()
    status = os.fstat(writer)
    inode = status.st_ino if journal else status.st_ino + 1
    environment = {**os.environ, "JOURNAL_STREAM": f"{status.st_dev}:{inode}"}
    subprocess.run([sys.executable, "-c", PROGRAM], stderr=writer, env=environment, check=True)
    os.close(writer)
    with open(reader) as log:
        return log.read().strip()


def test_a_log_line_has_a_time_stamp_outside_the_journal() -> None:
    stamp, _, text = _line(journal=False).partition(" ipoibu: ")
    assert text == "ERROR: x"
    assert stamp[:2] == "20"


def test_a_log_line_has_no_time_stamp_in_the_journal() -> None:
    assert _line(journal=True) == "ipoibu: ERROR: x"
