# SPDX-License-Identifier: BSD-2-Clause
"""Notices to the service manager that set NOTIFY_SOCKET, as by sd_notify(3)."""

from __future__ import annotations

import os
import select
import socket
from array import array
from collections.abc import Sequence
from typing import Final

# The manager answers a barrier at once; before systemd 246 it does not know the notice.
_BARRIER_MS: Final = 1000
_QUEUE_S: Final = 1.0


def is_service() -> bool:
    """Return whether a service manager has started this process."""
    return bool(os.environ.get("NOTIFY_SOCKET"))


def notify(state: str, fds: Sequence[int] = ()) -> bool:
    """Send one notice such as `READY=1`, with descriptors that the manager duplicates; False without a
    service manager, or if it does not listen.

    Never raises, and blocks only with descriptors, while the manager's queue is full: the daemon goes on
    without its service manager.
    """
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return False
    address = "\0" + path[1:] if path.startswith("@") else path
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notices:
            notices.settimeout(_QUEUE_S if fds else 0)
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))] if fds else []
            notices.sendmsg([state.encode()], rights, 0, address)
    except OSError:
        return False
    return True


def await_notices() -> None:
    """Return when the manager has carried out all notices before this one, or a second has passed."""
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    try:
        if notify("BARRIER=1", [theirs]):
            os.close(theirs)
            theirs = -1
            poll = select.poll()
            poll.register(ours, 0)  # POLLHUP: the manager has closed its end
            poll.poll(_BARRIER_MS)
    finally:
        os.close(ours)
        if theirs >= 0:
            os.close(theirs)
