# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import os
import resource
import subprocess
import sys
from typing import Any

import pytest

from ipoibu.daemon.descriptors import check_room
from ipoibu.errors import LinkError
from ipoibu.limits import (
    INTERFACE_DESCRIPTORS,
    PROCESS_SPARE_DESCRIPTORS,
    TX_QUEUE_DESCRIPTORS,
)

RAISE = """
import resource
from ipoibu.daemon.descriptors import raise_limit
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
