# SPDX-License-Identifier: BSD-2-Clause
"""An endpoint with a queue pair on each of two devices, without an administrator: in-process wires."""

from __future__ import annotations

import ipaddress
import re
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ipoibu import CDevice, Endpoint, EndpointConfig
from ipoibu._core import RAILS_MAX, MemorySwitch
from ipoibu.base.addr import Gid
from ipoibu.base.errors import LinkError, NoSuchDevice, UsageError
from ipoibu.base.ib import PartitionParams
from ipoibu.base.limits import RAILS_JOINED_MAX
from ipoibu.endpoint.config import Conflict
from ipoibu.endpoint.rails import rails
from ipoibu.fabric.base import Capabilities, MeshOptions
from ipoibu.fabric.faults import FaultSpec
from ipoibu.fabric.memory import MemoryPort, MemoryUd
from ipoibu.proto.ethernet_config import EthernetConfig
from tests.doubles.administered import until
from tests.doubles.c_example import Echo, Generator, build

WIRES = ("memory0", "memory1")
EACH = 64


class Wire(MemoryPort):
    """A port on one wire, which may refuse queue pairs, and whose GID may become another one."""

    refuses = False
    moves = 0

    def open_ud(self, params: PartitionParams) -> MemoryUd:
        if self.refuses:
            raise LinkError("no queue pair")
        port, moves = self, self.moves

        class Ud(MemoryUd):
            @property
            def is_stale(self) -> bool:
                return port.moves != moves

        made = super().open_ud(params)
        made.__class__ = Ud
        return made


class World:
    """Hosts on two wires; the devices of host N have the names N/memory0 and N/memory1."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.switches = [MemorySwitch(seed) for seed in (3, 4)]
        self.ports: dict[str, Wire] = {}
        self.gone: set[str] = set()
        self.refusing: set[str] = set()
        self.endpoints: list[Endpoint] = []
        monkeypatch.setattr(rails, "open_port", self._open)
        monkeypatch.setattr(rails, "RAIL_REOPEN_S", 0.01)

    def _open(self, device: str, number: int, *rest: object) -> Wire:
        if device in self.gone:
            raise NoSuchDevice(f"{device}: gone")
        host, wire = int(device[0]), WIRES.index(device[2:])
        gid = Gid(bytes([0xFE, 0x80, *bytes(12), wire, host]))
        port = self.ports[device] = Wire(self.switches[wire], gid)
        port.refuses = device in self.refusing
        return port

    def host(
        self,
        number: int,
        mode: str = "balance-xor",
        device: CDevice | None = None,
        **options: Any,
    ) -> Endpoint:
        first, second = (f"{number}/{wire}" for wire in WIRES)
        config = EndpointConfig(
            f"h{number}", first, backups=((second, 1),), rail_mode=mode, **options
        )
        endpoint = Endpoint(config, device=device)
        self.endpoints.append(endpoint)
        endpoint.open()
        until(lambda: bool(endpoint.show()["state"] == "up"))
        endpoint.address_added(ipaddress.ip_interface(f"10.0.0.{number}/24"))
        return endpoint

    def pull(self, wire: int, *, up: bool = False) -> None:
        """Pull the wire out of every port, or put it back."""
        for device, port in self.ports.items():
            if device.endswith(WIRES[wire]):
                port.up = up

    def lose(self, device: str) -> None:
        """The device is gone."""
        port = self.ports[device]
        self.gone.add(device)

        def active() -> bool:
            raise LinkError(f"{device}: gone")

        port.active = active  # type: ignore[method-assign]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(monkeypatch)
    yield world
    for endpoint in world.endpoints:
        endpoint.close()


def _shown(endpoint: Endpoint, key: str) -> list[Any]:
    return [rail[key] for rail in endpoint.show()["rails"]]


def _packet(port: int) -> bytes:
    """A UDP packet of 10.0.0.1 from this port to 10.0.0.2."""
    udp = struct.pack("!HHHH4s", port, 9, 12, 0, b"data")
    ends = bytes((10, 0, 0, 1, 10, 0, 0, 2))
    return struct.pack("!BxHxxxxBBxx8s", 0x45, 20 + len(udp), 64, 17, ends) + udp


def _flows(source: Endpoint, target: Endpoint) -> list[int]:
    """Send a packet of each of EACH flows, until all of them come in one go; return their ports in order
    of arrival."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        while target.recv(timeout=0):
            pass
        source.send([_packet(port) for port in range(1000, 1000 + EACH)])
        came: list[int] = []
        while len(came) < EACH and (packets := target.recv(timeout=1)):
            came += [int.from_bytes(it[20:22], "big") for it in packets if it[9] == 17]
        if len(came) == EACH:
            return came
    raise AssertionError("packets are lost")


