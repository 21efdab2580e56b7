# SPDX-License-Identifier: BSD-2-Clause
"""The machine of an iWARP mesh: who connects to whom, without I/O."""

from __future__ import annotations

import random
from collections import deque
from ipaddress import ip_address
from typing import Any

import pytest

from ipoibu.addr import Gid, HwAddr, PKey, Qpn
from ipoibu.limits import (
    MESH_BACKOFF_JITTER,
    MESH_FORGET_FAILURES,
    MESH_PEERS_MAX,
    MESH_PORT,
    MESH_SETTLED_S,
)
from ipoibu.proto.mesh import Accept, Close, Connect, Establish, Mesh, Refuse, Tell
from ipoibu.wire.mesh import Hello, MeshAddress, pack_addresses


def hello(number: int, **changes: Any) -> Hello:
    fields: dict[str, Any] = {
        "hwaddr": HwAddr(Qpn(0x100 + number), Gid.parse(f"fe80::{number:x}")),
        "pkey": PKey(0xFFFF),
        "mtu_bytes": 65524,
        "window": 16,
        "port": MESH_PORT,
    }
    return Hello(**(fields | changes))


def address(number: int) -> MeshAddress:
    return MeshAddress(ip_address(f"10.0.0.{number}"), MESH_PORT)


def machine(number: int = 1) -> Mesh:
    return Mesh(hello(number), random.Random(number))


