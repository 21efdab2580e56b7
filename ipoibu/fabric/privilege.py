# SPDX-License-Identifier: BSD-2-Clause
"""What the kernel lets this process do."""

from __future__ import annotations

from pathlib import Path
from typing import Final

STATUS: Final = Path("/proc/self/status")
CAP_NET_ADMIN: Final = 12  # linux/capability.h
CAP_NET_RAW: Final = 13


def is_capable(capability: int, status: Path = STATUS) -> bool | None:
    """Whether the process has it in its effective set; None where that cannot be read."""
    try:
        for line in status.read_text().splitlines():
            key, _, value = line.partition(":")
            if key == "CapEff":
                return bool(int(value, 16) >> capability & 1)
    except (OSError, ValueError):
        pass
    return None


def may_control() -> bool:
    """Whether the kernel lets us give a queue pair a controlled Q_Key (B3); where nothing tells, the
    attempt will."""
    return is_capable(CAP_NET_RAW) is not False
