# SPDX-License-Identifier: BSD-2-Clause
"""Hosts that know the key are received on a link without multicast, for the interface of their P_Key."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ipoibu import Endpoint, EndpointConfig, UsageError
from ipoibu.base.addr import PKey
from ipoibu.fabric.base import MeshOptions
from ipoibu.fabric.mesh.peer_key import PeerKey
from ipoibu.fabric.unicast.query import Denied, query
from ipoibu.wire import mesh
from ipoibu.wire.mesh import Greeting
from ipoibu.wire.mesh_key import Denial, KeyExchange
from ipoibu.wire.mesh_stream import FrameKind, frame
from tests.doubles.packets import udp4, until
from tests.doubles.unicast_hosts import (
    GROUPS,
    UnicastHosts,
    counted,
    greeting,
    live,
    meet,
    receive,
)

NONCE = b"n" * 32


@pytest.fixture
def link() -> Iterator[UnicastHosts]:
    with ExitStack() as stack:
        yield UnicastHosts(stack)


@pytest.fixture
def keys(tmp_path: Path) -> tuple[PeerKey, PeerKey]:
    """Two different keys."""
    for name in "ab":
        (tmp_path / name).write_text(64 * name)
        (tmp_path / name).chmod(0o600)
    return PeerKey(tmp_path / "a"), PeerKey(tmp_path / "b")


# ---- the key


def test_hosts_that_share_a_key_meet(link: UnicastHosts, keys: tuple[PeerKey, PeerKey]) -> None:
    hosts = [link.start(1, key=keys[0]), *(link.start(n, 1, key=keys[0]) for n in (2, 3))]
    meet(*hosts)
    assert hosts[1].send([udp4(2, "10.0.0.3", b"hello")]) == 1
    assert receive(hosts[2], 1) == [udp4(2, "10.0.0.3", b"hello")]
    assert not any(counted(host, "mesh_key_wrong") for host in hosts)


WRONG = ("has another key: refused", "that host has another key")
WANTED = ("shows no key: refused", "that host has a key, and we have none")
UNKNOWN = ("has a key, and we have none: refused", "we have a key, and that host has none")


@pytest.mark.parametrize(
    ("ours", "theirs", "counter", "lines"),
    [
        (0, 1, "mesh_key_wrong", WRONG),
        (0, 2, "mesh_key_missing", WANTED),
        (2, 0, "mesh_key_missing", UNKNOWN),
    ],
)
def test_keys_that_do_not_agree_are_refused_counted_and_logged_on_both_sides(  # noqa: PLR0917
    link: UnicastHosts,
    keys: tuple[PeerKey, PeerKey],
    ours: int,
    theirs: int,
    counter: str,
    lines: tuple[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    keys_or_none = (*keys, None)
    first = link.start(1, key=keys_or_none[ours])
    second = link.start(2, 1, key=keys_or_none[theirs])
    until(lambda: counted(second, "mesh_refused"))
    assert counted(first, counter) >= 1
    assert live(first) == live(second) == set()
    until(lambda: f"the host at 127.0.0.1 {lines[0]}" in caplog.text)
    until(lambda: f"127.0.0.1:{link.ports[1]} refuses us: {lines[1]}" in caplog.text)


def test_trouble_with_a_key_is_logged_now_and_then(
    link: UnicastHosts, keys: tuple[PeerKey, PeerKey], caplog: pytest.LogCaptureFixture
) -> None:
    host = link.start(1, key=keys[0])
    for _ in range(20):
        caller = link.call(1)
        caller.say(frame(FrameKind.GREETING, greeting(9)))
        assert caller.hear() == [(FrameKind.DENIAL, bytes((Denial.KEY_WANTED,)))]
    assert counted(host, "mesh_key_missing") == 20
    assert caplog.text.count("shows no key") == 5  # 1, 2, 5, 10, 20


def test_a_host_that_does_not_know_the_key_is_no_peer_of_a_host_that_dials_it(
    link: UnicastHosts, keys: tuple[PeerKey, PeerKey], caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", link.ports[2])) as server:
        host = link.start(1, 2, key=keys[0])
        thief, _ = server.accept()
        with thief:
            seen = thief.recv(4096)
            assert seen[:4] == bytes.fromhex("0020 04 00")
            thief.sendall(frame(FrameKind.NONCE, NONCE))
            assert thief.recv(4096)[2] == FrameKind.GREETING
            thief.sendall(frame(FrameKind.GREETING, greeting(2) + bytes(32)))
            until(lambda: counted(host, "mesh_key_wrong"))
    assert live(host) == set()
    assert "did not prove our key" in caplog.text


def test_a_recorded_caller_is_refused(link: UnicastHosts, keys: tuple[PeerKey, PeerKey]) -> None:
    host = link.start(1, key=keys[0])
    honest = KeyExchange(keys[0].secret, NONCE, is_ours=True)
    first = link.call(1)
    first.say(frame(FrameKind.NONCE, NONCE))
    answer = first.sock.recv(4096)
    honest.hear_untrusted(answer[4:])
    recorded = frame(FrameKind.GREETING, greeting(9), honest.seal)
    recorded += frame(FrameKind.CONTROL, GROUPS, honest.seal)
    first.say(recorded)
    until(lambda: len(live(host)) == 1)
    first.sock.close()
    until(lambda: live(host) == set())
    second = link.call(1)
    second.say(frame(FrameKind.NONCE, NONCE))
    second.sock.recv(4096)
    second.say(recorded)
    assert second.hear() == [(FrameKind.DENIAL, bytes((Denial.KEY_WRONG,)))]
    assert live(host) == set()


# ---- one port for several interfaces


def child(parent: Endpoint, stack: ExitStack, number: int) -> Endpoint:
    made = stack.enter_context(parent.child(0x8001))
    made.address_added(ipaddress.ip_interface(f"10.1.0.{number}/24"))
    return made


def test_children_share_their_parents_port(link: UnicastHosts) -> None:
    first, second = link.start(1), link.start(2, 1)
    with ExitStack() as stack:
        children = [child(first, stack, 1), child(second, stack, 2)]
        meet(*children)
        meet(first, second)
        assert live(first) == {str(second.hwaddr)}
    until(lambda: live(first) == {str(second.hwaddr)})


def test_a_host_of_a_partition_that_nobody_here_has_is_refused(link: UnicastHosts) -> None:
    first, second = link.start(1), link.start(2, 1)
    meet(first, second)
    with ExitStack() as stack:
        only = child(second, stack, 2)
        until(lambda: counted(only, "mesh_refused"))
        assert counted(first, "mesh_other_partition") >= 1
        assert live(only) == set()


def test_a_question_is_answered_by_every_interface(link: UnicastHosts) -> None:
    first = link.start(1)
    with ExitStack() as stack:
        other = child(first, stack, 1)
        caller = link.call(1)
        caller.say(frame(FrameKind.QUERY, b""))
        heard = [(kind, mesh.greeting_untrusted(body)) for kind, body in caller.hear()]
        assert [kind for kind, _ in heard] == 2 * [FrameKind.REFUSAL]
        assert [it.hwaddr.qpn for _, it in heard] == [first.hwaddr.qpn, other.hwaddr.qpn]
        assert [it.pkey for _, it in heard] == [0xFFFF, 0x8001]


def test_doctor_asks_with_the_key_and_without(
    link: UnicastHosts, keys: tuple[PeerKey, PeerKey]
) -> None:
    host = link.start(1, key=keys[0])

    def ask(key: PeerKey | None) -> list[Greeting]:
        return query(link.call(1).sock, key)

    (greeting_heard,) = ask(keys[0])
    assert greeting_heard.hwaddr == host.hwaddr
    for key, denial in ((keys[1], Denial.KEY_WRONG), (None, Denial.KEY_WANTED)):
        with pytest.raises(Denied) as caught:
            ask(key)
        assert caught.value.denial is denial
    assert live(host) == set()


def test_interfaces_that_share_a_port_have_one_key(
    link: UnicastHosts, keys: tuple[PeerKey, PeerKey]
) -> None:
    first = link.start(1, key=keys[0])
    mesh_options = MeshOptions(port=link.ports[1], key=keys[1])
    config = EndpointConfig("c1", "memory", pkey=PKey(0x8001), mesh=mesh_options)
    with pytest.raises(UsageError, match="in use with another key"):
        first.share_port(config).open()
