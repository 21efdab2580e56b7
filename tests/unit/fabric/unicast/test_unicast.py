# SPDX-License-Identifier: BSD-2-Clause
"""Links without multicast: endpoints on an in-process fabric whose hosts meet over TCP on loopback."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, Self

import pytest

from ipoibu import Endpoint, EndpointConfig, Gid, LinkError, UsageError
from ipoibu._core import MemorySwitch
from ipoibu.addr import HwAddr, PKey, Qpn
from ipoibu.fabric.base import MeshOptions
from ipoibu.fabric.memory import MemoryPort
from ipoibu.limits import UNICAST_GREETING_MAX
from ipoibu.wire import mesh
from ipoibu.wire.mesh import Greeting, Operation
from ipoibu.wire.mesh_stream import FrameKind, FrameReader, frame
from tests.doubles.packets import udp4, until

WAIT_S: Final = 20.0


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("", 0))
        return int(sock.getsockname()[1])


class Link:
    """Hosts on one switch; host i has 10.0.0.i/24 and listens at its own port."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack, self._switch = stack, MemorySwitch(7)
        self.ports = {number: free_port() for number in range(1, 5)}

    def start(self, number: int, *peers: int, ib_mtu: int = 2048, **options: Any) -> Endpoint:
        names = tuple(f"127.0.0.1:{self.ports[peer]}" for peer in peers)
        mesh = MeshOptions(names, port=self.ports[number])
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


@pytest.fixture
def link() -> Iterator[Link]:
    with ExitStack() as stack:
        yield Link(stack)


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


# ---- the link


def test_one_seed_is_enough_for_unicast_and_multicast(link: Link) -> None:
    hosts = [link.start(1), link.start(2, 1), link.start(3, 1)]
    meet(*hosts)
    first, second, third = hosts
    to_one, to_all = udp4(2, "10.0.0.3", b"one"), udp4(2, "255.255.255.255", b"all")
    assert second.send([to_one, to_all]) == 2
    assert sorted(receive(third, 2)) == sorted([to_one, to_all])
    assert first.recv(timeout=10) == [to_all]
    assert counted(second, "unicast_tx_copies") >= 2
    # The switch itself has multicast, which nobody used: no group is attached to a port.
    assert {host.stats()["fabric.tx_nobody"] for host in hosts} == {0}


def test_a_host_without_peers_is_a_stranger(link: Link) -> None:
    first, second = link.start(1), link.start(2, 1)
    meet(first, second)
    stranger = link.start_config(3, EndpointConfig("h3", "memory"))
    until(lambda: stranger.show()["state"] == "up")
    # It knows a hardware address, and so may send to it, but nobody hears it.
    stranger._call(
        lambda: stranger._input(
            stranger._engine.learned, first.hwaddr, [ipaddress.ip_address("10.0.0.1")]
        )
    )
    before = counted(first, "unicast_rx_stranger")
    assert stranger.send([udp4(3, "10.0.0.1", b"psst")]) == 1
    until(lambda: counted(first, "unicast_rx_stranger") > before)
    assert first.recv(timeout=0) == []
    assert second.send([udp4(2, "10.0.0.1", b"friend")]) == 1
    assert first.recv(timeout=10) == [udp4(2, "10.0.0.1", b"friend")]


def test_hosts_that_dial_each_other_keep_one_connection(link: Link) -> None:
    for _ in range(5):
        with ExitStack() as stack:
            again = Link(stack)
            first, second = again.start(1, 2), again.start(2, 1)
            meet(first, second)
            assert [len(host.connections()) for host in (first, second)] == [1, 1]
            assert second.send([udp4(2, "10.0.0.1", b"hello")]) == 1
            assert first.recv(timeout=10) == [udp4(2, "10.0.0.1", b"hello")]


