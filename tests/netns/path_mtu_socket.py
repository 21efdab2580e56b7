# SPDX-License-Identifier: BSD-2-Clause
"""A program with a socket on an endpoint whose datagrams cross a router to a link with a smaller MTU.

python path_mtu_socket.py OWN ROUTER NETWORK PEER

It opens an endpoint on soft:eth0 with the address OWN and a route to NETWORK by ROUTER. It prints as JSON
what became of datagrams of 1800 bytes to port 7000 of PEER, which sends them back, and of the longest that
fits a packet of 1400 bytes: the error's name, or "back".
"""

from __future__ import annotations

import errno
import json
import sys
import time

from ipoibu import Endpoint, EndpointConfig
from ipoibu.aio import UdpSocket
from ipoibu.aio.host import host_of
from ipoibu.base.limits import PATH_MTU_S

PATIENCE_S = 60.0


def fate(endpoint: Endpoint, peer: str, length: int, *, dont_fragment: bool = True) -> str:
    """Send a datagram until it comes back, or an error says that it cannot be sent or does not get there."""
    data = bytes(number & 0xFF for number in range(length))
    until = time.monotonic() + PATIENCE_S
    with UdpSocket(endpoint, remote_addr=(peer, 7000)) as udp:
        udp.configure(dont_fragment=dont_fragment)
        while time.monotonic() < until:
            try:
                udp.send(data)
            except OSError as problem:
                return f"{errno.errorcode[problem.errno or 0]} of send"
            try:
                if udp.recv(timeout=1.0) == data:
                    return "back"
            except TimeoutError:
                continue  # UDP may lose one
            except OSError as problem:
                return f"{errno.errorcode[problem.errno or 0]} of a router"
    return "lost"


def main(own: str, router: str, network: str, peer: str) -> None:
    said = {}
    fitting = 1400 - (48 if ":" in peer else 28)
    with Endpoint(EndpointConfig("ib0", "soft:eth0")) as endpoint:
        endpoint.address_added(own)
        endpoint.route_added(network, router)
        assert endpoint.wait_up(PATIENCE_S)
        said["first"] = fate(endpoint, peer, 1800)
        said["then"] = fate(endpoint, peer, 1800)
        said["one more than fits"] = fate(endpoint, peer, fitting + 1)
        said["fits"] = fate(endpoint, peer, fitting)
        said["in fragments"] = fate(endpoint, peer, 1800, dont_fragment=False)
        with UdpSocket(endpoint) as udp, udp._receiver.lock:
            host_of(endpoint).look(time.monotonic() + PATH_MTU_S)
        said["after ten minutes"] = fate(endpoint, peer, 1800)
    print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
