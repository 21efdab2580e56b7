# SPDX-License-Identifier: BSD-2-Clause
"""What every test runs under, wherever the suite was started from."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Take the signals that a script's background or nohup ignores: an ignored signal is inherited,
    and so would be ignored by the programs whose end by it is under test."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
