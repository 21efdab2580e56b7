# SPDX-License-Identifier: BSD-2-Clause
"""Several pumps for one interface: stepped by hand, and as a whole endpoint, on the in-process fabric."""

from __future__ import annotations

import gc
import ipaddress
import os
import select
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from ipoibu import Endpoint, EndpointConfig, Gid, LinkError, PKey, UsageError, _core
from ipoibu.base.addr import Qpn
from ipoibu.base.ib import Destination, PartitionParams
from ipoibu.base.limits import QUEUES_MAX, TX_QUEUE_ORIGINS_MAX
from ipoibu.base.route import key_of
from ipoibu.endpoint.datapath.capture import SNAP_MAX_BYTES
from ipoibu.endpoint.datapath.tx_queues import TxQueues
from ipoibu.fabric.base import Capabilities
from ipoibu.fabric.faults import FaultSpec, FaultyUd
from ipoibu.fabric.memory import MemoryPort, MemoryUd
from tests.doubles.administered import Subnet, until

from .queued import FakeQueues, udp

SEND, NOTIFY, HOLD, UNREACHABLE = range(4)
ON_LINK, GATEWAY = range(2)
MTU = 2044
A4, B4, C4 = (ipaddress.ip_address(f"10.0.0.{number}") for number in (1, 2, 3))
GROUP = ipaddress.ip_address("224.1.1.1")
MGID = Gid.parse("ff12:401b:ffff::e:1:1:1")
PARAMS = PartitionParams(pkey=PKey(0xFFFF), qkey=0x0B1B, mtu_bytes=2048)


class Host:
    """Several pumps over a fabric's TX queues, which no thread runs."""

    def __init__(self, switch: _core.MemorySwitch, gid: str, queues: int) -> None:
        self.gid = Gid.parse(gid)
        self.ud = MemoryUd(switch, MemoryPort(switch, self.gid).info)
        self.tx_queues = self.ud.open_tx_queues(queues - 1)
        self.tun = FakeQueues(queues)
        self.pumps = [_core.Pump(self.ud, self.tun.device, mtu=MTU)]
        self.pumps += [
            _core.Pump(tx_queue, queue, mtu=MTU, rx_frames=0, command_bytes=1 << 12)
            for tx_queue, queue in zip(self.tx_queues, self.tun.device.others, strict=True)
        ]
        self.pump = TxQueues(self.pumps)

    @property
    def destination(self) -> Destination:
        return Destination(self.gid, self.ud.qpn)

    def counter(self, name: str) -> int:
        return self.pump.counters()[name]

    def sent(self) -> list[int]:
        """Return the number of sent packets by TX queue."""
        counters = self.pump.counters()
        return [counters[f"queue.{tx_queue}.tx_packets"] for tx_queue in range(len(self.pumps))]

    def close(self) -> None:
        self.ud.close()
        self.pump.close()
        self.tun.close()


@pytest.fixture(params=[_core.TunDevice, _core.TunRing], autouse=True)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeQueues, "kind", request.param)


@pytest.fixture
def make_host() -> Iterator[Callable[[str, int], Host]]:
    switch = _core.MemorySwitch(1)
    with ExitStack() as stack:

        def make(gid: str, queues: int) -> Host:
            host = Host(switch, gid, queues)
            stack.callback(host.close)
            return host

        yield make


@pytest.fixture
def hosts(make_host: Callable[[str, int], Host]) -> tuple[Host, Host]:
    return make_host("fe80::a", 3), make_host("fe80::b", 2)


def settle(*hosts: Host) -> None:
    for _ in range(4):
        for host in hosts:
            while host.pump.step():
                pass


def to_b(number: int) -> bytes:
    return udp("10.0.0.1", "10.0.0.2", bytes([number]), ports=(1000 + number, 80))


# ---- the engine's commands go to all queues


