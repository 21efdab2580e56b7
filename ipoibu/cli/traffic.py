# SPDX-License-Identifier: BSD-2-Clause
"""The contents of `ipoibu top`: rates between two samples of the interfaces' counters."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ipoibu.cli.view import Answers, ask
from ipoibu.daemon.metrics.counters import counter

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sample:
    """The answers of the daemons to `metrics` and `conn` at one time."""

    time_s: float
    observations: Answers
    connections: Answers
    silent: dict[str, str] = field(default_factory=dict)  # what does not answer, by interface

    @classmethod
    def take(cls, name: str | None) -> Sample:
        observations = ask("metrics", name)
        connections = ask("conn", name, leave_out=observations.silent)
        return cls(time.monotonic(), observations, connections, observations.silent)


def report(before: Sample, after: Sample) -> dict[str, list[Row]]:
    """Return interfaces, drops and connections with their rates a second, the busiest first."""
    seconds = max(after.time_s - before.time_s, 1e-3)
    earlier = dict(before.observations)
    drops, interfaces = [], []
    for dev, seen in after.observations:
        stats = _Rates(earlier.get(dev, {}).get("stats", {}), seen["stats"], seconds)
        lost = list(_drops(dev, stats, is_child=bool(seen["parent"])))
        drops += lost
        interfaces.append(_interface(dev, seen, stats, sum(row["per_s"] for row in lost)))
    connections = list(_connections(before, after, seconds))
    return {
        "interfaces": interfaces,
        "drops": sorted(drops, key=lambda row: (-row["per_s"], -row["total"])),
        "connections": sorted(connections, key=lambda row: -row["rx_bytes_s"] - row["tx_bytes_s"]),
    }


class _Rates:
    """The rates of counters; a counter that went back belongs to another daemon, and began at 0."""

    def __init__(self, before: dict[str, int], after: dict[str, int], seconds: float) -> None:
        self.after = after
        self._before = before if before else after
        self._seconds = seconds

    def __call__(self, name: str) -> float:
        value = self.after.get(name, 0)
        former = self._before.get(name, 0)
        return round((value - former if value >= former else value) / self._seconds, 3)


def _interface(dev: str, seen: dict[str, Any], rate: _Rates, drops_s: float) -> Row:
    return {
        "dev": dev,
        "state": seen["state"],
        "mode": seen["mode"],
        "mtu": seen["mtu"],
        "rx_bytes_s": rate("rx_bytes"),
        "tx_bytes_s": rate("tx_bytes"),
        "rx_packets_s": rate("rx_packets"),
        "tx_packets_s": rate("tx_packets"),
        "drops_s": round(drops_s, 3),
        "neighbours": sum(row["count"] for row in seen["neighbours"]),
        "groups": sum(row["count"] for row in seen["groups"]),
        "connections": sum(row["count"] for row in seen["connections"]),
    }


def _drops(dev: str, rate: _Rates, *, is_child: bool) -> Iterator[Row]:
    for name, total in rate.after.items():
        about = counter(name)
        if total and about.is_drop and not name.startswith("queue."):
            if is_child and about.is_per_port:
                continue  # the parent shows it
            reason = about.meaning
            yield {
                "dev": dev,
                "counter": name,
                "per_s": rate(name),
                "total": total,
                "reason": reason,
            }


def _connections(before: Sample, after: Sample, seconds: float) -> Iterator[Row]:
    earlier = {_key(dev, it): it for dev, entries in before.connections for it in entries}
    for dev, entries in after.connections:
        for entry in entries:
            if entry["tx_bytes"] is None:
                continue  # a mesh does not count them
            rate = _Rates(earlier.get(_key(dev, entry), {}), entry, seconds)
            yield {
                "dev": dev,
                "peer": entry["peer"],
                "role": entry["role"],
                "state": entry["state"],
                "rx_bytes_s": rate("rx_bytes"),
                "tx_bytes_s": rate("tx_bytes"),
            }


def _key(dev: str, connection: dict[str, Any]) -> tuple[object, ...]:
    return dev, connection["peer"], connection["role"], connection["qpn"]