class World:
    """Machines by number, at address 10.0.0.NUMBER; what they do happens in random order."""

    def __init__(self, count: int, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.hosts = {n: machine(n) for n in range(1, count + 1)}
        self.ends: dict[tuple[int, int], tuple[int, int]] = {}  # (host, handle): the other end
        self.active: dict[tuple[int, int], dict[tuple[int, int], Establish]] = {}
        self.todo: list[tuple[str, Any]] = []

    def do(self, host: int, effects: list[Any]) -> None:
        for effect in effects:
            key = (host, effect.handle) if hasattr(effect, "handle") else None
            match effect:
                case Connect(_, where):
                    peer = int(str(where.ip).rsplit(".", 1)[1])
                    self.todo.append(("request", (key, peer)))
                case Accept():
                    assert key is not None
                    other = self.ends[key]
                    self.todo.append(("established", (other, hello(host).pack())))
                    self.todo.append(("established", (key, b"")))
                case Refuse() | Close():
                    other_end = self.ends.pop((host, effect.handle), None)
                    if other_end is not None and other_end in self.ends:
                        del self.ends[other_end]
                        self.todo.append(("ended", other_end))
                case Tell(_, note):
                    assert key is not None
                    if key in self.ends:
                        self.todo.append(("heard", (self.ends[key], note)))
                case _:
                    pass

    def step(self) -> None:
        what, args = self.todo.pop(self.rng.randrange(len(self.todo)))
        if what == "request":
            key, peer = args
            if peer not in self.hosts:
                self.do(key[0], self.hosts[key[0]].ended(self.now, key[1]))
                return
            handle = self.hosts[peer].handle()
            self.ends[key], self.ends[peer, handle] = (peer, handle), key
            source = ip_address(f"10.0.0.{key[0]}")
            private = hello(key[0]).pack()
            self.do(peer, self.hosts[peer].requested(self.now, handle, source, private))
        elif what == "ended":
            host, handle = args
            self.do(host, self.hosts[host].ended(self.now, handle))
        else:
            (host, handle), private = args
            method = getattr(self.hosts[host], what)
            if (host, handle) in self.ends:
                self.do(host, method(self.now, handle, private))

    def settle(self, until: float) -> None:
        while True:
            for _ in range(100_000):
                if not self.todo:
                    break
                self.step()
            assert not self.todo, "the mesh does not come to rest"
            due = [(m.deadline(), n) for n, m in self.hosts.items() if m.deadline() is not None]
            at, host = min(due, default=(None, 0))
            if at is None or at > until:
                return
            self.now = max(self.now, at)
            self.do(host, self.hosts[host].timer(self.now))

    def graph(self) -> dict[int, list[int]]:
        return {
            n: sorted(int(p.hello.hwaddr.qpn) - 0x100 for p in m.peers(self.now))
            for n, m in self.hosts.items()
        }


@pytest.mark.parametrize("seed", range(30))
def test_one_seed_is_enough_for_everybody_to_find_everybody(seed: int) -> None:
    world = World(6, seed)
    for number, host in world.hosts.items():
        if number > 1:
            world.do(number, host.seeds(0.0, {address(1)}))
    world.settle(60.0)
    assert world.graph() == {n: [m for m in range(1, 7) if m != n] for n in range(1, 7)}


@pytest.mark.parametrize("seed", range(30))
def test_crossing_connections_settle_to_one(seed: int) -> None:
    world = World(2, seed)
    for number, host in world.hosts.items():
        world.do(number, host.seeds(0.0, {address(3 - number)}))
    world.settle(60.0)
    assert world.graph() == {1: [2], 2: [1]}
    assert len(world.ends) == 2  # both ends of the one


def test_of_two_that_cross_the_one_that_the_lower_address_began_stays() -> None:
    mesh = machine(1)
    (connect,) = mesh.seeds(0.0, {address(2)})
    assert isinstance(connect, Connect)
    theirs = mesh.handle()
    assert mesh.requested(0.0, theirs, address(2).ip, hello(2).pack()) == [Accept(theirs)]
    assert Establish(theirs, hello(2), False) in mesh.established(0.1, theirs, b"")
    effects = mesh.established(0.2, connect.handle, hello(2).pack())
    assert effects[0] == Close(theirs)
    assert Establish(connect.handle, hello(2), True) in effects


def test_of_two_that_cross_the_one_that_the_higher_address_began_goes() -> None:
    mesh = machine(2)
    (connect,) = mesh.seeds(0.0, {address(1)})
    assert isinstance(connect, Connect)
    theirs = mesh.handle()
    mesh.requested(0.0, theirs, address(1).ip, hello(1).pack())
    mesh.established(0.1, theirs, b"")
    effects = mesh.established(0.2, connect.handle, hello(1).pack())
    assert effects == [Close(connect.handle)]
    assert mesh.deadline() is not None  # hearsay, and no other attempt: the station is there
    assert not any(isinstance(it, Connect) for it in mesh.timer(60.0))


def test_a_connection_made_anew_replaces_one_that_has_been_there_for_long() -> None:
    mesh = machine(1)
    (connect,) = mesh.seeds(0.0, {address(2)})
    mesh.established(0.1, connect.handle, hello(2).pack())  # type: ignore[union-attr]
    theirs = mesh.handle()
    later = 0.1 + MESH_SETTLED_S
    mesh.requested(later, theirs, address(2).ip, hello(2).pack())
    effects = mesh.established(later, theirs, b"")
    assert effects[0] == Close(connect.handle)  # type: ignore[union-attr]
    assert Establish(theirs, hello(2), False) in effects


def test_a_station_that_was_restarted_is_believed_at_once() -> None:
    mesh = machine(1)
    (connect,) = mesh.seeds(0.0, {address(2)})
    mesh.established(0.1, connect.handle, hello(2).pack())  # type: ignore[union-attr]
    again = hello(2, hwaddr=HwAddr(Qpn(0x999), hello(2).hwaddr.gid))
    theirs = mesh.handle()
    mesh.requested(0.2, theirs, address(2).ip, again.pack())
    effects = mesh.established(0.3, theirs, b"")
    assert effects[0] == Close(connect.handle)  # type: ignore[union-attr]
    assert Establish(theirs, again, False) in effects


def test_what_fails_is_tried_again_after_1_to_16_seconds() -> None:
    mesh = machine()
    now, waits = 0.0, []
    effects = mesh.seeds(now, {address(2)})
    for _ in range(8):
        (connect,) = effects
        assert isinstance(connect, Connect)
        assert mesh.ended(now, connect.handle) == [Close(connect.handle)]
        deadline = mesh.deadline()
        assert deadline is not None
        waits.append(deadline - now)
        now = deadline
        effects = mesh.timer(now)
    for wait, most in zip(waits, [1, 2, 4, 8, 16, 16, 16, 16], strict=True):
        assert most * (1 - MESH_BACKOFF_JITTER) <= wait <= most


def test_a_connection_that_ends_soon_was_a_failure_and_one_that_lived_was_not() -> None:
    mesh = machine()
    now = 0.0
    effects = mesh.seeds(now, {address(2)})
    waits = []
    for lived_s in (0.1, 0.1, 0.1, MESH_SETTLED_S):
        (connect,) = [it for it in effects if isinstance(it, Connect)]
        mesh.established(now, connect.handle, hello(2).pack())
        now += lived_s
        mesh.ended(now, connect.handle)
        deadline = mesh.deadline()
        assert deadline is not None
        waits.append(round(deadline - now + 0.49))
        now = deadline
        effects = mesh.timer(now)
    assert waits[3] == 1
    assert waits[2] > waits[0]


def test_who_does_not_answer_is_given_up_after_ten_seconds() -> None:
    mesh = machine()
    (connect,) = mesh.seeds(0.0, {address(2)})
    assert mesh.deadline() == 10.0
    assert mesh.timer(10.0) == [Close(connect.handle)]  # type: ignore[union-attr]
    assert mesh.counts["mesh_no_answer"] == 1


def test_an_address_that_only_peers_know_is_forgotten_in_the_end() -> None:
    mesh = machine()
    theirs = mesh.handle()
    mesh.requested(0.0, theirs, address(2).ip, hello(2).pack())
    mesh.established(0.0, theirs, b"")
    effects: list[Any] = mesh.heard(0.0, theirs, pack_addresses([address(9)]))
    now = 0.0
    for _ in range(MESH_FORGET_FAILURES):
        (connect,) = [it for it in effects if isinstance(it, Connect)]
        assert connect.address == address(9)
        mesh.ended(now, connect.handle)
        now += 20.0
        effects = mesh.timer(now)
    assert not any(isinstance(it, Connect) for it in effects + mesh.timer(now + 100))


@pytest.mark.parametrize(
    ("private", "why"),
    [
        (b"", "34 bytes"),
        (b"\xa5" * 255, "no hello"),
        (hello(1).pack(), "ourselves"),
        (hello(1, hwaddr=HwAddr(Qpn(7), hello(1).hwaddr.gid)).pack(), "our GID"),
        (hello(2, pkey=PKey(0x8001)).pack(), "partition"),
        (hello(2, window=29).pack(), "window"),
        (hello(2, mtu_bytes=65525).pack(), "messages of"),
        (hello(2, hwaddr=HwAddr(Qpn(7), Gid.parse("ff12::1"))).pack(), "hardware address"),
        (hello(2).pack().replace(b"IPoM\x01", b"IPoM\x02"), "version 2"),
    ],
)
def test_a_request_that_cannot_be_a_peers_is_refused(private: bytes, why: str) -> None:
    mesh = machine(1)
    log, refusal = mesh.requested(0.0, 77, address(2).ip, private)
    assert why in log.text  # type: ignore[union-attr]
    assert refusal == Refuse(77)
    assert mesh.peers(0.0) == []


def test_our_own_address_among_the_seeds_is_noticed_and_left_alone() -> None:
    mesh = machine(1)
    (connect,) = mesh.seeds(0.0, {address(1)})
    mesh.ended(0.1, connect.handle, hello(1).pack())  # type: ignore[union-attr]
    assert mesh.deadline() is None


def test_a_list_of_peers_that_is_none_ends_the_connection() -> None:
    mesh = machine()
    theirs = mesh.handle()
    mesh.requested(0.0, theirs, address(2).ip, hello(2).pack())
    mesh.established(0.0, theirs, b"")
    assert Close(theirs) in mesh.heard(0.1, theirs, b"seventeen bytes..")
    assert mesh.counts["mesh_malformed"] == 1


def test_there_are_no_more_connections_than_there_is_room_for() -> None:
    mesh = machine(1)
    answers: deque[Any] = deque()
    for number in range(2, MESH_PEERS_MAX + 5):
        source = ip_address(f"10.0.1.{number}")
        effects = mesh.requested(0.0, mesh.handle(), source, hello(number).pack())
        answers.append(type(effects[0]))
    assert answers.count(Accept) == MESH_PEERS_MAX
    assert answers.count(Refuse) == 3
    assert mesh.seeds(0.0, {address(99)}) == []  # nor do we begin any
