# SPDX-License-Identifier: BSD-2-Clause
"""Machines of one run wait for each other and exchange values; the protocol of meeting.sh."""

import os
import time
from collections.abc import Callable
from pathlib import Path

SHARE = Path("/run/lab")


class Missed(Exception):
    """The other machines did not come, or the value did not appear, in time."""


def meet(name: str, timeout_s: float = 60) -> None:
    """Return when every machine of the run has come to `name`; raise Missed after `timeout_s`."""
    meetings = SHARE / "meetings"
    (meetings / f"{name}:{os.environ['LAB_NAME']}").touch()
    count = int(os.environ["LAB_COUNT"])
    until(
        lambda: len(list(meetings.glob(f"{name}:*"))) >= count,
        f"the others at {name!r}",
        timeout_s,
    )


def put(key: str, value: str) -> None:
    """Publish `value` to the other machines, in one step."""
    file = SHARE / "values" / key
    part = file.with_name(f"{key}.{os.environ['LAB_NAME']}")
    part.write_text(value + "\n")
    part.rename(file)


def get(key: str, timeout_s: float = 60) -> str:
    """Return the value published as `key`, waiting for it; raise Missed after `timeout_s`."""
    file = SHARE / "values" / key
    until(file.exists, f"the value {key!r}", timeout_s)
    return file.read_text().rstrip("\n")


def until(true: Callable[[], bool], what: str, timeout_s: float = 5) -> None:
    """Poll `true` every 20 ms until it holds; raise Missed after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            raise Missed(f"gave up waiting for {what}")
        time.sleep(0.02)
