# SPDX-License-Identifier: BSD-2-Clause
"""Prints what attacks leave of a TCP stream, relative to the same rate of packets with a bad ICRC.

    python -m tests.attack.ratios [--turns N] [--seconds S] [--mode MODE ...]

Floods and bad packets take turns, so that other work on the machine disturbs both alike; a ratio is that
of the medians. The first row is a control: bad packets beside bad packets. The table is for
docs/understand/fuzzing.md, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Final

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import INTERFACE
from tests.attack import attacks
from tests.attack.attacker import Attacker
from tests.attack.attacks import Flood, Target
from tests.attack.stream import Stream

SETTLE_S: Final = 0.3
# Of a subnet with room for invented hosts
NEAR, FAR = (IPv4Interface(f"10.78.0.{number}/16") for number in (1, 2))


def _invented(target: Target) -> Flood:
    return attacks.invented_hosts(target, FAR.ip)


KINDS: Final[tuple[tuple[str, Callable[[Target], Flood], int], ...]] = (
    ("bad ICRC (control)", attacks.bad_icrc, 20_000),
    ("invented ARP, consistent", attacks.introductions, 5_000),
    ("invented ARP, consistent", attacks.introductions, 15_000),
    ("ARP of one station, changing addresses", attacks.station, 10_000),
    ("MADs to queue pair 1", attacks.mads, 20_000),
    ("REQs to queue pair 1", attacks.gsi, 20_000),
    *(("IP of invented hosts to a closed port", _invented, rate) for rate in (1000, 5000, 50_000)),
)


def rows(attacker: Attacker, mode: str, turns: int, seconds: float) -> Iterator[str]:
    """Yield a row of the table for each kind of packets, in one mode."""
    with NamespaceLab(options=["--mode", mode]) as lab:
        near, far = lab.hosts
        for host, interface in ((near, NEAR), (far, FAR)):
            host.run(["ip", "address", "add", str(interface), "dev", INTERFACE]).check_returncode()
        with Stream(near, far) as stream:
            stream.rate(1.0)
            target = Target.of(far.ask("show"), far.ipv4.ip, far.ipv6.ip)

            def beside(flood: Flood, rate: int) -> float:
                with attacker.flood(near, far, flood, rate):
                    stream.rate(SETTLE_S)
                    return stream.rate(seconds)

            for name, make, rate in KINDS:
                bad, other, ratios = [], [], []
                for _ in range(turns):
                    bad.append(beside(attacks.bad_icrc(target), rate))
                    other.append(beside(make(target), rate))
                    ratios.append(other[-1] / max(bad[-1], 1.0))
                    stream.rate(SETTLE_S)
                ratio = statistics.median(other) / max(statistics.median(bad), 1.0)
                spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
                yield (
                    f"| {name} | {rate} | {mode} | {_mbit(bad)} | {_mbit(other)} | {ratio:.2f} |"
                    f" {spread} |"
                )


def _mbit(rates_: list[float]) -> str:
    return f"{statistics.median(rates_) * 8e-6:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--mode", nargs="+", default=["datagram", "connected"])
    chosen = parser.parse_args()
    print(
        f"{time.strftime('%Y-%m-%d %H:%M')}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f},"
        f" {chosen.turns} turns of {chosen.seconds} s\n"
    )
    print("| packets | a second | mode | Mbit/s, bad ICRC | Mbit/s | ratio | of single turns |")
    print("|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        attacker = Attacker.build(Path(directory))
        for mode in chosen.mode:
            for row in rows(attacker, mode, chosen.turns, chosen.seconds):
                print(row, flush=True)


if __name__ == "__main__":
    main()