def test_a_neighbour_is_every_tx_queues_neighbour(hosts: tuple[Host, Host]) -> None:
    a, b = hosts
    a.pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
    for queue in range(3):
        a.tun.give(queue, to_b(queue))
    settle(a, b)
    assert sorted(b.tun.take_all()) == sorted(to_b(queue) for queue in range(3))
    assert a.sent() == [1, 1, 1]
    assert a.counter("tx_packets") == 3
    a.pump.neigh_del(key_of(B4))
    for queue in range(3):
        a.tun.give(queue, to_b(queue))
    settle(a, b)
    assert {event.type for event in a.pump.events()} == {_core.EVENT_MISS}
    assert a.sent() == [1, 1, 1]


def test_a_neighbour_with_a_new_queue_pair_is_new_to_every_tx_queue(
    make_host: Callable[[str, int], Host],
) -> None:
    a, b = make_host("fe80::a", 3), make_host("fe80::b", 1)
    a.pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
    settle(a)
    again = make_host("fe80::b", 1)
    assert again.ud.qpn != b.ud.qpn
    a.pump.neigh_set(key_of(B4), SEND, again.destination, MTU)
    for queue in range(3):
        a.tun.give(queue, to_b(queue))
    settle(a, b, again)
    assert len(again.tun.take_all()) == 3
    assert b.tun.take_all() == []


def test_a_route_is_every_tx_queues_route(hosts: tuple[Host, Host]) -> None:
    a, b = hosts
    far = udp("10.0.0.1", "192.168.7.7", b"far")
    network = key_of(ipaddress.ip_address("192.168.0.0"))
    a.pump.route_set(network, 96 + 16, GATEWAY, key_of(B4))
    a.pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
    for queue in range(3):
        a.tun.give(queue, far)
    settle(a, b)
    assert b.tun.take_all() == [far] * 3
    a.pump.route_del(network, 96 + 16)
    for queue in range(3):
        a.tun.give(queue, far)
    settle(a, b)
    keys = [event.next_hop for event in a.pump.events()]
    assert keys == [key_of(ipaddress.ip_address("192.168.7.7"))] * 3


def test_a_tx_queue_that_refuses_a_write_does_not_keep_it_from_the_others(
    hosts: tuple[Host, Host],
) -> None:
    a, b = hosts
    refused = 0
    for number in range(100):
        try:
            address = ipaddress.ip_address("10.1.0.0") + number
            a.pump.neigh_set(key_of(address), SEND, b.destination, MTU)
        except BufferError:  # the further tx_queues' rings are the smaller ones here
            refused += 1
    settle(a)
    assert refused > 0
    assert [pump.counters()["commands"] for pump in a.pumps] == [100, 100 - refused, 100 - refused]


# ---- events come from all queues


def test_a_miss_of_a_further_tx_queue_comes_up_and_its_packet_goes_by_that_tx_queue(
    hosts: tuple[Host, Host],
) -> None:
    a, b = hosts
    a.tun.give(2, to_b(7))
    settle(a)
    (event,) = a.pump.events()
    assert (event.type, event.next_hop, event.data) == (_core.EVENT_MISS, key_of(B4), to_b(7))
    a.pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
    assert a.pump.send_packet(event.data)
    assert a.pump.send_packet(to_b(8))  # of no tx_queue: the first one's
    settle(a, b)
    assert sorted(b.tun.take_all()) == [to_b(7), to_b(8)]
    assert a.sent() == [1, 0, 1]


def test_packets_that_the_engine_forgot_are_not_remembered_for_ever(
    hosts: tuple[Host, Host],
) -> None:
    a, _ = hosts
    for number in range(TX_QUEUE_ORIGINS_MAX + 50):
        a.tun.give(1, udp("10.0.0.1", "10.0.0.2", number.to_bytes(4, "big")))
        a.pump.step()
        a.pump.events()
    assert len(a.pump._origin) == TX_QUEUE_ORIGINS_MAX


