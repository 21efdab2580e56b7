# SPDX-License-Identifier: BSD-2-Clause
"""Many hosts on a terrible network: every resolution succeeds in the end."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from ipoibu.base.addr import Gid, HwAddr, Qpn
from ipoibu.proto.effects import Count
from ipoibu.proto.engine import FrameSource
from ipoibu.proto.neigh.nud import State
from ipoibu.wire import arp
from ipoibu.wire.encap import Encap, EtherType
from tests.doubles.network import PERFECT, TERRIBLE, Faults
from tests.doubles.simulation import Host, Simulation, packet


def v4(i: int) -> str:
    return f"10.0.0.{i + 1}"


def v6(i: int) -> str:
    return f"fe80::{i + 1:x}"


def hosts(simulation: Simulation, n: int) -> list[Host]:
    return [simulation.host(f"{v4(i)}/24", f"{v6(i)}/64") for i in range(n)]


def keep_sending(simulation: Simulation, host: Host, data: bytes, every_s: float = 0.25) -> None:
    """Send again and again, like an application that waits for an answer."""

    def send() -> None:
        host.send(data)
        simulation.clock.at(simulation.now + every_s, send)

    send()


def exchange(simulation: Simulation, members: list[Host], version: int) -> bool:
    """Send from each host to each other host until the packet arrives; return whether all did within a
    minute."""
    expected: list[tuple[Host, bytes]] = []
    name = v4 if version == 4 else v6
    for i, sender in enumerate(members):
        for j, receiver in enumerate(members):
            if i != j:
                payload = f"{version}: {i} to {j}".encode()
                keep_sending(simulation, sender, packet(name(i), name(j), payload))
                expected.append((receiver, payload))

    def all_there() -> bool:
        expected[:] = [(host, payload) for host, payload in expected if not host.got(payload)]
        return not expected

    for _ in range(600):  # got() searches all received packets, so do not call it at every event
        simulation.run(0.1)
        if all_there():
            return True
    return False


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("version", [4, 6])
def test_two_hosts_find_each_other_on_a_terrible_network(seed: int, version: int) -> None:
    simulation = Simulation(seed, TERRIBLE)
    assert exchange(simulation, hosts(simulation, 2), version)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n", [3, 8, 16])
@pytest.mark.parametrize("version", [4, 6])
def test_many_hosts_find_each_other_on_a_terrible_network(seed: int, n: int, version: int) -> None:
    simulation = Simulation(seed, TERRIBLE)
    assert exchange(simulation, hosts(simulation, n), version)


@pytest.mark.parametrize("n", [2, 16])
def test_a_perfect_network_needs_one_question_and_one_answer_each_way(n: int) -> None:
    simulation = Simulation(1, PERFECT)
    members = hosts(simulation, n)
    simulation.run(10)
    frames: list[bytes] = []
    simulation.network.observers.append(lambda _, __, frame: frames.append(frame))
    for i, host in enumerate(members):
        host.send(packet(v4(i), v4((i + 1) % n), b"x"))
    simulation.run(1)
    arps = [frame for frame in frames if frame[:2] == b"\x08\x06"]
    assert len(arps) == 2 * n
    assert len(frames) == 3 * n


def test_an_hour_of_steady_traffic_loses_no_packet_to_revalidation() -> None:
    """Packets go on while an entry is STALE, in DELAY or in PROBE (RFC 4861 §7.3.3)."""
    simulation = Simulation(7, PERFECT)
    a, b = hosts(simulation, 2)
    simulation.run(10)
    for i in range(3600):
        a.send(packet(v4(0), v4(1), str(i).encode()))
        a.send(packet(v6(0), v6(1), str(i).encode()))
        simulation.run(1)
    assert len(b.received) == 7200


def test_lost_packets_on_a_lossy_network_are_the_network_s_not_the_engine_s() -> None:
    simulation = Simulation(7, Faults(drop=0.1))
    a, b = hosts(simulation, 2)
    simulation.run(10)
    a.send(packet(v4(0), v4(1), b"first"))
    simulation.run(5)
    for i in range(3600):
        a.send(packet(v4(0), v4(1), str(i).encode()))
        simulation.run(1)
    assert len(b.received) > 0.87 * 3600
    assert a.counts["neigh_unresolved"] == 0


def test_a_host_that_is_not_there_is_reported_and_looked_for_again() -> None:
    simulation = Simulation(3, TERRIBLE)
    [a] = hosts(simulation, 1)
    simulation.run(10)
    keep_sending(simulation, a, packet(v4(0), v4(1), b"anybody"), 0.5)
    simulation.run(20)
    assert len(a.delivered) > 10  # ICMP host unreachable
    late = simulation.host(f"{v4(1)}/24")
    assert simulation.run_until(lambda: late.got(b"anybody"), 15)


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_gives_the_same_hour(seed: int) -> None:
    def history() -> list[object]:
        simulation = Simulation(seed, TERRIBLE)
        members = hosts(simulation, 3)
        exchange(simulation, members, 4)
        return [effect for host in members for effect in host.effects]

    assert history() == history()


def test_ten_thousand_neighbours_are_resolved_aged_and_forgotten() -> None:
    simulation = Simulation(1, PERFECT)
    hub = simulation.host("10.0.255.1/16")
    simulation.run(10)
    n = 10_000
    peers = [f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}" for i in range(256, 256 + n)]
    for i, peer in enumerate(peers):
        hub.send(packet("10.0.255.1", peer, b"x"))
        hwaddr = HwAddr(Qpn(100 + i), Gid(b"\xfe\x80" + i.to_bytes(14, "big")))
        answer = arp.Arp(
            arp.REPLY, hwaddr, IPv4Address(peer), hub.hwaddr, IPv4Address("10.0.255.1")
        )
        source = FrameSource(hwaddr.qpn, hwaddr.gid, hub.hwaddr.gid)
        hub.receive(source, Encap(EtherType.ARP, answer.pack()).pack())
    states = [info.state for info in hub.engine.neighbours(simulation.now)]
    assert states.count(State.REACHABLE) == n
    simulation.run(60)
    states = [info.state for info in hub.engine.neighbours(simulation.now)]
    assert states.count(State.STALE) == n
    simulation.run(3700)
    assert hub.engine.neighbours(simulation.now) == []
    assert list(hub.table) == [IPv4Address("255.255.255.255")]
    assert Count("neigh_evicted") not in hub.effects
