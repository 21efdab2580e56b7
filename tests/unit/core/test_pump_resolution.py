# SPDX-License-Identifier: BSD-2-Clause
"""The misses that the pump reports, so that the engine resolves their next hop; ext/tests/test_resolution.c
has the budgets in virtual time."""

from __future__ import annotations

from ipaddress import IPv4Address

from ipoibu import _core
from ipoibu.base import c_limits
from ipoibu.base.addr import Gid
from ipoibu.base.route import key_of
from ipoibu.wire import ip
from ipoibu.wire.icmp import unreachable_untrusted

OURS, GATEWAY = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.254")
UDP = 17


class World:
    """A pump without neighbours."""

    def __init__(self) -> None:
        self.device = _core.QueueDevice()
        port = _core.MemoryPort(_core.MemorySwitch(1), Gid.parse("fe80::a").raw)
        self.pump = _core.Pump(port, self.device, mtu=2044)

    def send(self, packet: bytes) -> list[_core.Event]:
        """Return the events that the packet causes."""
        assert self.device.send([packet]) == 1
        while self.pump.step():
            pass
        return self.pump.events()

    def counted(self, name: str) -> int:
        return self.pump.counters()[name]


def host(number: int) -> IPv4Address:
    return IPv4Address("10.0.1.0") + number


def datagram(to: IPv4Address, port: int = 9) -> bytes:
    return ip.Ipv4(OURS, to, UDP, bytes((0x20, 0, 0, port, 0, 12, 0, 0)) + b"scan").pack()


def test_a_scan_gets_a_share_is_counted_and_reported_once_a_second() -> None:
    world = World()
    events = [event for number in range(2000) for event in world.send(datagram(host(number)))]
    missed = [event for event in events if event.type == _core.EVENT_MISS]
    reports = [event for event in events if event.type == _core.EVENT_RESOLUTION_LIMITED]
    assert c_limits.RESOLUTIONS / 3 <= len(missed) == world.counted("tx_missed")
    assert world.counted("tx_resolution_limited") == 2000 - len(missed) > 0
    assert 1 <= len(reports) < 60
    assert reports[0].next_hop == key_of(host(events.index(reports[0])))
    assert len(world.send(datagram(host(3000), port=10))) == 1


def test_an_icmp_error_of_our_host_begins_no_resolution() -> None:
    world = World()
    asked = ip.Ipv4(host(1), OURS, UDP, bytes(12)).pack()
    answer = unreachable_untrusted(asked, OURS)
    assert answer is not None
    assert world.send(answer) == []
    assert world.counted("tx_error_unresolved") == 1
    world.pump.route_set(
        key_of(IPv4Address("10.0.1.0")), 96 + 24, _core.ROUTE_GATEWAY, key_of(GATEWAY)
    )
    assert [event.next_hop for event in world.send(answer)] == [key_of(GATEWAY)]
