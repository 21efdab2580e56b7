# SPDX-License-Identifier: BSD-2-Clause
"""Writes what the IPv4 and UDP headers of RoCEv2 packets hold, from the wire of the machine.

python3 -m tests.lab.scenarios.ipv4_headers NETDEV COUNT FILE
"""

from __future__ import annotations

import json
import socket
import struct
import sys
from pathlib import Path

ETH_P_ALL = 3


def header(frame: bytes) -> dict[str, object] | None:
    """Return the fields of a RoCEv2 packet over IPv4; None for other frames."""
    if frame[12:14] != b"\x08\0" or frame[23] != 17 or frame[36:38] != struct.pack("!H", 4791):
        return None
    identification, fragment = struct.unpack_from("!HH", frame, 18)
    return {
        "source": socket.inet_ntoa(frame[26:30]),
        "id": identification,
        "df": fragment == 0x4000,
        "ttl": frame[22],
        "udp_checksum": struct.unpack_from("!H", frame, 40)[0],
    }


def main(netdev: str, count: int, file: Path) -> None:
    headers: list[dict[str, object]] = []
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as wire:
        wire.bind((netdev, 0))
        file.touch()  # the caller may begin
        while len(headers) < count:
            found = header(wire.recv(65536))
            if found is not None:
                headers.append(found)
    file.write_text(json.dumps(headers))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
