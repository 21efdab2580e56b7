# SPDX-License-Identifier: BSD-2-Clause
"""Whom we share an InfiniBand port with: the kernel's own IPoIB interfaces (M4).

The SA knows a port's membership, not who on the port wanted it. A Delete of ours would end the
membership that the kernel's interface relies on, and nobody would tell the kernel.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ipoibu.addr import PKey

NET: Final = Path("/sys/class/net")
_ARPHRD_INFINIBAND: Final = 32


def kernel_partitions(device: str, port: int, net: Path = NET) -> frozenset[PKey]:
    """The partitions, by full P_Key, in which the kernel has an interface on this port.

    Interfaces of other network namespaces are not seen: who moves them there knows.
    """
    found = set()
    for interface in net.iterdir() if net.is_dir() else ():
        if _number(interface / "type") != _ARPHRD_INFINIBAND:
            continue
        if not (interface / "device" / "infiniband" / device).exists():
            continue
        pkey = _number(interface / "pkey")
        if _number(interface / "dev_port") == port - 1 and pkey is not None:
            found.add(PKey(pkey).full)
    return frozenset(found)


def _number(file: Path) -> int | None:
    """An attribute's value; None where the interface has none, or went away meanwhile."""
    try:
        return int(file.read_text("ascii"), 0)
    except (OSError, ValueError):
        return None
