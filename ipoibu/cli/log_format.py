# SPDX-License-Identifier: BSD-2-Clause
"""The form of log lines on standard error, and their priorities in the journal."""

from __future__ import annotations

import logging
import os
from typing import Final

STDERR: Final = 2
_PLAIN: Final = "ipoibu: %(levelname)s: %(message)s"

# Least level of each priority of syslog(3), as sd-daemon(3) writes it before a line
_PRIORITIES: Final = ((logging.ERROR, "<3>"), (logging.WARNING, "<4>"), (logging.INFO, "<6>"))
_DEBUG: Final = "<7>"


def start_log(level: int) -> None:
    """Log to standard error; the journal has time stamps of its own (systemd.exec(5))."""
    handler = logging.StreamHandler()
    if _goes_to_journal():
        handler.setFormatter(_JournalFormatter(_PLAIN))
    else:
        handler.setFormatter(logging.Formatter(f"%(asctime)s {_PLAIN}"))
    logging.basicConfig(level=level, handlers=[handler])


def priority(level: int) -> str:
    """Return the prefix of a line on standard error: its priority for the journal, if it goes there."""
    return _prefix(level) if _goes_to_journal() else ""


class _JournalFormatter(logging.Formatter):
    """Writes the priority before each line, as the journal takes each line by itself."""

    def format(self, record: logging.LogRecord) -> str:
        prefix = _prefix(record.levelno)
        return "\n".join(prefix + line for line in super().format(record).split("\n"))


def _prefix(level: int) -> str:
    return next((prefix for least, prefix in _PRIORITIES if level >= least), _DEBUG)


def _goes_to_journal() -> bool:
    try:
        status = os.fstat(STDERR)
    except OSError:  # our parent process has closed it
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