def test_each_tx_queue_reports_its_first_use_of_an_entry(hosts: tuple[Host, Host]) -> None:
    a, b = hosts
    a.pump.neigh_set(key_of(B4), NOTIFY, b.destination, MTU)
    for _ in range(2):
        for queue in range(3):
            a.tun.give(queue, to_b(queue))
    settle(a, b)
    assert [event.type for event in a.pump.events()] == [_core.EVENT_USED] * 3


def test_more_events_than_asked_for_stay_for_the_next_time(hosts: tuple[Host, Host]) -> None:
    a, _ = hosts
    for queue in range(3):
        for number in range(4):
            a.tun.give(queue, to_b(16 * queue + number))
    settle(a)
    seen = []
    while events := a.pump.events(5):
        assert len(events) <= 6  # two a tx_queue
        seen += [event.data for event in events]
    for queue in range(3):  # in the order of each tx_queue
        own = [data for data in seen if 16 * queue <= data[-1] < 16 * (queue + 1)]
        assert own == [to_b(16 * queue + number) for number in range(4)]


def test_one_descriptor_wakes_for_every_tx_queue(hosts: tuple[Host, Host]) -> None:
    a, _ = hosts
    for queue in range(3):
        assert not a.pump.arm_events()
        a.tun.give(queue, to_b(queue))
        settle(a)
        assert select.select([a.pump.event_fd], [], [], 5)[0]
        a.pump.disarm_events()
        assert not select.select([a.pump.event_fd], [], [], 0)[0]
        assert a.pump.arm_events()  # there are some already
        assert len(a.pump.events()) == 1


def test_a_device_that_fails_is_reported_once(hosts: tuple[Host, Host]) -> None:
    a, _ = hosts
    null = os.open("/dev/null", os.O_WRONLY)  # reading it is EBADF, as of a TUN that was deleted
    try:
        for end in a.tun._ends:
            os.dup2(null, end.fileno())
    finally:
        os.close(null)
    settle(a)
    assert [event.type for event in a.pump.events()] == [_core.EVENT_DEVICE]
    assert a.counter("tx_device_error") == 3


def test_a_sync_is_answered_when_every_tx_queue_has(hosts: tuple[Host, Host]) -> None:
    a, _ = hosts
    a.pump.sync(5)
    a.pumps[0].step()
    a.pumps[2].step()
    assert a.pump.events() == []
    a.pumps[1].step()
    assert [(event.type, event.token) for event in a.pump.events()] == [(_core.EVENT_SYNC, 5)]


def test_a_capture_has_the_frames_of_all_tx_queues_in_the_order_of_time(
    hosts: tuple[Host, Host],
) -> None:
    a, b = hosts
    a.pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
    a.pump.capture(SNAP_MAX_BYTES)
    settle(a)
    assert not a.pump.arm_captured()
    order = (2, 0, 1, 2, 1)
    for number, queue in enumerate(order):
        a.tun.give(queue, to_b(number))
        settle(a, b)
    assert select.select([a.pump.capture_fd], [], [], 5)[0]
    a.pump.disarm_captured()
    frames = a.pump.captured()
    assert [frame.data[44:] for frame in frames] == [to_b(number) for number in range(len(order))]
    assert all(frame.outgoing for frame in frames)
    a.pump.capture(0)
    a.tun.give(1, to_b(9))
    settle(a, b)
    assert a.pump.captured() == []


# ---- the fabric sees one interface


def test_e8_multicast_of_any_tx_queue_is_our_own_echo_and_others_hear_it(
    hosts: tuple[Host, Host],
) -> None:
    """E8."""
    a, b = hosts
    for host in hosts:
        host.ud.attach(MGID)
        host.pump.neigh_set(key_of(GROUP), SEND, Destination(MGID, Qpn(0xFFFFFF)), MTU)
    packets = [udp("10.0.0.1", "224.1.1.1", bytes([queue])) for queue in range(3)]
    for queue, packet in enumerate(packets):
        a.tun.give(queue, packet)
    settle(a, b)
    assert b.tun.take_all() == packets
    assert a.tun.take_all() == []
    assert a.counter("rx_echo") == 3
    assert b.counter("rx_echo") == 0


