# SPDX-License-Identifier: BSD-2-Clause
"""Invariants of a daemon, however long it has run: descriptors, memory, counters."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ipoibu.daemon.metrics.counters import sections
from ipoibu.lab.host import Host

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
FDS_MORE: Final = 8  # control clients, connections that are being made
RSS_MORE_BYTES: Final = 24 << 20  # tables and buffers that are used for the first time
RSS_FACTOR: Final = 1.25

# A packet from the fabric or from the engine ends in exactly one of these (docs/reference/counters.md).
RX_ENDS: Final = tuple(
    end for section in sections() for end in section.ends if end.startswith("rx_")
)
FABRIC_DROPS: Final = "fabric.drop_"
# Dropped before the HCA's counter of received packets, or counted besides.
UNCOUNTED_DROPS: Final = ("fabric.drop_socket",)
RC_PREFIX: Final = "fabric.rc_"


@dataclass(frozen=True, slots=True)
class Resources:
    """The descriptors and the memory that a daemon holds at one moment."""

    pid: int
    fds: int
    rss_bytes: int

    @classmethod
    def of(cls, host: Host) -> Resources:
        pid = host.pid
        assert pid is not None, f"{host.name} does not run"
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return cls(pid, len(os.listdir(f"/proc/{pid}/fd")), pages * PAGE_BYTES)


def growth(host: Host, before: Resources) -> list[str]:
    """Return the excess of descriptors and memory, unless another daemon runs by now."""
    now = Resources.of(host)
    if now.pid != before.pid:
        return []
    found = []
    if now.fds > before.fds + FDS_MORE:
        found.append(f"{host.name}: {now.fds} descriptors, {before.fds} before")
    if now.rss_bytes > before.rss_bytes * RSS_FACTOR + RSS_MORE_BYTES:
        mib = (before.rss_bytes >> 20, now.rss_bytes >> 20)
        found.append(f"{host.name}: {mib[1]} MiB resident, {mib[0]} MiB before")
    return found


def miscounted(host: Host) -> list[str]:
    """Return the counters of a quiet host that do not add up; only datagrams have such sums."""
    stats: dict[str, Any] = host.ask("stats")
    if host.ask("show")["mode"] != "datagram":
        return []
    found = []
    drops = sum(
        value
        for name, value in stats.items()
        if name.startswith(FABRIC_DROPS) and name not in UNCOUNTED_DROPS
    )
    taken, delivered = stats["fabric.rx_packets"], stats["fabric.rx_delivered"]
    # A group's packet is delivered to each queue pair: there is one here.
    if taken != delivered + drops:
        found.append(f"{host.name}: {taken} packets, {delivered} delivered and {drops} dropped")
    ends = sum(stats[name] for name in RX_ENDS) - stats["rx_from_engine"]
    if delivered != ends:
        found.append(f"{host.name}: {delivered} packets delivered, the pump counts {ends}")
    if found:
        found.append(f"{host.name}: { ({name: value for name, value in stats.items() if value}) }")
    return found


def defects(host: Host) -> list[str]:
    """Return the defects of ipoibu that the daemon itself reports."""
    count = host.ask("stats").get("engine.defect", 0)
    traces = host.log().count("Traceback")
    return [f"{host.name}: {count} defects, {traces} traces\n{host.log()}"] * bool(count + traces)
