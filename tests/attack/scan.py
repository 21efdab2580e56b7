# SPDX-License-Identifier: BSD-2-Clause
"""A local program that sends to ever new addresses of a network, until it is killed.

python scan.py NETWORK PER_SECOND
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import sys
import time
from ipaddress import IPv4Network
from typing import Final

TICK_S: Final = 0.002
FIRST: Final = 256  # the hosts before this one are for tests


def main(network: IPv4Network, per_second: int) -> None:
    hosts = itertools.cycle(range(FIRST, network.num_addresses - 1))
    began, sent = time.monotonic(), 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        while True:
            for _ in range(int((time.monotonic() - began) * per_second) - sent):
                sent += 1
                with contextlib.suppress(OSError):  # an ICMP error about an earlier packet
                    out.sendto(b"scan", (str(network[next(hosts)]), 9))
            time.sleep(TICK_S)


if __name__ == "__main__":
    main(IPv4Network(sys.argv[1]), int(sys.argv[2]))