def test_what_is_received_goes_to_the_queue_of_its_flow(hosts: tuple[Host, Host]) -> None:
    a, b = hosts
    a.pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
    flows = range(40)
    for turn in range(3):
        for flow in flows:
            data = bytes([turn])
            a.tun.give(0, udp("10.0.0.1", "10.0.0.2", data, ports=(2000 + flow, 80)))
        settle(a, b)
    by_flow: dict[int, list[tuple[int, int]]] = {}
    for queue in range(2):
        for packet in b.tun.take(queue):
            flow = int.from_bytes(packet[20:22], "big")
            by_flow.setdefault(flow, []).append((queue, packet[28]))
    assert len(by_flow) == len(flows)
    for seen in by_flow.values():
        assert [turn for _, turn in seen] == [0, 1, 2]
        assert len({queue for queue, _ in seen}) == 1
    assert {queue for seen in by_flow.values() for queue, _ in seen} == {0, 1}


def test_a_tx_queue_whose_queue_pair_breaks_comes_back_and_the_others_go_on(
    hosts: tuple[Host, Host],
) -> None:
    a, b = hosts
    a.pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
    settle(a)
    a.tx_queues[0].break_queue_pair()
    a.tun.give(0, to_b(1))
    a.tun.give(1, to_b(2))  # lost: the step that finds its tx_queue broken reads it too
    settle(a, b)
    assert b.tun.take_all() == [to_b(1)]
    until(lambda: a.pump.step() >= 0 and a.counter("fabric_recoveries") == 1)
    a.tun.give(1, to_b(3))
    settle(a, b)
    assert b.tun.take_all() == [to_b(3)]
    states = [(event.type, event.working) for event in a.pump.events()]
    assert states == [(_core.EVENT_FABRIC, False), (_core.EVENT_FABRIC, True)]


def test_faults_befall_what_a_tx_queue_sends_too(make_host: Callable[[str, int], Host]) -> None:
    b = make_host("fe80::b", 1)
    ud = MemoryUd(b.ud._switch, MemoryPort(b.ud._switch, Gid.parse("fe80::a")).info)
    faulty = FaultyUd(ud, FaultSpec(loss=1, seed=2**64 - 1))
    tx_queues = faulty.open_tx_queues(2)
    tun = FakeQueues(3)
    first = _core.Pump(faulty, tun.device, mtu=MTU)
    others = [
        _core.Pump(tx_queue, queue, mtu=MTU, rx_frames=0)
        for tx_queue, queue in zip(tx_queues, tun.device.others, strict=True)
    ]
    pump = TxQueues([first, *others])
    pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
    for queue in range(3):
        tun.give(queue, to_b(queue))
    for _ in range(4):
        pump.step()
    settle(b)
    assert b.tun.take_all() == []
    assert faulty.counters()["faults_lost"] == 3
    faulty.close()
    pump.close()
    tun.close()


# ---- life


def test_a_closed_one_says_so_and_may_be_closed_again(hosts: tuple[Host, Host]) -> None:
    a, _ = hosts
    a.pump.close()
    a.pump.close()
    with pytest.raises(ValueError, match="closed"):
        a.pump.neigh_del(key_of(B4))
    with pytest.raises(ValueError, match="closed"):
        a.pump.events()


def test_a_pump_that_only_sends_is_no_applications(hosts: tuple[Host, Host]) -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        _core.Pump(hosts[0].tx_queues[0], _core.QueueDevice(), mtu=MTU, rx_frames=0)


def test_tx_queues_of_which_one_does_not_start_are_all_stopped(hosts: tuple[Host, Host]) -> None:
    a, _ = hosts
    a.pumps[2].start()
    with pytest.raises(OSError, match="already"):
        a.pump.start()
    a.pumps[2].stop()
    assert a.pump.step() >= 0  # "busy", if one still ran


# ---- whole endpoints


