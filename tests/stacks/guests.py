# SPDX-License-Identifier: BSD-2-Clause
"""The stacks that tests run as guests: pytcp_guest.py says what each does. `build` makes them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
MADE: Final = ROOT / "build/stacks"
TAP: Final = "tap7"
MTU: Final = 1500  # PyTCP reads at most 2048 bytes of a frame
EXCHANGES: Final = [f"{kind}{family} ok" for family in (4, 6) for kind in ("tcp", "udp")]


@dataclass(frozen=True)
class Guest:
    """A stack, its MAC, and the ends of its addresses in the networks of a lab's link."""

    stack: str
    mac: str
    number: int
    is_bound: bool  # by `--guest`

    def addresses(self, ipv4: str, ipv6: str) -> tuple[str, str]:
        return f"{ipv4}.{self.number}", f"{ipv6}::{self.number}"

    def option(self, addresses: tuple[str, str]) -> list[str]:
        """Return the option of `ipoibu up` for a guest that needs it."""
        return ["--guest", f"{self.mac}={','.join(addresses)}"] if self.is_bound else []

    def command(self, ipv4: str, ipv6: str, *peers: str) -> list[str]:
        """Return the command of the guest that has these addresses and first asks these peers."""
        program = {
            "pytcp": [
                str(MADE / "pytcp/bin/python"),
                "-O",
                str(ROOT / "tests/stacks/pytcp_guest.py"),
            ],
            "lwip": [str(MADE / "lwip_guest")],
        }[self.stack]
        return [*program, TAP, self.mac, f"{ipv4}/24", f"{ipv6}/64", *peers]


# docs/findings/pytcp.md says why PyTCP has to be bound, and why the bridge must not look at MLD.
GUESTS: Final = (
    Guest("pytcp", "02:00:00:77:77:08", 8, is_bound=True),
    Guest("lwip", "02:00:00:77:77:09", 9, is_bound=False),
)
BRIDGE: Final = (
    "ip link add br0 type bridge mcast_snooping 0",
    "ip link set ib0 master br0",
    f"ip tuntap add {TAP} mode tap",
    f"ip link set {TAP} master br0 up",
    "ip link set br0 up",
)


def peer(*words: str) -> list[str]:
    """Return the command of the peer, with the kernel's sockets."""
    return [sys.executable, str(ROOT / "tests/stacks/kernel_peer.py"), *words]
