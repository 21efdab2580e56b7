# SPDX-License-Identifier: BSD-2-Clause
"""TCP ports of the host for tests: each belongs to one test at a time."""

from __future__ import annotations

import contextlib
import errno
import random
import socket
from collections.abc import Iterator
from typing import Final

# The kernel gives other ports to sockets that ask for any (ip_local_port_range).
PORTS: Final = range(20000, 32000)


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """Reserve a port that nobody uses. An abstract socket is the reservation: the kernel gives it up with
    its process, and it holds, as ports do, in one network namespace."""
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket(socket.AF_UNIX) as reservation, socket.socket() as probe:
            try:
                reservation.bind(f"\0ipoibu-test-port-{port}")
                probe.bind(("", port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            probe.close()
            yield port
            return
    raise AssertionError("no port is free")