def endpoint(
    switch: _core.MemorySwitch, number: int, tun: FakeQueues, queues: int, **fields: object
) -> Endpoint:
    port = MemoryPort(switch, Gid.parse(f"fe80::{number}"))
    config = EndpointConfig(f"h{number}", "memory", queues=queues, **fields)  # type: ignore[arg-type]
    return Endpoint(config, device=tun.device, port=port)


def tasks() -> int:
    return len(os.listdir("/proc/self/task"))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def nothing_is_left(before: tuple[int, int]) -> bool:
    """Return whether nothing is left. /proc lists a thread for a moment after its end, so `before` may have
    counted one."""
    return tasks() <= before[0] and descriptors() == before[1]


def test_a_first_packet_of_any_queue_waits_for_resolution_and_arrives() -> None:
    switch = _core.MemorySwitch(7)
    tuns = FakeQueues(3), FakeQueues(1)
    with endpoint(switch, 1, tuns[0], 3) as a, endpoint(switch, 2, tuns[1], 1) as b:
        for number, host in enumerate((a, b), start=1):
            host.address_added(ipaddress.ip_interface(f"10.0.0.{number}/24"))
        tuns[0].give(2, to_b(1))
        assert tuns[1].take_all(10) == [to_b(1)]
        for queue in range(3):
            tuns[0].give(queue, to_b(10 + queue))
            assert tuns[1].take_all(10) == [to_b(10 + queue)]

        def sends(queue: int) -> bool:
            """Whether the queue's own pump sends; it knows the neighbour once it ran the command."""
            counter = f"queue.{queue}.tx_packets"
            before = a.stats()[counter]
            tuns[0].give(queue, to_b(20 + queue))
            assert tuns[1].take_all(10) == [to_b(20 + queue)]
            return bool(a.stats()[counter] == before + 1)

        for queue in (1, 2):
            until(partial(sends, queue))
        back = udp("10.0.0.2", "10.0.0.1", b"back")
        tuns[1].give(0, back)
        assert tuns[0].take_all(10) == [back]
        assert (a.show()["queues"], b.show()["queues"]) == (3, 1)
        assert not [name for name in b.stats() if name.startswith("queue.")]
    for tun in tuns:
        tun.close()


def test_a_heavy_flush_renews_all_tx_queues() -> None:
    subnet, tun = Subnet(), FakeQueues(2)
    try:
        a = subnet.host(device=tun.device, queues=2)
        b = subnet.host()
        a.route_added(ipaddress.ip_network("192.168.0.0/16"), B4)
        for queue in range(2):
            tun.give(queue, to_b(queue))
            assert b.recv(timeout=10) == [to_b(queue)]
        before, sent = a.hwaddr, a.stats()
        subnet.sa.is_deaf = True
        subnet.sa.forget()
        subnet.sa.make_broadcast(PKey(0xFFFF), mtu_bytes=2048, qkey=0x1B1B)
        subnet.sa.is_deaf = False
        for one in (a, b):
            until(
                lambda one=one: (  # type: ignore[misc]
                    one.stats().get("engine.renewals") == 1 and one.show()["state"] == "up"
                )
            )
        assert a.hwaddr.qpn != before.qpn
        for queue in range(2):
            for packet in (to_b(queue), udp("10.0.0.1", "192.168.1.1", bytes([queue]))):
                tun.give(queue, packet)
                assert b.recv(timeout=10) == [packet]
        stats = a.stats()
        for tx_queue in range(2):  # counters go on
            assert stats[f"queue.{tx_queue}.tx_packets"] > sent[f"queue.{tx_queue}.tx_packets"]
        assert subnet.failures == []
    finally:
        subnet.close()
        tun.close()


