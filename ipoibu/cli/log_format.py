# SPDX-License-Identifier: BSD-2-Clause
"""The form of log lines on standard error."""

from __future__ import annotations

import os
from typing import Final

STDERR: Final = 2


def log_format() -> str:
    """The form of a log line; the journal has time stamps of its own (systemd.exec(5))."""
    status = os.fstat(STDERR)
    goes_to_journal = os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
    stamp = "" if goes_to_journal else "%(asctime)s "
    return f"{stamp}ipoibu: %(levelname)s: %(message)s"
