# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's own IPoIB interfaces, which may share an InfiniBand port with us (M4).

The SA keeps one membership for a port, for all programs. A Delete of ours would end the membership that the
kernel's interface relies on, and the kernel would not learn of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ipoibu.base.addr import PKey

NET: Final = Path("/sys/class/net")
_ARPHRD_INFINIBAND: Final = 32


@dataclass(frozen=True, slots=True)
class KernelIpoib:
    """An interface of the kernel's ib_ipoib; `pkey` is its partition's, by the full key."""

    name: str
    pkey: PKey
    mtu_bytes: int
    is_connected: bool


def kernel_interfaces(device: str, port: int, net: Path = NET) -> tuple[KernelIpoib, ...]:
    """Return the kernel's interfaces on this port.

    Sysfs does not show interfaces in other network namespaces.
    """
    found = []
    for interface in sorted(net.iterdir()) if net.is_dir() else ():
        if _number(interface / "type") != _ARPHRD_INFINIBAND:
            continue
        if not (interface / "device" / "infiniband" / device).exists():
            continue
        pkey = _number(interface / "pkey")
        if _number(interface / "dev_port") == port - 1 and pkey is not None:
            mtu_bytes = _number(interface / "mtu") or 0
            is_connected = _text(interface / "mode") == "connected"
            found.append(KernelIpoib(interface.name, PKey(pkey).full, mtu_bytes, is_connected))
    return tuple(found)


def kernel_partitions(device: str, port: int, net: Path = NET) -> frozenset[PKey]:
    """Return the partitions, by full P_Key, in which the kernel has an interface on this port."""
    return frozenset(it.pkey for it in kernel_interfaces(device, port, net))


def _text(file: Path) -> str:
    try:
        return file.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


def _number(file: Path) -> int | None:
    """Return an attribute's value; None where the interface has none, or has gone meanwhile."""
    try:
        return int(_text(file), 0)
    except ValueError:
        return None
