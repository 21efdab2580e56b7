# SPDX-License-Identifier: BSD-2-Clause
"""What every test runs under, wherever the suite was started from."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from typing import Any, Final, TypeVar

import pytest
from hypothesis import settings

# Keep what pytest makes of the test modules, as `make build` keeps bytecode in this tree: otherwise each
# worker of each tier takes seconds to make it again where the environment has Python write none.
sys.dont_write_bytecode = False

_Report = TypeVar("_Report", pytest.TestReport, pytest.CollectReport)

IS_CI: Final = os.environ.get("CI", "") not in ("", "0", "false")

# Hypothesis takes the same examples each time where CI is set; how long one takes is not judged.
_SAME: Final[dict[str, Any]] = {"derandomize": True, "database": None} if IS_CI else {}
settings.register_profile("ipoibu", deadline=None, **_SAME)
# make nightly: 20 times as many examples, and others each time, where a test does not set its own.
settings.register_profile("nightly", deadline=None, max_examples=2000)
settings.load_profile("ipoibu")


def pytest_configure() -> None:
    """Take the signals that a script's background or nohup ignores: an ignored signal is inherited,
    and so would be ignored by the programs whose end by it is under test."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _insist((yield))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _insist((yield))


def _insist(report: _Report) -> _Report:
    """CI has everything that a test may lack elsewhere: there a test that is skipped has failed."""
    if IS_CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"CI has to run this: {reason}"
    return report
