# SPDX-License-Identifier: BSD-2-Clause
"""The sysctls of an interface: net.ipv4.conf.NAME and net.ipv6.conf.NAME."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import Final

SYSCTLS: Final = Path("/proc/sys/net")


def own_value(sysctls: Path, family: str, index: int, name: str) -> int:
    """Return the value of the interface `index`; 0 if it is gone, or if this kernel lacks the sysctl."""
    with contextlib.suppress(OSError):
        return _value(sysctls, family, socket.if_indextoname(index), name)
    return 0


def larger_value(sysctls: Path, family: str, index: int, name: str) -> int:
    """Return the larger of the interface's value and the one for all interfaces."""
    return max(own_value(sysctls, family, index, name), _value(sysctls, family, "all", name))


def _value(sysctls: Path, family: str, scope: str, name: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int((sysctls / family / "conf" / scope / name).read_text())
    return 0
