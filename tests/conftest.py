# SPDX-License-Identifier: BSD-2-Clause
"""What every test runs under, wherever the suite was started from."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Take SIGINT again: a suite in the background of a script is started with it ignored, and so
    would be the programs whose end by Ctrl-C is under test."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
