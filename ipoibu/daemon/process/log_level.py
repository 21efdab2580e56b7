# SPDX-License-Identifier: BSD-2-Clause
"""The least level that the process logs."""

from __future__ import annotations

import logging


class LogLevel:
    """The level of the root logger, in the words of `--log-level`."""

    @property
    def log_level(self) -> str:
        return logging.getLevelName(logging.getLogger().level).lower()

    def set_log_level(self, level: str) -> None:
        logging.getLogger().setLevel(logging.getLevelNamesMapping()[level.upper()])
