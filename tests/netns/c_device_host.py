# SPDX-License-Identifier: BSD-2-Clause
"""A host of a lab whose interface is the echo of docs/examples/c-device, and a client for it.

python c_device_host.py serve DIRECTORY ADDRESS, with the compiled examples in DIRECTORY: prints "ready", and
the counters of super-frames when its input ends.
python c_device_host.py ask ADDRESS: by the kernel's sockets; prints how much came back, merged.
"""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Final

SEGMENT_BYTES: Final = 1400
SEGMENTS: Final = 30
ROUNDS: Final = 20
UDP_SEGMENT, UDP_GRO = 103, 104


def serve(directory: str, address: str) -> None:
    from ipoibu import Endpoint, EndpointConfig

    sys.path.append(str(Path(__file__).parents[2]))
    from tests.doubles.c_example import Echo

    echo = Echo(Path(directory))
    with Endpoint(EndpointConfig("ib0", "soft:eth0"), device=echo.device) as endpoint:
        endpoint.address_added(address)
        assert endpoint.wait_up(timeout=60)
        print("ready", flush=True)
        sys.stdin.read()
        stats = endpoint.stats()
        names = ("tx_super_frames", "rx_merged_frames")
        print(json.dumps({name: stats[name] for name in names}), flush=True)


def ask(address: str) -> None:
    """Send super-frames, each until all of it has come back at once: UDP may lose some."""
    data = bytes(n * 131 + n // 251 & 0xFF for n in range(SEGMENT_BYTES * SEGMENTS))
    reads, rounds = 0, 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_UDP, UDP_SEGMENT, SEGMENT_BYTES)
        sock.setsockopt(socket.SOL_UDP, UDP_GRO, 1)
        sock.settimeout(1)
        sock.connect((address, 7))
        while rounds < ROUNDS:
            sock.send(data)
            got, calls = b"", 0
            try:
                while len(got) < len(data):
                    got += sock.recv(65536)
                    calls += 1
            except TimeoutError:
                continue
            assert got == data
            reads, rounds = reads + calls, rounds + 1
    print(json.dumps({"rounds": rounds, "reads": reads}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(*sys.argv[2:])
    else:
        ask(*sys.argv[2:])