def test_a_host_that_ends_is_no_peer_any_more_and_may_come_back(link: Link) -> None:
    first = link.start(1)
    second = link.start(2, 1)
    meet(first, second)
    second.close()
    until(lambda: live(first) == set())
    again = link.start(2, 1)
    meet(first, again)
    assert again.send([udp4(2, "10.0.0.1", b"back")]) == 1
    assert first.recv(timeout=10) == [udp4(2, "10.0.0.1", b"back")]


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"pkey": PKey(0x8001)}, "mesh_other_partition"), ({"ib_mtu": 1024}, "mesh_other_mtu")],
)
def test_who_does_not_suit_is_refused_on_both_sides(
    link: Link, options: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = link.start(1), link.start(2, 1, **options)
    until(lambda: counted(second, "mesh_refused"))
    for host in (first, second):
        assert counted(host, reason) >= 1
        assert live(host) == set()
    if "ib_mtu" in options:
        assert "has an MTU of 1020, we have 2044" in caplog.text


def test_a_host_that_names_itself_dials_itself_once(link: Link) -> None:
    first, second = link.start(1, 1, 2), link.start(2, 1)
    meet(first, second)
    assert counted(first, "mesh_refused") == 1


# ---- what is refused


def test_a_port_that_is_taken_is_named(link: Link) -> None:
    link.start(1)
    link.ports[2] = link.ports[1]
    with pytest.raises(LinkError, match=rf"TCP port {link.ports[1]} for the peers: .*--mesh-port"):
        link.start(2)


def test_several_queues_do_not_go_with_peers() -> None:
    with pytest.raises(UsageError, match="queues is not for links with peers"):
        EndpointConfig("h1", "memory", queues=2, mesh=MeshOptions())


# ---- strangers at the door


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


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "mesh_frame_kind"),
        (b"\xff\xff\x01\x00", "mesh_frame_length"),
        (frame(FrameKind.CONTROL, GROUPS), "mesh_greeting"),
        (frame(FrameKind.REFUSAL, greeting(9)), "mesh_greeting"),
        (2 * frame(FrameKind.GREETING, greeting(9)), "mesh_frame_kind"),
        (
            frame(FrameKind.GREETING, greeting(9))
            + frame(FrameKind.CONTROL, GROUPS)
            + frame(FrameKind.GREETING, greeting(9)),
            "mesh_frame_kind",
        ),
    ],
)
def test_nonsense_ends_the_connection_and_is_counted(link: Link, said: bytes, reason: str) -> None:
    host = link.start(1)
    caller = link.call(1)
    caller.say(said)
    caller.hear()
    assert counted(host, reason) == 1
    until(lambda: live(host) == set())


def test_a_greeting_that_says_nothing_sensible_is_refused_with_ours(link: Link) -> None:
    host = link.start(1)
    caller = link.call(1)
    caller.say(frame(FrameKind.GREETING, b"garbage"))
    ((kind, body),) = caller.hear()
    assert kind is FrameKind.REFUSAL
    assert mesh.greeting_untrusted(body).hwaddr.pack()[1:] == host.hwaddr.pack()[1:]
    assert counted(host, "mesh_greeting") == 1


def test_a_greeting_that_comes_byte_by_byte_is_one(link: Link) -> None:
    host = link.start(1)
    caller = link.call(1)
    for byte in frame(FrameKind.GREETING, greeting(9)) + frame(FrameKind.CONTROL, GROUPS):
        caller.say(bytes((byte,)))
    until(lambda: len(live(host)) == 1)
    caller.sock.close()
    until(lambda: live(host) == set())


def test_silent_callers_keep_nobody_out(link: Link) -> None:
    host = link.start(1)
    silent = [link.call(1) for _ in range(UNICAST_GREETING_MAX + 10)]
    for caller in silent[:10]:
        assert caller.hear() == []  # the oldest had to go
    meet(host, link.start(2, 1))
    assert counted(host, "mesh_no_answer") >= 10


def test_a_peer_that_reads_nothing_is_given_up(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipoibu.fabric.unicast.stream.UNICAST_UNSENT_MAX", 1 << 14)
    host = link.start(1)
    caller = link.call(1)
    caller.say(frame(FrameKind.GREETING, greeting(9)) + frame(FrameKind.CONTROL, GROUPS))
    until(lambda: len(live(host)) == 1)
    addresses = [ipaddress.ip_address(0x0A010000 + n) for n in range(100)]
    fabric = host._opened().fabric
    deadline = time.monotonic() + WAIT_S
    while live(host):
        assert time.monotonic() < deadline
        fabric.announce(addresses)


def test_only_peers_may_ask_for_connections(link: Link) -> None:
    first, second = link.start(1), link.start(2, 1)
    meet(first, second)
    fabric = first._opened().fabric
    assert fabric.admits(second.hwaddr)
    assert not fabric.admits(HwAddr(Qpn(second.hwaddr.qpn + 1), second.hwaddr.gid))
    assert not fabric.admits(first.hwaddr)
    gone = second.hwaddr
    second.close()
    until(lambda: not fabric.admits(gone))
