# SPDX-License-Identifier: BSD-2-Clause
"""Hosts of a link without multicast on an in-process fabric, which meet over TCP on loopback, and a stranger
at their door."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import time
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, Self

from ipoibu import Endpoint, EndpointConfig, Gid
from ipoibu._core import MemorySwitch
from ipoibu.base.addr import HwAddr, PKey, Qpn
from ipoibu.fabric.base import MeshOptions
from ipoibu.fabric.memory import MemoryPort
from ipoibu.fabric.mesh.peer_key import PeerKey
from ipoibu.wire import mesh
from ipoibu.wire.mesh import Greeting, Operation
from ipoibu.wire.mesh_stream import FrameKind, FrameReader
from tests.doubles.packets import until
from tests.doubles.ports import reserved_port

WAIT_S: Final = 20.0


class UnicastHosts:
    """Hosts on one switch; host i has 10.0.0.i/24 and listens at its own port."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack, self._switch = stack, MemorySwitch(7)
        self.ports = {number: stack.enter_context(reserved_port()) for number in range(1, 5)}

    def start(
        self,
        number: int,
        *peers: int,
        ib_mtu: int = 2048,
        key: PeerKey | None = None,
        **options: Any,
    ) -> Endpoint:
        names = tuple(f"127.0.0.1:{self.ports[peer]}" for peer in peers)
        mesh = MeshOptions(names, port=self.ports[number], key=key)
        config = EndpointConfig(f"h{number}", "memory", mesh=mesh, **options)
        return self.start_config(number, config, ib_mtu)

    def start_config(self, number: int, config: EndpointConfig, ib_mtu: int = 2048) -> Endpoint:
        gid = Gid.parse(f"fe80::{number}")
        port = MemoryPort(self._switch, gid, active_mtu_bytes=ib_mtu)
        host = self._stack.enter_context(Endpoint(config, port=port))
        host.address_added(ipaddress.ip_interface(f"10.0.0.{number}/24"))
        return host

    def call(self, number: int) -> Caller:
        return self._stack.enter_context(Caller(self.ports[number]))


def live(host: Endpoint) -> set[str]:
    return {row["peer"] for row in host.connections() if row["state"] == "live"}


def knows(host: Endpoint, others: set[str]) -> bool:
    """Return whether the host is connected with the others and has heard their groups, and then their
    addresses."""
    return live(host) == others == {row["hwaddr"] for row in host.neighbours()}


def meet(*hosts: Endpoint) -> None:
    for host in hosts:
        others = {str(other.hwaddr) for other in hosts if other is not host}
        until(partial(knows, host, others))


def receive(host: Endpoint, count: int) -> list[bytes]:
    packets: list[bytes] = []
    deadline = time.monotonic() + WAIT_S
    while len(packets) < count:
        assert time.monotonic() < deadline
        packets += host.recv(timeout=1)
    return packets


def counted(host: Endpoint, name: str) -> int:
    return host.stats().get(f"fabric.{name}", 0)


class Caller:
    """A TCP client that says what it wants."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self._reader = FrameReader()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.sock.close()

    def say(self, data: bytes) -> None:
        self.sock.sendall(data)

    def hear(self) -> list[tuple[FrameKind, bytes]]:
        """Return everything until the host hangs up."""
        heard: list[tuple[FrameKind, bytes]] = []
        with contextlib.suppress(ConnectionResetError):
            while data := self.sock.recv(65536):
                heard += self._reader.frames_untrusted(data)
        return heard


def greeting(number: int, mtu_bytes: int = 2044) -> bytes:
    hwaddr = HwAddr(Qpn(0x700 + number), Gid.parse(f"fe80::{number:x}"))
    return Greeting(hwaddr, mtu_bytes, 1, PKey(0xFFFF), 9).pack()


GROUPS: Final = next(mesh.groups(Operation.GROUPS, []))
