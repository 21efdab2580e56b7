# SPDX-License-Identifier: BSD-2-Clause
"""The form of the log lines of `ipoibu up`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = (
    "import logging; from ipoibu.cli.log_format import start_log; start_log(logging.DEBUG);"
    " [logging.log(level, 'x%d', level) for level in (40, 30, 20, 10)]; logging.error('a\\nb')"
)


def _lines(program: str, journal: bool) -> list[str]:
    reader, writer = os.pipe()
    status = os.fstat(writer)
    inode = status.st_ino if journal else status.st_ino + 1
    environment = {**os.environ, "JOURNAL_STREAM": f"{status.st_dev}:{inode}"}
    subprocess.run([sys.executable, "-c", program], stderr=writer, env=environment, check=False)
    os.close(writer)
    with open(reader) as log:
        return log.read().splitlines()


def test_a_log_line_has_a_time_stamp_outside_the_journal() -> None:
    stamp, _, text = _lines(PROGRAM, journal=False)[0].partition(" ipoibu: ")
    assert text == "ERROR: x40"
    assert stamp[:2] == "20"


def test_a_log_line_has_a_priority_and_no_time_stamp_in_the_journal() -> None:
    assert _lines(PROGRAM, journal=True) == [
        "<3>ipoibu: ERROR: x40",
        "<4>ipoibu: WARNING: x30",
        "<6>ipoibu: INFO: x20",
        "<7>ipoibu: DEBUG: x10",
        "<3>ipoibu: ERROR: a",
        "<3>b",
    ]


@pytest.mark.parametrize(("journal", "prefix"), [(True, "<3>ipoibu: "), (False, "ipoibu: ")])
def test_the_last_line_of_a_command_that_fails_is_an_error(journal: bool, prefix: str) -> None:
    program = "from ipoibu.cli.main import main; main(['up', 'ib0'])"
    (line,) = _lines(program, journal)
    assert line.startswith(f"{prefix}no device given")


NO_MEMORY = """
import logging
from ipoibu.cli.log_format import start_log
from ipoibu.base.exhaustion import EXHAUSTION
start_log(logging.INFO)
EXHAUSTION.prepare(lambda: logging.error("it ends"), "")
for error in (ValueError("a defect"), MemoryError()):
    try:
        raise error
    except Exception:
        logging.exception("not handled")
"""


def test_a_lack_of_memory_is_no_defect_of_the_code_that_met_it() -> None:
    log = "\n".join(_lines(NO_MEMORY, journal=True))
    assert log.count("not handled") == log.count("Traceback") == 1
    assert log.endswith("ValueError: a defect\n<3>ipoibu: ERROR: it ends")
