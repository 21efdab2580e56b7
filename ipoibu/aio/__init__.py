# SPDX-License-Identifier: BSD-2-Clause
"""UDP on an embedded endpoint, without a TUN: transports of asyncio, and blocking sockets.

Where to look:

- `creation`: `create_datagram_endpoint`
- `loop`: `with_datagrams`, for libraries that ask the loop
- `transport`: asyncio's transport
- `socket_calls`: options and groups, for whoever owns a socket
- `datagram_socket`: a socket, and how its datagrams leave
- `ends`: the part of a socket by which it is found
- `host`: the way of received packets to the sockets
- `network`: what the sockets of an endpoint share
- `udp_socket`: a blocking socket, with batches
- `loop_receiver`: takes the endpoint's packets on an event loop
- `thread_receiver`: takes them on the threads that wait
- `ports`: which socket gets a datagram
- `groups`: multicast groups of a socket, with source filters
- `reassembly`: fragments
- `path_mtu`: path MTUs
- `icmp`: echo, errors that we send, and errors that we hear
- `address`: addresses as programs and packets have them

It imports: `base`, `endpoint`, `proto`, `wire`.

Not here:

- Bytes of headers: `wire`, and for each datagram ext/device/datagram.c.
- TCP: `ipoibu run` gives a program the kernel's.
"""

from ipoibu.aio.creation import create_datagram_endpoint
from ipoibu.aio.host import stats
from ipoibu.aio.loop import with_datagrams
from ipoibu.aio.transport import DatagramTransport
from ipoibu.aio.udp_socket import UdpSocket

__all__ = ["DatagramTransport", "UdpSocket", "create_datagram_endpoint", "stats", "with_datagrams"]
