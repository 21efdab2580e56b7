# SPDX-License-Identifier: BSD-2-Clause
"""Duplicate address detection, on a machine that may stop the owner of an address for longer than the second
in which a prober listens (RFC 4862 §5.4)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ipoibu.lab.host import Host
from ipoibu.lab.namespace import LabNamespace

Sh = Callable[[Host, str], str]


def gives_up(sh: Sh, host: Host, address: str) -> bool:
    """Add an address of another host; return whether ours has given it up. One that did not hear of the other
    host in time keeps it, so remove it again."""
    sh(host, f"ip address add {address} dev ib0")
    end = time.monotonic() + 5
    while time.monotonic() < end:
        if address not in sh(host, "ip address show dev ib0"):
            return True
        time.sleep(0.1)
    host.run(["ip", "address", "del", address, "dev", "ib0"])
    return False


@contextmanager
def long_detection(guest: LabNamespace) -> Iterator[None]:
    """Have the guest's kernel probe for twenty seconds, instead of one, for a new address of its eth0."""

    def probe(times: int) -> None:
        done = guest.run(["sysctl", "-qw", f"net.ipv6.conf.eth0.dad_transmits={times}"])
        assert done.returncode == 0, done.stderr

    probe(20)
    try:
        yield
    finally:
        probe(1)
