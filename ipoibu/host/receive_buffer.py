# SPDX-License-Identifier: BSD-2-Clause
"""The receive buffer of a socket."""

from __future__ import annotations

import socket
from typing import Final

SO_RCVBUFFORCE: Final = 33  # asm-generic/socket.h


def enlarge(receiver: socket.socket, size_bytes: int) -> None:
    """Enlarge the receive buffer; without the privilege the kernel keeps to its limit
    (net.core.rmem_max)."""
    try:
        receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, size_bytes)
    except PermissionError:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size_bytes)