def test_starting_and_ending_leaves_no_thread_and_no_descriptor() -> None:
    switch = _core.MemorySwitch(7)
    tun = FakeQueues(4)

    def come_and_go() -> None:
        with endpoint(switch, 1, tun, 4) as host:
            host.address_added(ipaddress.ip_interface("10.0.0.1/24"))
            ended = host.capture(lambda frames: None)
            ended()

    gc.collect()  # the cyclic garbage of other tests must not end in between
    fresh = tasks(), descriptors()
    rings = 4 if FakeQueues.kind is _core.TunRing else 0  # open from the start, until a pump ends
    before = fresh[0], fresh[1] - rings
    for _ in range(5):
        come_and_go()
        until(lambda: nothing_is_left(before))
    tun.close()


class Failing(MemoryUd):
    def open_tx_queues(self, count: int) -> list[_core.MemoryPort]:
        super().open_tx_queues(count - 1)
        raise LinkError("no more")


class FailingPort(MemoryPort):
    def open_ud(self, params: PartitionParams) -> MemoryUd:
        return Failing(self._switch, self.info)


def test_a_tx_queue_that_cannot_be_opened_is_the_endpoints_error_and_leaves_nothing() -> None:
    switch = _core.MemorySwitch(7)
    tun = FakeQueues(4)
    port = FailingPort(switch, Gid.parse("fe80::1"))
    gc.collect()
    before = tasks(), descriptors()
    for _ in range(3):
        host = Endpoint(EndpointConfig("ib0", "memory", queues=4), device=tun.device, port=port)
        with pytest.raises(LinkError, match="no more"):
            host.open()
    del host
    until(lambda: nothing_is_left(before))
    tun.close()


def test_more_tx_queues_than_there_may_be_are_refused() -> None:
    switch = _core.MemorySwitch(7)
    ud = MemoryUd(switch, MemoryPort(switch, Gid.parse("fe80::1")).info)
    with pytest.raises(LinkError, match="tx_queue"):
        ud.open_tx_queues(QUEUES_MAX)
    ud.close()


@pytest.mark.parametrize("queues", [0, -1, QUEUES_MAX + 1])
def test_a_number_of_queues_out_of_bounds_is_refused(queues: int) -> None:
    with pytest.raises(UsageError, match=f"expected 1 to {QUEUES_MAX}"):
        EndpointConfig("ib0", "soft:eth0", queues=queues)


def test_a_tun_of_too_many_queues_is_refused() -> None:
    with pytest.raises(ValueError, match=f"1 to {QUEUES_MAX} queues here, not {QUEUES_MAX + 1}"):
        FakeQueues.kind(0, (), [0] * QUEUES_MAX)


def test_connected_mode_has_one_queue() -> None:
    with pytest.raises(UsageError, match="connected mode"):
        EndpointConfig("ib0", "soft:eth0", queues=2, mode="connected")


def test_queues_need_a_tun_that_has_as_many() -> None:
    switch = _core.MemorySwitch(7)
    port = MemoryPort(switch, Gid.parse("fe80::1"))
    with pytest.raises(UsageError, match="2 queues need a TUN"):
        Endpoint(EndpointConfig("ib0", "memory", queues=2), port=port).open()
    tun = FakeQueues(3)
    with pytest.raises(UsageError, match="not 3"):
        endpoint(switch, 1, tun, 2).open()
    tun.close()


class MeshPort(MemoryPort):
    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(mesh=True)


def test_a_mesh_has_one_queue() -> None:
    switch = _core.MemorySwitch(7)
    tun = FakeQueues(2)
    port = MeshPort(switch, Gid.parse("fe80::1"))
    config = EndpointConfig("ib0", "memory", queues=2)
    with pytest.raises(UsageError, match="iWARP"):
        Endpoint(config, device=tun.device, port=port).open()
    tun.close()


def test_a_child_has_as_many_queues_as_its_device() -> None:
    switch = _core.MemorySwitch(7)
    tun, other = FakeQueues(2), FakeQueues(3)
    with endpoint(switch, 1, tun, 2) as parent:
        child = parent.child(PKey(0x8001), device=other.device)
        assert child.config.queues == 3
        with child, parent.child(PKey(0x8002)) as embedded:
            assert (child.show()["queues"], embedded.show()["queues"]) == (3, 1)
    for each in (tun, other):
        each.close()
