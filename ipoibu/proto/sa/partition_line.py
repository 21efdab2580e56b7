# SPDX-License-Identifier: BSD-2-Clause
"""The line of OpenSM's partitions.conf that remedies a missing or unsuitable partition."""

from __future__ import annotations

from typing import Final

from ipoibu.base.addr import PKey
from ipoibu.base.limits import DEFAULT_SCOPE
from ipoibu.wire.sa import MTU_CODES

DEFAULT_NAME: Final = "Default"
DEFAULT_PARTITION: Final = 0x7FFF
DEFAULT_MTU: Final = 4  # the code of 2048 bytes
FULL_BIT: Final = 0x8000


def partition_line(
    pkey: PKey, *, guid: int | None = None, mtu_bytes: int | None = None, scope: int | None = None
) -> str:
    """The line for partitions.conf that makes a partition usable for IPoIB."""
    low = pkey & ~FULL_BIT
    name = DEFAULT_NAME if low == DEFAULT_PARTITION else f"ib{pkey.full:04x}"
    flags = "ipoib"
    if mtu_bytes is not None and MTU_CODES[mtu_bytes] != DEFAULT_MTU:
        flags += f", mtu={MTU_CODES[mtu_bytes]}"
    ports = "ALL" if guid is None or low == DEFAULT_PARTITION else f"0x{guid:016x}"
    added = f"{name}=0x{low:04x}, {flags} : {ports}=full"
    if scope not in (None, DEFAULT_SCOPE):
        # OpenSM 3.3.23 makes the broadcast group of `ipoib` with scope 2, and ignores scope=
        added += f", mgid=ff1{scope:x}:401b::ffff:ffff, scope={scope}"
    return f"{added};"
