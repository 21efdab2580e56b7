# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's own IPoIB interfaces, which may share an InfiniBand port with us (M4).

The SA keeps one membership for a port, for all programs. A Delete of ours would end the membership that the
kernel's interface relies on, and the kernel would not learn of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ipoibu.addr import PKey

NET: Final = Path("/sys/class/net")
_ARPHRD_INFINIBAND: Final = 32


def kernel_partitions(device: str, port: int, net: Path = NET) -> frozenset[PKey]:
    """Return the partitions, by full P_Key, in which the kernel has an interface on this port.

    Sysfs does not show interfaces in other network namespaces.
    """
    pkeys = set()
    for interface in net.iterdir() if net.is_dir() else ():
        if _number(interface / "type") != _ARPHRD_INFINIBAND:
            continue
        if not (interface / "device" / "infiniband" / device).exists():
            continue
        pkey = _number(interface / "pkey")
        if _number(interface / "dev_port") == port - 1 and pkey is not None:
            pkeys.add(PKey(pkey).full)
    return frozenset(pkeys)


def _number(file: Path) -> int | None:
    """Return an attribute's value; None where the interface has none, or has gone meanwhile."""
    try:
        return int(file.read_text("ascii"), 0)
    except (OSError, ValueError):
        return None
