# SPDX-License-Identifier: BSD-2-Clause
"""The privileges of this process."""

from __future__ import annotations

from pathlib import Path
from typing import Final

STATUS: Final = Path("/proc/self/status")
CAP_NET_ADMIN: Final = 12  # linux/capability.h
CAP_NET_RAW: Final = 13
CAP_IPC_LOCK: Final = 14  # exempts from the limit of locked memory


def is_capable(capability: int, status: Path = STATUS) -> bool | None:
    """Return whether the capability is in the process's effective set; None if /proc does not show it."""
    try:
        for line in status.read_text().splitlines():
            key, _, value = line.partition(":")
            if key == "CapEff":
                return bool(int(value, 16) >> capability & 1)
    except (OSError, ValueError):
        pass
    return None


def may_control() -> bool:
    """Return whether the kernel lets us give a queue pair a controlled Q_Key (B3). True if unknown: then
    the kernel refuses the attempt."""
    return is_capable(CAP_NET_RAW) is not False
