# SPDX-License-Identifier: BSD-2-Clause
"""The speed and the carrier of network interfaces as `ethtool` shows them; /sys may show another network
namespace."""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct
from typing import Final

SIOCETHTOOL: Final = 0x8946  # linux/sockios.h
ETHTOOL_GSET: Final = 0x01  # linux/ethtool.h
ETHTOOL_SSET: Final = 0x02
ETHTOOL_GLINK: Final = 0x0A
SPEED_UNKNOWN: Final = 0xFFFF_FFFF
DUPLEX_FULL: Final = 0x01
# struct ethtool_cmd: cmd, supported, advertising, the speed's low half, duplex, six bytes (port ..
# mdio_support), maxtxpkt, maxrxpkt, the speed's high half, two bytes, lp_advertising, two reserved.
_COMMAND: Final = struct.Struct("=IIIHB5xIIH2xI8x")
_VALUE: Final = struct.Struct("=II")  # struct ethtool_value: cmd, data
_REQUEST: Final = struct.Struct("16sP16x")  # struct ifreq, of which we use a name and a pointer


def speed_mbps(name: str) -> int | None:
    """Return the speed of an interface of this network namespace in Mb/s, None where it is unknown."""
    command = array.array("B", _COMMAND.pack(ETHTOOL_GSET, 0, 0, 0, 0, 0, 0, 0, 0))
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            _ethtool(control, name, command)
    except OSError:  # the interface has no speed
        return None
    _, _, _, low, _, _, _, high, _ = _COMMAND.unpack(command)
    speed: int = high << 16 | low
    return speed if 0 < speed < SPEED_UNKNOWN else None


def has_carrier(control: socket.socket, name: str) -> bool:
    """Return whether an interface has a carrier, in the network namespace of the socket; True where it does
    not say so. Waits for the lock of all net devices."""
    command = array.array("B", _VALUE.pack(ETHTOOL_GLINK, 0))
    try:
        _ethtool(control, name, command)
    except OSError:
        return True
    return bool(_VALUE.unpack(command)[1])


def set_speed(control: socket.socket, name: str, speed_mbps: int | None) -> None:
    """Show `speed_mbps`, or "unknown", as the speed of the TUN `name` in the network namespace of the
    socket.

    `OSError` where the kernel's TUN has no such setting (before Linux 4.20).
    """
    speed = SPEED_UNKNOWN if speed_mbps is None else speed_mbps
    low, high = speed & 0xFFFF, speed >> 16
    _ethtool(
        control,
        name,
        array.array("B", _COMMAND.pack(ETHTOOL_SSET, 0, 0, low, DUPLEX_FULL, 0, 0, high, 0)),
    )


def _ethtool(control: socket.socket, name: str, command: array.array[int]) -> None:
    """Carry `command` out; the kernel writes its answer into it."""
    address, _ = command.buffer_info()
    fcntl.ioctl(control, SIOCETHTOOL, _REQUEST.pack(os.fsencode(name), address))