def _meet(world: World) -> tuple[Endpoint, Endpoint]:
    first, second = world.host(1), world.host(2)
    until(lambda: _shown(first, "peers") == _shown(second, "peers") == [1, 1])
    _flows(first, second)
    return first, second


def _split(source: Endpoint, target: Endpoint) -> list[int]:
    """How many packets of all flows leave by each rail, in the run that arrived."""
    while True:
        before = _shown(source, "tx_packets")
        _flows(source, target)
        split = [
            after - earlier
            for after, earlier in zip(_shown(source, "tx_packets"), before, strict=True)
        ]
        if EACH <= sum(split) < EACH + 8:  # besides, ARP
            return split


def test_flows_go_by_both_rails(world: World) -> None:
    first, second = _meet(world)
    until(lambda: min(_split(first, second)) > EACH // 8)
    assert _shown(first, "state") == ["active", "sharing"]
    assert second.show()["rail_mode"] == "balance-xor"
    assert first.stats()["fabric.rails_rx_hellos"] > 0


def test_another_rail_takes_over_without_another_queue_pair(world: World) -> None:
    first, second = _meet(world)
    before = first.show()
    world.pull(0)
    until(lambda: _shown(first, "state") == _shown(second, "state") == ["down", "active"])
    assert len(_flows(first, second)) == EACH
    after = first.show()
    assert before["hwaddr"] != after["hwaddr"]
    assert after["gid"] == str(world.ports["1/memory1"].info.gid)
    until(lambda: second.neighbours()[0]["hwaddr"] == after["hwaddr"])
    stats = first.stats()
    assert (stats["engine.rail_changes"], stats.get("engine.renewals", 0)) == (1, 0)
    assert stats.get("engine.address_conflict", 0) == 0
    world.pull(0, up=True)
    until(lambda: _shown(first, "peers") == _shown(second, "peers") == [1, 1])
    until(lambda: min(_split(first, second)) > EACH // 8)


def test_threads_in_c_send_and_receive_while_rails_change(world: World, tmp_path: Path) -> None:
    build(tmp_path)
    echo = Echo(tmp_path)
    first, second = world.host(1), world.host(2, device=echo.device)
    until(lambda: _shown(first, "peers") == _shown(second, "peers") == [1, 1])
    generator = Generator(tmp_path, first)
    try:
        for wire, is_up in ((0, False), (0, True), (1, False)):
            before = generator.received
            until(lambda was=before: generator.received > was)  # type: ignore[misc]
            world.pull(wire, up=is_up)
            wanted = {(0, False): "down", (0, True): "sharing", (1, False): "down"}[wire, is_up]
            until(lambda at=wire, state=wanted: _shown(first, "state")[at] == state)  # type: ignore[misc]
        before = generator.received
        until(lambda: generator.received > before)
    finally:
        generator.stop()


def test_the_other_hosts_leave_a_wire_that_one_has_lost(world: World) -> None:
    """The ports of the others stay up, as behind a switch."""
    first, second = _meet(world)
    third = world.host(3)
    until(lambda: _shown(first, "peers") == _shown(third, "peers") == [2, 2])
    world.ports["1/memory0"].up = False
    until(lambda: _shown(second, "state") == _shown(third, "state") == ["sharing", "active"])
    until(lambda: _shown(third, "peers") == [1, 2])
    first.flush_neighbours()
    _flows(first, second)  # after ARP
    world.ports["1/memory0"].up = True
    until(lambda: _shown(third, "peers") == [2, 2])
    assert _shown(third, "state") == ["sharing", "active"]


def test_active_backup_has_a_queue_pair_on_each_rail_and_no_peers(world: World) -> None:
    first, second = (world.host(number, mode="active-backup") for number in (1, 2))
    _flows(first, second)
    assert _shown(first, "peers") == [0, 0]
    assert _shown(first, "state") == ["active", "backup"]
    assert _split(first, second)[1] == 0
    assert first.stats()["fabric.rails_tx_hellos"] == 0
    world.pull(0)
    until(lambda: _shown(first, "state") == _shown(second, "state") == ["down", "active"])
    _flows(first, second)
    assert first.stats().get("engine.renewals", 0) == 0


def test_all_rails_down_is_a_link_that_is_down(world: World) -> None:
    first, second = _meet(world)
    world.pull(0)
    world.pull(1)
    until(lambda: first.show()["state"] == second.show()["state"] == "down")
    world.pull(1, up=True)
    until(lambda: first.show()["state"] == second.show()["state"] == "up")
    assert _shown(first, "state") == ["down", "active"]
    _flows(first, second)


def test_a_device_that_goes_and_comes_back_shares_again(world: World) -> None:
    first, second = _meet(world)
    world.lose("1/memory1")
    until(lambda: _shown(first, "state") == ["active", "absent"])
    until(lambda: _shown(first, "tx_packets")[0] is not None)
    assert _shown(first, "peers")[1] is None
    _flows(first, second)
    world.gone.clear()
    until(lambda: _shown(first, "peers") == _shown(second, "peers") == [1, 1])
    assert first.stats()["engine.renewals"] == 2
    world.lose("1/memory0")  # the active one
    world.ports["2/memory0"].up = False
    until(lambda: _shown(first, "state") == ["absent", "active"])
    _flows(first, second)


def test_a_rail_that_refuses_a_queue_pair_gets_one_when_it_takes_over(world: World) -> None:
    world.refusing.add("1/memory1")
    first, second = world.host(1), world.host(2)
    _flows(first, second)
    assert _shown(first, "tx_packets")[1] is None
    world.refusing.clear()
    world.ports["1/memory1"].refuses = False
    world.pull(0)
    until(lambda: _shown(first, "state") == _shown(second, "state") == ["down", "active"])
    until(lambda: bool(first.show()["state"] == "up"))
    assert first.stats()["engine.renewals"] == 1
    _flows(first, second)


def test_faults_do_not_hide_the_rails(world: World) -> None:
    world.host(1, faults=FaultSpec(seed=3))
    first = world.endpoints[0]
    second = world.host(2)
    until(lambda: _shown(first, "peers") == _shown(second, "peers") == [1, 1])
    until(lambda: min(_split(first, second)) > EACH // 8)


def test_a_group_that_a_backup_cannot_join_is_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[Gid] = []

    def attach(self: MemoryUd, mgid: Gid, mlid: int = 0) -> None:
        if self.qpn in backups and is_refusing:
            refused.append(mgid)
            raise LinkError("no room")
        whole(self, mgid, mlid)

    whole, is_refusing = MemoryUd.attach, True
    backups: set[int] = set()
    made = Wire.open_ud

    def open_ud(self: Wire, params: PartitionParams) -> MemoryUd:
        fabric = made(self, params)
        if self is world.ports.get("1/memory1"):
            backups.add(fabric.qpn)
        return fabric

    monkeypatch.setattr(Wire, "open_ud", open_ud)
    monkeypatch.setattr(MemoryUd, "attach", attach)
    first, second = world.host(1), world.host(2)
    until(lambda: len(refused) > 0)
    is_refusing = False
    world.pull(0)
    until(lambda: _shown(first, "state") == _shown(second, "state") == ["down", "active"])
    _flows(first, second)  # after ARP, which the broadcast group carries


def test_a_device_that_cannot_wait_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Wire, "capabilities", Capabilities())
    with pytest.raises(UsageError, match="rail_mode balance-xor needs queue pairs for datagrams"):
        world.host(1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "connected"}, "needs datagram mode"),
        ({"queues": 2}, "leave queues out"),
        ({"mesh": MeshOptions(("192.0.2.1",))}, "is not for links with peers"),
        ({"ethernet": EthernetConfig()}, "leave ethernet out"),
        ({"backups": tuple((f"d{number}", 1) for number in range(8))}, "8 devices at most, not 9"),
    ],
)
def test_what_excludes_spreading_is_refused(options: dict[str, Any], words: str) -> None:
    given = {"backups": (("b", 1),)} | options
    with pytest.raises(Conflict, match=re.escape(words)):
        EndpointConfig("h1", "a", rail_mode="balance-xor", **given)


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(UsageError, match="is no mode of several devices"):
        EndpointConfig("h1", "a", rail_mode="802.3ad")


def test_the_core_has_room_for_as_many_rails() -> None:
    assert RAILS_MAX == RAILS_JOINED_MAX


def test_a_backup_with_another_gid_gets_another_queue_pair(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    host = world.host(1, "active-backup")
    before = host._opened().path
    world.ports["1/memory1"].moves += 1
    until(lambda: host._opened().path is not before and host.show()["state"] == "up")
    assert not host._opened().fabric.is_stale
    assert "another rail has another GID: replacing the queue pair" in caplog.text
