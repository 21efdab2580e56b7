# SPDX-License-Identifier: BSD-2-Clause
"""TCP streams between hosts and pods, and the lengths of the frames in which they travel."""

from __future__ import annotations

import hashlib
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ipoibu.lab.host import Host
from tests.netns.programs import Station

ETH_P_ALL = 3


def family_of(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def transfer(sender: Station, receiver: Station, address: str, data: bytes) -> str:
    """Send `data` over one TCP connection; return the SHA-256 of the received bytes."""
    digest = hashlib.sha256()
    with receiver.socket(family_of(address), socket.SOCK_STREAM) as server:
        server.bind((address, 0))
        server.listen()
        server.settimeout(60)

        def receive() -> None:
            connection, _ = server.accept()
            connection.settimeout(60)
            with connection:
                while part := connection.recv(1 << 20):
                    digest.update(part)

        thread = threading.Thread(target=receive)
        thread.start()
        with sender.socket(family_of(address), socket.SOCK_STREAM) as client:
            client.settimeout(60)
            client.connect(server.getsockname())
            for at in range(0, len(data), 1 << 16):  # the time-out is for each piece
                client.sendall(data[at : at + (1 << 16)])
            client.shutdown(socket.SHUT_WR)
            thread.join()
    return digest.hexdigest()


def mss_of(client: Station, server: Station, address: str) -> tuple[int, int]:
    """Connect by TCP; return how much each end sends in a segment."""
    with (
        server.socket(family_of(address), socket.SOCK_STREAM) as listening,
        client.socket(family_of(address), socket.SOCK_STREAM) as connecting,
    ):
        listening.bind((address, 0))
        listening.listen()
        for end in (listening, connecting):
            end.settimeout(60)
        connecting.connect(listening.getsockname())
        with listening.accept()[0] as accepted:
            ours, theirs = (
                end.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
                for end in (connecting, accepted)
            )
            return ours, theirs


def moved(host: Host, before: dict[str, int], *names: str) -> list[int]:
    after = host.ask("stats")
    return [after.get(name, 0) - before.get(name, 0) for name in names]


@contextmanager
def lengths(host: Station, interface: str = "ib0") -> Iterator[list[int]]:
    """Yield the lengths of the packets that pass the host's interface, as a sniffer there sees them."""
    found: list[int] = []
    with host.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL)) as sniffer:
        sniffer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        sniffer.bind((interface, ETH_P_ALL))
        yield found
        while select.select([sniffer], [], [], 0)[0]:
            found.append(len(sniffer.recv(1 << 17)))
