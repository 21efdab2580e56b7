# SPDX-License-Identifier: BSD-2-Clause
"""Notices to the service manager that set NOTIFY_SOCKET, as by sd_notify(3)."""

from __future__ import annotations

import os
import socket


def notify(state: str) -> bool:
    """Send one notice such as `READY=1`; False without a service manager, or if it does not listen.

    Never blocks and never raises: the daemon goes on without its service manager.
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
