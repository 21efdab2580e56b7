# SPDX-License-Identifier: BSD-2-Clause
"""The sockets and /proc files of a network namespace. `HERE` opens those of the thread's namespace."""

from __future__ import annotations

import os
import socket
from typing import Final


class Namespace:
    """The network namespace of the calling thread.

    `is_here` False says that every socket keeps another namespace alive, so that its users close each
    one after use. `notice_socket` is the exception: it keeps none alive.
    """

    is_here = True

    def netlink_socket(self) -> socket.socket:
        """Return a new rtnetlink socket, which is not bound."""
        return socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
        )

    def notice_socket(self) -> tuple[socket.socket, int | None]:
        """Return a new rtnetlink socket for notices, which is not bound, and the number that marks the
        notices of this namespace among others; None if there are no others."""
        return self.netlink_socket(), None

    def inet_socket(self) -> socket.socket:
        """Return a new socket for requests about interfaces (ioctl)."""
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def open(self, path: str, flags: int) -> int:
        """Open a file below /proc/sys/net or /proc/thread-self/net."""
        return os.open(path, flags | os.O_CLOEXEC)

    def inode(self) -> int:
        """The number by which files of /proc show the namespace."""
        return os.stat("/proc/thread-self/ns/net").st_ino


HERE: Final = Namespace()
