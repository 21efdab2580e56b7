# SPDX-License-Identifier: BSD-2-Clause
"""The kind of an RDMA device as the kernel lists it, without the RDMA libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_SYSFS: Final = Path("/sys/class/infiniband")


def is_iwarp(name: str, root: Path = _SYSFS) -> bool | None:
    """Return whether the device is one of iWARP; None if there is no such device now."""
    try:
        return (root / name / "node_type").read_text("ascii").strip().endswith("RNIC")
    except (OSError, UnicodeError):
        return None
