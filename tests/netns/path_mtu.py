# SPDX-License-Identifier: BSD-2-Clause
"""Messages of connected mode. One that goes by datagram, as long as there is no connection, teaches the
kernel the datagrams' MTU for ten minutes."""

from __future__ import annotations

from ipoibu.lab.host import Host


def reaches_whole(host: Host, target: str) -> bool:
    """Forget what the kernel learnt, and ping with 60 000 bytes that nobody may cut."""
    host.run(["ip", "route", "flush", "cache"])
    words = ["ping", "-c", "1", "-W", "2", "-s", "60000", "-M", "do", target]
    return host.run(words).returncode == 0
