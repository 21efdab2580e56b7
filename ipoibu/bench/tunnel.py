# SPDX-License-Identifier: BSD-2-Clause
"""One end of the bare tunnel: `tunnel INTERFACE LOCAL REMOTE SEGMENT_BYTES`, in this network namespace.

It prints "ready" when the interface exists, which ends with the process.
"""

from __future__ import annotations

import socket
import sys
from typing import Final

from ipoibu import _core
from ipoibu.bench.stream import BUFFER_BYTES
from ipoibu.host import receive_buffer
from ipoibu.host.tun import Tun

PORT: Final = 5203


def main(arguments: list[str]) -> None:
    name, local, remote, segment_bytes = arguments
    with Tun.open(name) as tun, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        receive_buffer.enlarge(udp, BUFFER_BYTES)
        udp.bind((local, PORT))
        udp.connect((remote, PORT))
        udp.setblocking(False)
        print("ready", flush=True)
        _core.tunnel(tun.fd, udp.fileno(), int(segment_bytes))


if __name__ == "__main__":
    main(sys.argv[1:])
