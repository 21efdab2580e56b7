# SPDX-License-Identifier: BSD-2-Clause
"""One end of a TUN over UDP, in this network namespace: `tunnel INTERFACE LOCAL REMOTE KIND BYTES`.

KIND is `bare`, with BYTES of a datagram at most, or `ceiling`, with BYTES of a packet in connected mode
or 0 for datagram mode. It prints "ready" when the interface exists, which ends with the process.
"""

from __future__ import annotations

import socket
import sys
from typing import Final

from ipoibu import _core
from ipoibu.bench._ceiling import Ceiling
from ipoibu.bench.stream import BUFFER_BYTES, UDP_GRO
from ipoibu.host import receive_buffer
from ipoibu.host.tun import Tun

PORTS: Final = {"bare": 5203, "ceiling": 4791}


def main(arguments: list[str]) -> None:
    name, local, remote, kind, size = arguments
    with Tun.open(name) as tun, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        receive_buffer.enlarge(udp, BUFFER_BYTES)
        udp.bind((local, PORTS[kind]))
        udp.connect((remote, PORTS[kind]))
        udp.setsockopt(socket.SOL_UDP, UDP_GRO, 1)
        udp.setblocking(False)
        print("ready", flush=True)
        if kind == "bare":
            _core.tunnel(tun.fd, udp.fileno(), int(size))
        else:
            Ceiling(tun.fd, udp, int(size)).run()


if __name__ == "__main__":
    main(sys.argv[1:])
