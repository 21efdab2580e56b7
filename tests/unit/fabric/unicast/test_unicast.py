# SPDX-License-Identifier: BSD-2-Clause
"""Links without multicast: endpoints on an in-process fabric whose hosts meet over TCP on loopback."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from ipoibu import Endpoint, EndpointConfig, LinkError, UsageError
from ipoibu.base.addr import HwAddr, PKey, Qpn
from ipoibu.base.limits import UNICAST_GREETING_MAX
from ipoibu.fabric.base import MeshOptions
from ipoibu.fabric.unicast.fabric import UnicastFabric
from ipoibu.fabric.unicast.rendezvous import Rendezvous
from ipoibu.wire import mesh
from ipoibu.wire.mesh_stream import FrameKind, frame
from tests.doubles.packets import udp4, until
from tests.doubles.unicast_hosts import (
    GROUPS,
    WAIT_S,
    UnicastHosts,
    counted,
    greeting,
    live,
    meet,
    receive,
)


@pytest.fixture
def link() -> Iterator[UnicastHosts]:
    with ExitStack() as stack:
        yield UnicastHosts(stack)


# ---- the link


def test_one_seed_is_enough_for_unicast_and_multicast(link: UnicastHosts) -> None:
    hosts = [link.start(1), link.start(2, 1), link.start(3, 1)]
    meet(*hosts)
    first, second, third = hosts
    to_one, to_all = udp4(2, "10.0.0.3", b"one"), udp4(2, "255.255.255.255", b"all")
    assert second.send([to_one, to_all]) == 2
    assert sorted(receive(third, 2)) == sorted([to_one, to_all])
    assert first.recv(timeout=10) == [to_all]
    until(lambda: counted(second, "unicast_tx_copies") >= 2)  # a sender counts what it has sent
    # The switch itself has multicast, which nobody used: no group is attached to a port.
    assert {host.stats()["fabric.tx_nobody"] for host in hosts} == {0}


def test_a_host_accepts_a_peers_datagrams_before_it_tells_where_it_listens(
    link: UnicastHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the peer's first datagrams are a stranger's."""
    accepted: list[bool] = []

    def put(self: Any, handle: int, kind: FrameKind, body: bytes) -> None:
        if kind is FrameKind.CONTROL:
            peer = self._wires[handle].greeting.hwaddr
            accepted.append(self._core.is_peer(peer.gid.raw, peer.qpn))
        original(self, handle, kind, body)

    original = Rendezvous._put
    monkeypatch.setattr(Rendezvous, "_put", put)
    meet(link.start(1), link.start(2, 1))
    assert len(accepted) >= 4  # each host sends its groups and its addresses
    assert all(accepted)


def test_a_host_without_peers_is_a_stranger(link: UnicastHosts) -> None:
    first, second = link.start(1), link.start(2, 1)
    meet(first, second)
    stranger = link.start_config(3, EndpointConfig("h3", "memory"))
    until(lambda: stranger.show()["state"] == "up")
    # It knows a hardware address, and so may send to it, but nobody hears it.
    stranger._call(
        lambda: stranger._input(
            stranger._engine.note_learned, first.hwaddr, [ipaddress.ip_address("10.0.0.1")]
        )
    )
    before = counted(first, "unicast_rx_stranger")
    assert stranger.send([udp4(3, "10.0.0.1", b"psst")]) == 1
    until(lambda: counted(first, "unicast_rx_stranger") > before)
    assert first.recv(timeout=0) == []
    assert second.send([udp4(2, "10.0.0.1", b"friend")]) == 1
    assert first.recv(timeout=10) == [udp4(2, "10.0.0.1", b"friend")]


def _have_one_connection(*hosts: Endpoint) -> bool:
    return all(len(host.connections()) == len(live(host)) == 1 for host in hosts)


def test_hosts_that_dial_each_other_keep_one_connection(link: UnicastHosts) -> None:
    for _ in range(5):
        with ExitStack() as stack:
            again = UnicastHosts(stack)
            first, second = again.start(1, 2), again.start(2, 1)
            meet(first, second)
            until(partial(_have_one_connection, first, second))
            assert second.send([udp4(2, "10.0.0.1", b"hello")]) == 1
            assert first.recv(timeout=10) == [udp4(2, "10.0.0.1", b"hello")]


def test_a_host_that_ends_is_no_peer_any_more_and_may_come_back(link: UnicastHosts) -> None:
    first = link.start(1)
    second = link.start(2, 1)
    meet(first, second)
    second.close()
    until(lambda: live(first) == set())
    again = link.start(2, 1)
    meet(first, again)
    assert again.send([udp4(2, "10.0.0.1", b"back")]) == 1
    assert first.recv(timeout=10) == [udp4(2, "10.0.0.1", b"back")]


def _replace_queue_pair(host: Endpoint) -> None:
    before = host.hwaddr
    host._call(host._opened().demand_flush, "a test asks for it")
    until(lambda: host.hwaddr != before)


def test_a_host_with_another_queue_pair_meets_its_peers_again(link: UnicastHosts) -> None:
    """It learns their addresses from their greetings: they send it no ARP."""
    first, second = link.start(1), link.start(2, 1)
    meet(first, second)
    for host in (first, second):
        _replace_queue_pair(host)
        meet(first, second)
    second.close()
    until(lambda: live(first) == set())


