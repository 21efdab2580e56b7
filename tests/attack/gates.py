# SPDX-License-Identifier: BSD-2-Clause
"""Measures what an attack leaves of a stream, and how soon new hosts are found beside it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, Final

from ipoibu.base.addr import IpAddress
from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import INTERFACE, Host
from tests.attack.attacker import Attacker
from tests.attack.attacks import Flood
from tests.attack.stream import Stream

Until = Callable[..., Any]

# How long each measurement lasts; make nightly has more time.
MEASURE_S: Final = float(os.environ.get("ATTACK_SECONDS", "0.7"))
TRIES: Final = 10  # the machine has other work, too
BUSY: Final = 3.0  # processes that want each CPU: the test itself makes two
FULL_WITHIN_S: Final = 2.0
LATE_S: Final = 30.0
FULL: Final = 0.5  # of the rate before; the rate of a stream varies so much on a busy machine
RESOLVED_MS: Final = 1000.0


def slowed(rate: int, halvings: int) -> int:
    """Return the rate of a flood after so many failures. Where other programs load the CPUs, a pump gets too
    little of one for the full rate, and bad packets cost it less than others."""
    is_busy = os.getloadavg()[0] > BUSY * (os.cpu_count() or 1)
    return rate >> halvings if is_busy else rate


def share_of(
    attacker: Attacker, lab: NamespaceLab, stream: Stream, floods: tuple[Flood, Flood], rate: int
) -> float:
    """Return the stream's rate under the second flood, relative to its rate under the first."""
    rates = []
    near, far = lab.hosts
    for packets in floods:
        with attacker.flood(near, far, packets, rate):
            stream.rate(0.2)
            rates.append(stream.rate(MEASURE_S))
    return rates[1] / max(rates[0], 1.0)


def back_s_of(stream: Stream, bytes_per_second: float) -> float:
    """Return the seconds until the stream is that fast, or LATE_S: another load may have begun meanwhile."""
    try:
        return stream.resumes(bytes_per_second, 10.0)
    except AssertionError:
        return LATE_S


def counted(host: Host, name: str) -> int:
    return int(host.ask("stats").get(name, 0))


def own(host: Host, addresses: list[IpAddress], until: Until) -> None:
    """Give `host` the addresses, and wait until it answers for them."""
    for address in addresses:
        words = ["ip", "address", "add", f"{address}/{address.max_prefixlen}", "dev", INTERFACE]
        assert host.run(words).returncode == 0

    def is_ready() -> bool:
        shown = {
            str(entry["address"]).split("/")[0]: entry["state"]
            for entry in host.ask("show")["addresses"]
        }
        return all(shown.get(str(address)) == "preferred" for address in addresses)

    until(is_ready)


def answer_ms(host: Host, address: IpAddress) -> float:
    """Return the time until the first answer of a host that `host` has to resolve first."""
    assert str(address) not in {entry["ip"] for entry in host.ask("neigh")}
    done = host.run(["ping", "-c", "1", "-W", "10", str(address)])
    match = re.search(r"time=([\d.]+)", done.stdout)
    return float(match[1]) if match else float("inf")
