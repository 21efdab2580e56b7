# SPDX-License-Identifier: BSD-2-Clause
"""Tells the service manager (or whoever gave us NOTIFY_SOCKET) how far we are: sd_notify(3)."""

from __future__ import annotations

import os
import socket


def notify(state: str) -> bool:
    """Send one notice such as `READY=1`; False where nobody asked for it or nobody listens.

    Never blocks and never raises: a service manager that has gone away is no reason to stop.
    """
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return False
    address = "\0" + path[1:] if path.startswith("@") else path
    try:
        with socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        ) as notices:
            notices.sendto(state.encode(), address)
    except OSError:
        return False
    return True
