# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from ipoibu.base.errors import LinkError
from ipoibu.base.limits import (
    DESCRIPTORS_LOG_S,
    INTERFACE_DESCRIPTORS,
    PROCESS_SPARE_DESCRIPTORS,
    TX_QUEUE_DESCRIPTORS,
)
from ipoibu.daemon import daemon as run
from ipoibu.daemon.process.descriptors import Shortage, check_room

RAISE = """
import resource
from ipoibu.daemon.process.descriptors import raise_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))
raise_limit()
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    done = subprocess.run([sys.executable, "-c", RAISE], capture_output=True, text=True, check=True)
    assert done.stdout == "(300, 300)\n"


def test_an_interface_that_does_not_fit_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needed = INTERFACE_DESCRIPTORS + 2 * TX_QUEUE_DESCRIPTORS
    limit = 100 + needed + PROCESS_SPARE_DESCRIPTORS
    used: list[Any] = [None] * 100
    monkeypatch.setattr(os, "listdir", lambda path: used)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    check_room("ib0", 3)
    used.append(None)
    with pytest.raises(LinkError, match=f"ib0: an interface needs {needed} file descriptors"):
        check_room("ib0", 3)


def test_a_shortage_is_logged_once_a_minute_and_other_errors_are_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    shortage = Shortage()
    for number in (errno.EMFILE, errno.ENFILE, errno.EMFILE):
        assert shortage.is_one(OSError(number, ""))
    assert len(caplog.messages) == 1
    now += DESCRIPTORS_LOG_S
    assert shortage.is_one(OSError(errno.ENFILE, ""))
    assert len(caplog.messages) == 2
    assert not shortage.is_one(OSError(errno.EBADF, ""))
    assert not shortage.is_one(None)


def test_an_accept_without_a_free_descriptor_is_no_internal_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """asyncio calls the exception handler for each connection that waits."""
    monkeypatch.setattr(run, "SHORTAGE", Shortage())
    daemon: Any = SimpleNamespace(_config=SimpleNamespace(name="ib0"))
    context = {"message": "out of system resource", "exception": OSError(errno.EMFILE, "")}
    for _ in range(100):
        run.Daemon._defect(daemon, None, context)  # type: ignore[arg-type]
    (line,) = caplog.messages
    assert "new clients have to wait" in line
