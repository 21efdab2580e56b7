# SPDX-License-Identifier: BSD-2-Clause
"""What the kernel of a host has counted."""

from __future__ import annotations

from ipoibu.lab.host import Host


def counter(host: Host, name: str) -> int:
    """Return a counter of the host's own TCP or UDP, over IPv4, by the kernel's name without its group."""
    text = host.run(["cat", "/proc/net/snmp", "/proc/net/netstat"]).stdout
    rows = [line.split() for line in text.splitlines()]
    return next(
        int(values[names.index(name)])
        for names, values in zip(rows[::2], rows[1::2], strict=True)
        if name in names
    )


def udp_arrived(host: Host) -> int:
    """Return how many datagrams reached the host's sockets over IPv4. It counts those, too, for which a
    socket had no room, because the receiver got no CPU on a busy machine."""
    return counter(host, "InDatagrams") + counter(host, "RcvbufErrors")


def reassembled(host: Host, version: int) -> int:
    """Return how many packets the host has put together from fragments."""
    if version == 4:
        return counter(host, "ReasmOKs")
    lines = host.run(["cat", "/proc/net/snmp6"]).stdout.splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Ip6ReasmOKs"))
