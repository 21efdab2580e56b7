# SPDX-License-Identifier: BSD-2-Clause
"""Hosts of a link whose networks a router joins that carries neither multicast nor link-local addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host

Until = Callable[..., Any]

# Neighbour discovery, which stays on one wire, is all that may use such addresses.
_ROUTED_ONLY: Final = """
table inet router {{
    chain in {{
        type filter hook prerouting priority -300
        ip6 nexthdr icmpv6 accept
        ip daddr 224.0.0.0/4 counter drop
        ip6 daddr ff00::/8 counter drop
        ip6 daddr fe80::/10 counter drop
        ip6 saddr fe80::/10 counter drop
    }}
    chain through {{
        type filter hook forward priority 0
        {}
    }}
}}
"""


def route(lab: NamespaceLab, command: str) -> None:
    """Run a shell command in the router."""
    assert lab.router is not None
    with lab.router.popen(["sh", "-c", command]) as process:
        assert process.wait(60) == 0, command


def confine(lab: NamespaceLab, rule: str = "") -> None:
    """Have the router forward neither multicast nor link-local addresses; `rule` is one more."""
    route(lab, f"nft -f - << END\n{_ROUTED_ONLY.format(rule)}\nEND")


def live_peers(host: Host) -> set[str]:
    """Return the hardware addresses without their flags."""
    return {str(row["peer"])[3:] for row in host.ask("peers") if row["state"] == "live"}


def hwaddr(host: Host) -> str:
    """Return the hardware address without its flags."""
    return str(host.ask("show")["hwaddr"])[3:]


def met(hosts: list[Host]) -> bool:
    """Return whether each host has all others as peers."""
    return all(
        {hwaddr(other) for other in hosts if other is not host} == live_peers(host)
        for host in hosts
    )


def reaches(host: Host, target: object, *options: str) -> bool:
    words = ["ping", "-c", "1", "-W", "2", *options, str(target)]
    return host.run(words).returncode == 0


def start(lab: NamespaceLab, until: Until) -> None:
    """Start all hosts, and wait until the first reaches the others."""
    lab.start()
    until(lambda: met(lab.hosts))
    for host in lab.hosts[1:]:
        until(lambda host=host: reaches(lab.hosts[0], host.ipv4.ip))
