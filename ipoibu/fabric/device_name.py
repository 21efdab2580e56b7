# SPDX-License-Identifier: BSD-2-Clause
"""The names of devices. Unlike the devices, this module needs no part of the C core."""

from __future__ import annotations

from typing import Final

from ipoibu.errors import UsageError

PREFIX: Final = "soft:"  # the built-in HCA on a net device
SEPARATOR: Final = "@"  # between the net device and the name of the InfiniBand port


def parse_device(text: str) -> tuple[str, int]:
    """Split `DEV[/PORT]`; the port is 1 unless given. `UsageError` for anything else."""
    device, slash, port = text.partition("/")
    if not device or not device.isprintable() or (slash and not port.isdecimal()):
        raise _no_device(text)
    if device.startswith(PREFIX):
        netdev, at, umad = device.removeprefix(PREFIX).partition(SEPARATOR)
        if not netdev or (at and not umad):
            raise _no_device(text)
    return device, int(port) if slash else 1


def _no_device(text: str) -> UsageError:
    return UsageError(
        f"{text!r} is not a device (expected {PREFIX}NETDEV, {PREFIX}NETDEV{SEPARATOR}UMAD"
        " or RDMADEV, then /PORT)"
    )