def test_the_underlay_hears_which_peers_the_operator_names_now(link: UnicastHosts) -> None:
    host = link.start(1, 2)
    fabric = host._opened().fabric
    assert isinstance(fabric, UnicastFabric)
    peers = fabric._rendezvous
    until(lambda: peers.named == (ipaddress.ip_address("127.0.0.1"),))
    assert not peers.has_peers
    host.set_peers(["127.0.0.2:4790", "[::1]:4790"])
    named = tuple(ipaddress.ip_address(it) for it in ("127.0.0.2", "::1"))
    until(lambda: peers.named == named)
    meet(host, link.start(3, 1))
    assert peers.has_peers


def test_a_peer_that_announces_itself_while_the_queue_pair_is_replaced_is_reached(
    link: UnicastHosts,
) -> None:
    first, second = link.start(1), link.start(2, 1)
    meet(first, second)
    interface = first._opened()

    def announce_and_replace() -> None:
        interface.peers.note_peer(second.hwaddr, (ipaddress.ip_address("10.0.0.2"),))
        interface.demand_flush("a test asks for it")

    first._call(announce_and_replace)
    meet(first, second)
    assert first.send([udp4(1, "10.0.0.2", b"hello")]) == 1
    assert second.recv(timeout=WAIT_S) == [udp4(1, "10.0.0.2", b"hello")]


def test_a_host_with_another_queue_pair_looks_for_the_peers_that_it_got_last(
    link: UnicastHosts,
) -> None:
    first, second = link.start(1), link.start(2, 3)  # the third host never comes
    second.set_peers([f"127.0.0.1:{link.ports[1]}"])
    meet(first, second)
    first.close()
    _replace_queue_pair(second)
    meet(link.start(1), second)


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"pkey": PKey(0x8001)}, "mesh_other_partition"), ({"ib_mtu": 1024}, "mesh_other_mtu")],
)
def test_who_does_not_suit_is_refused_on_both_sides(
    link: UnicastHosts, options: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = link.start(1), link.start(2, 1, **options)
    until(lambda: counted(second, "mesh_refused"))
    for host in (first, second):
        assert counted(host, reason) >= 1
        assert live(host) == set()
    if "ib_mtu" in options:
        assert "has an MTU of 1020, we have 2044" in caplog.text


def test_a_host_that_names_itself_dials_itself_once(link: UnicastHosts) -> None:
    first, second = link.start(1, 1, 2), link.start(2, 1)
    meet(first, second)
    until(lambda: counted(first, "mesh_refused") == 1)


# ---- what is refused


def test_a_port_that_is_taken_is_named(link: UnicastHosts) -> None:
    link.start(1)
    link.ports[2] = link.ports[1]
    with pytest.raises(LinkError, match=rf"TCP port {link.ports[1]} for the peers: .*--mesh-port"):
        link.start(2)


def test_several_queues_do_not_go_with_peers() -> None:
    with pytest.raises(UsageError, match="queues is not for links with peers"):
        EndpointConfig("h1", "memory", queues=2, mesh=MeshOptions())


# ---- strangers at the door


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
def test_nonsense_ends_the_connection_and_is_counted(
    link: UnicastHosts, said: bytes, reason: str
) -> None:
    host = link.start(1)
    caller = link.call(1)
    caller.say(said)
    caller.hear()
    assert counted(host, reason) == 1
    until(lambda: live(host) == set())


def test_a_greeting_that_says_nothing_sensible_is_refused_with_ours(link: UnicastHosts) -> None:
    host = link.start(1)
    caller = link.call(1)
    caller.say(frame(FrameKind.GREETING, b"garbage"))
    ((kind, body),) = caller.hear()
    assert kind is FrameKind.REFUSAL
    assert mesh.greeting_untrusted(body).hwaddr.pack()[1:] == host.hwaddr.pack()[1:]
    assert counted(host, "mesh_greeting") == 1


def test_a_greeting_that_comes_byte_by_byte_is_one(link: UnicastHosts) -> None:
    host = link.start(1)
    caller = link.call(1)
    for byte in frame(FrameKind.GREETING, greeting(9)) + frame(FrameKind.CONTROL, GROUPS):
        caller.say(bytes((byte,)))
    until(lambda: len(live(host)) == 1)
    caller.sock.close()
    until(lambda: live(host) == set())


def test_silent_callers_keep_nobody_out(link: UnicastHosts) -> None:
    host = link.start(1)
    silent = [link.call(1) for _ in range(UNICAST_GREETING_MAX + 10)]
    for caller in silent[:10]:
        assert caller.hear() == []  # the oldest had to go
    meet(host, link.start(2, 1))
    assert counted(host, "mesh_no_answer") >= 10


def test_a_peer_that_reads_nothing_is_given_up(
    link: UnicastHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_only_peers_may_ask_for_connections(link: UnicastHosts) -> None:
    first, second = link.start(1), link.start(2, 1)
    meet(first, second)
    fabric = first._opened().fabric
    assert fabric.admits(second.hwaddr)
    assert not fabric.admits(HwAddr(Qpn(second.hwaddr.qpn + 1), second.hwaddr.gid))
    assert not fabric.admits(first.hwaddr)
    gone = second.hwaddr
    second.close()
    until(lambda: not fabric.admits(gone))
