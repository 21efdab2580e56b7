# SPDX-License-Identifier: BSD-2-Clause
"""The form of log lines on standard error, and their priorities in the journal."""

from __future__ import annotations

import logging
import os
import sys
from typing import Final

from ipoibu.base.exhaustion import EXHAUSTION
from ipoibu.cli.journal import JournalHandler, priority_of

STDERR: Final = 2
_PLAIN: Final = "ipoibu: %(levelname)s: %(message)s"


def start_log(level: int, interface: str | None = None) -> None:
    """Log to standard error or, if that is the journal and there is an `interface`, to the journal itself:
    it has time stamps of its own (systemd.exec(5))."""
    handler: logging.Handler = _Stream()
    if _goes_to_journal():
        handler.setFormatter(_JournalFormatter(_PLAIN))
        if interface is not None:
            handler = JournalHandler(interface, handler)
    else:
        handler.setFormatter(logging.Formatter(f"%(asctime)s {_PLAIN}"))
    handler.addFilter(_is_no_exhaustion)
    logging.basicConfig(level=level, handlers=[handler])


def priority(level: int) -> str:
    """Return the prefix of a line on standard error: its priority for the journal, if it goes there."""
    return _prefix(level) if _goes_to_journal() else ""


def _is_no_exhaustion(record: logging.LogRecord) -> bool:
    """A defect that is a lack of memory ends the process, with another line than a traceback."""
    return not (record.exc_info and EXHAUSTION.is_one(record.exc_info[1]))


class _Stream(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to standard error."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not EXHAUSTION.is_one(sys.exc_info()[1]):
            super().handleError(record)


class _JournalFormatter(logging.Formatter):
    """Writes the priority before each line, as the journal takes each line by itself."""

    def format(self, record: logging.LogRecord) -> str:
        prefix = _prefix(record.levelno)
        return "\n".join(prefix + line for line in super().format(record).split("\n"))


def _prefix(level: int) -> str:
    """The priority as sd-daemon(3) writes it before a line."""
    return f"<{priority_of(level)}>"


def _goes_to_journal() -> bool:
    try:
        status = os.fstat(STDERR)
    except OSError:  # our parent process has closed it
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
