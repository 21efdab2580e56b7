# SPDX-License-Identifier: BSD-2-Clause
"""Acts on the peer by a shell there: what a test needs a host to do of itself."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from typing import Final

from ipoibu.conform.link import CannotSend
from ipoibu.conform.packet import Names

ACT_S: Final = 20
NO_PROGRAM: Final = 127  # a shell's exit status

ACTS: Final = {
    "join4": "ip addr del 239.77.7.7/32 dev {device}; "
    "ip addr add 239.77.7.7/32 dev {device} autojoin",
    "leave4": "ip addr del 239.77.7.7/32 dev {device}",
    "join6": "ip -6 addr del ff05::7707/128 dev {device}; "
    "ip -6 addr add ff05::7707/128 dev {device} autojoin",
    "leave6": "ip -6 addr del ff05::7707/128 dev {device}",
    "add6": "ip -6 addr add {free6}/64 dev {device} valid_lft 30 preferred_lft 30",
    "del6": "ip -6 addr del {free6}/64 dev {device}",
    "ping4": "ping -c 1 -W 2 {me4}",
    "ping6": "ping -c 1 -W 2 {me6}%{device}",
    "ping_group4": "ping -c 1 -W 1 -I {device} 239.77.7.8",
    "ping_group6": "ping -c 1 -W 1 -I {device} ff05::7708",
    "ping_long4": "ping -c 1 -W 1 -I {device} 238.129.7.9",
    "ping_long6": "ping -c 1 -W 1 -I {device} ff12::1:2:3:4:5",
    "ping_wide6": "ping -c 1 -W 1 -I {device} ff0e::7709",
    "take4": "ip addr del 169.254.77.7/32 dev {device}; "
    "ip addr add 169.254.77.7/32 dev {device} valid_lft 30 preferred_lft 30",
    "drop4": "ip addr del 169.254.77.7/32 dev {device}",
    "dhcp": "if command -v dhclient; then"
    " timeout 4 dhclient -1 -d -sf /bin/true -lf /dev/null -pf /dev/null {device};"
    " [ $? != 1 ] || exit 127;"  # it does not know the kind of device
    " elif command -v udhcpc && [ $(cat /sys/class/net/{device}/type) != 32 ]; then"  # Ethernet alone
    " timeout 4 udhcpc -f -n -q -t 1 -T 1 -s /bin/true -i {device};"
    " else exit 127; fi",
    # The kernel drops the IPv6 addresses of a device that goes down, but for the link-local one.
    "restart": "kept=$(ip -6 -o address show dev {device} scope global | awk '{{print $4}}');"
    " ip link set dev {device} down && ip link set dev {device} up;"
    " for each in $kept; do ip -6 address add $each dev {device} nodad 2>/dev/null; done; true",
    "forget": "ip neigh flush dev {device}",
}
"""The shell commands; what is in braces is the net device's name, or a symbol of the test."""


class Helper:
    """`command` runs a shell at the peer: its last word is the script (ssh HOST, ip netns exec N sh -c)."""

    def __init__(self, command: Sequence[str], device: str) -> None:
        self._command: Final = list(command)
        self._device: Final = device

    @classmethod
    def of(cls, text: str, device: str) -> Helper:
        """Read the words of `--helper`, as a shell would."""
        return cls(shlex.split(text), device)

    def act(self, what: str, names: Names) -> None:
        """Run an act of `ACTS`; its exit status is of no matter (a ping without an answer), unless it says
        that there is no such program. `CannotSend`: it could not be run."""
        script = ACTS[what].format(device=self._device, **{k: str(v) for k, v in names.items()})
        try:
            done = subprocess.run(
                [*self._command, script],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=ACT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotSend(f"the helper did not run {script!r}: {error}") from error
        if done.returncode == NO_PROGRAM:
            raise CannotSend(f"the helper has no program for {script!r}")
