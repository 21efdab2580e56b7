# SPDX-License-Identifier: BSD-2-Clause
"""Whole endpoints, with both threads, over the in-process fabric and without a TUN."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from ipoibu import Closed, Endpoint, EndpointConfig, Gid, LinkError, NoSuchDevice, UsageError, _core
from ipoibu._core import CapturedFrame, MemorySwitch
from ipoibu.base.addr import HwAddr, IpAddress, Qpn
from ipoibu.base.errors import IpoibuError, NotReady
from ipoibu.base.ib import Destination
from ipoibu.base.limits import (
    NEIGH_PENDING_BYTES,
    ROUTE_HOPS_MAX,
    STATUS_PAGE,
    WAITING_OVERHEAD_BYTES,
)
from ipoibu.base.route import NextHop, RouteChange, Target, prefix_of
from ipoibu.endpoint.api import status
from ipoibu.endpoint.callbacks import Callbacks
from ipoibu.endpoint.handover import Handover
from ipoibu.endpoint.interface.interface import Interface
from ipoibu.fabric.faults import FaultSpec
from ipoibu.fabric.memory import MemoryPort
from ipoibu.fabric.shared_port import SharedPort
from ipoibu.proto.machine.transition import Transition
from ipoibu.proto.neigh import nud
from tests.doubles.packets import udp4, udp6, until

Hosts = Callable[..., list[Endpoint]]


@pytest.fixture
def make_hosts() -> Iterator[Hosts]:
    """`make_hosts(n)`: n endpoints on one switch, number i with 10.0.0.i/24 and fd00::i/64."""
    with ExitStack() as stack:

        def make(
            count: int, *, faults: FaultSpec | None = None, ib_mtu: int = 2048
        ) -> list[Endpoint]:
            switch = MemorySwitch(7)
            hosts = []
            for number in range(1, count + 1):
                port = MemoryPort(switch, Gid.parse(f"fe80::{number}"), active_mtu_bytes=ib_mtu)
                host = Endpoint(EndpointConfig(f"h{number}", "memory", faults=faults), port=port)
                stack.enter_context(host)
                host.address_added(ipaddress.ip_interface(f"10.0.0.{number}/24"))
                if host.mtu >= 1280:
                    host.address_added(ipaddress.ip_interface(f"fd00::{number}/64"))
                hosts.append(host)
            return hosts

        yield make


def preferred(host: Endpoint) -> bool:
    addresses = host.show()["addresses"]
    return bool(addresses) and all(entry["state"] == "preferred" for entry in addresses)


def test_the_first_packet_waits_for_resolution_and_arrives(make_hosts: Hosts) -> None:
    a, b = make_hosts(2)
    for packet in (udp4(1, "10.0.0.2", b"four"), udp6(1, "fd00::2", b"six")):
        assert a.send([packet]) == 1
        assert b.recv(timeout=10) == [packet]
    neighbours = a.neighbours()
    assert {entry["ip"]: entry["hwaddr"] for entry in neighbours} == {
        "10.0.0.2": str(b.hwaddr),
        "fd00::2": str(b.hwaddr),
    }
    # Announcements may have crossed the answers: their addresses are not confirmed yet.
    assert {entry["state"] for entry in neighbours} <= {"reachable", "stale", "delay"}


def test_a_burst_to_a_fresh_host_leaves_as_far_as_its_bytes_fit(make_hosts: Hosts) -> None:
    a, b = make_hosts(2)
    until(lambda: preferred(a))
    packets = [udp4(1, "10.0.0.2", struct.pack(">I", n)) for n in range(5000)]
    fit = NEIGH_PENDING_BYTES // (len(packets[0]) + WAITING_OVERHEAD_BYTES)
    before = a.stats()["tx_packets"]
    asyncio.run(a.asend(packets))
    until(lambda: a.stats()["tx_packets"] - before > fit)  # and a question
    got = b.recv(max=fit, timeout=10)
    assert got == packets[: len(got)]


def test_a_datagram_that_the_pump_drops_names_its_sender(caplog: pytest.LogCaptureFixture) -> None:
    switch = MemorySwitch(7)
    sender = _core.MemoryPort(switch, Gid.parse("fe80::2").raw)
    stranger = _core.Pump(sender, _core.QueueDevice(), mtu=2044)
    port = MemoryPort(switch, Gid.parse("fe80::1"))
    caplog.set_level(logging.INFO)
    with Endpoint(EndpointConfig("h1", "memory"), port=port) as host:
        stranger.send_frame(Destination(host.hwaddr.gid, host.hwaddr.qpn), b"\x12\x34" + bytes(60))
        line = f"h1: dropped a message of fe80::2 queue pair {Qpn(sender.qpn)}: rx_type"
        end = time.monotonic() + 10
        while line not in caplog.text:
            assert time.monotonic() < end, caplog.text
            stranger.step()


def test_neighbours_are_shown_a_page_at_a_time(
    make_hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host,) = make_hosts(1)
    count = 2 * STATUS_PAGE + 1
    ips = [ipaddress.ip_address(0x0A010000 + n) for n in range(count)]
    peer = HwAddr(Qpn(5), Gid.parse("fe80::99"))
    until(lambda: host.show()["state"] == "up")
    host._call(lambda: host._input(host._engine.note_learned, peer, ips))
    pages: list[int] = []
    show = status.neighbours

    def counted(interface: Interface, ips: list[IpAddress]) -> list[dict[str, Any]]:
        pages.append(len(ips))
        return show(interface, ips)

    monkeypatch.setattr(status, "neighbours", counted)
    assert [entry["ip"] for entry in host.neighbours()] == [str(ip) for ip in ips]
    assert pages == [STATUS_PAGE, STATUS_PAGE, 1]


def test_a_route_with_too_many_next_hops_is_counted_and_works(make_hosts: Hosts) -> None:
    a, b = make_hosts(2)
    hops = tuple(NextHop(ipaddress.ip_address("10.0.0.2")) for _ in range(ROUTE_HOPS_MAX + 1))
    prefix = prefix_of(ipaddress.ip_network("192.168.0.0/16"))
    a.routes_changed([RouteChange(prefix, Target("unicast", hops))])
    packet = udp4(1, "192.168.5.5", b"by one of them")
    a.send([packet])
    assert b.recv(timeout=10) == [packet]
    assert a.stats()["engine.route_hops_full"] == 1
    a.routes_changed([RouteChange(prefix, None)])


def test_resolved_packets_do_not_pass_through_the_engine(make_hosts: Hosts) -> None:
    a, b = make_hosts(2)
    a.send([udp4(1, "10.0.0.2", b"resolve")])
    assert b.recv(timeout=10)
    for host in (a, b):
        until(lambda host=host: preferred(host))  # type: ignore[misc]
    packets = [udp4(1, "10.0.0.2", struct.pack(">I", n)) for n in range(2000)]

    def pass_by() -> bool:
        """A probe may pass; a busy machine repeats it."""
        before = a.stats()["tx_missed"] + b.stats()["rx_control"]
        got: list[bytes] = []
        for start in range(0, len(packets), 100):
            assert a.send(packets[start : start + 100]) == 100
            while len(got) < start + 100:
                got += b.recv(timeout=10)
        assert got == packets
        assert a.stats()["tx_missed"] == 1
        return bool(a.stats()["tx_missed"] + b.stats()["rx_control"] <= before + 2)

    until(pass_by)


def test_a_joined_group_is_received_and_a_left_one_is_not(make_hosts: Hosts) -> None:
    a, b, c = make_hosts(3)
    group = ipaddress.ip_address("239.1.2.3")
    b.join(group)
    packet = udp4(1, "239.1.2.3", b"to the group")
    a.send([packet])
    assert b.recv(timeout=10) == [packet]
    assert c.recv(timeout=0) == []
    assert "ff12:401b:ffff::f01:203" in [entry["mgid"] for entry in b.groups()]
    b.leave(group)
    until(lambda: "ff12:401b:ffff::f01:203" not in [entry["mgid"] for entry in b.groups()])
    with pytest.raises(UsageError, match="not a multicast group"):
        a.join(ipaddress.ip_address("10.0.0.9"))


def test_broadcast_reaches_every_other_host_once(make_hosts: Hosts) -> None:
    a, b, c = make_hosts(3)
    a.route_added(ipaddress.ip_network("10.0.0.255/32"), None, "broadcast")
    packet = udp4(1, "10.0.0.255", b"all")
    a.send([packet])
    assert b.recv(timeout=10) == [packet]
    assert c.recv(timeout=10) == [packet]
    assert a.recv(timeout=0) == []


def test_an_absent_host_is_answered_with_unreachable(
    make_hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(nud.SOLICITATIONS, nud.State.INCOMPLETE, 3)
    (a,) = make_hosts(1)
    until(lambda: preferred(a))
    a.send([udp4(1, "10.0.0.77", b"anybody?")])
    (answer,) = a.recv(timeout=20)
    assert (answer[9], answer[20], answer[21]) == (1, 3, 1)  # ICMP, host unreachable
    assert udp4(1, "10.0.0.77", b"anybody?") in answer


def test_a_gateway_takes_what_is_routed_to_it(make_hosts: Hosts) -> None:
    a, b = make_hosts(2)
    until(lambda: preferred(b))  # no host answers for an address that is still checked
    a.route_added(ipaddress.ip_network("192.168.0.0/16"), ipaddress.ip_address("fd00::2"))
    packet = udp4(1, "192.168.1.1", b"via six")
    a.send([packet])
    assert b.recv(timeout=10) == [packet]
    a.route_removed(ipaddress.ip_network("192.168.0.0/16"))
    assert [entry["ip"] for entry in a.neighbours()] == ["fd00::2"]


def test_a_route_of_no_kind_is_refused(make_hosts: Hosts) -> None:
    (a,) = make_hosts(1)
    with pytest.raises(UsageError, match=r"10\.9\.0\.0/16: .* not 'blackhole'"):
        a.route_added(ipaddress.ip_network("10.9.0.0/16"), None, "blackhole")


def test_every_resolution_succeeds_on_a_bad_fabric(make_hosts: Hosts) -> None:
    faults = FaultSpec(loss=0.2, duplicate=0.2, reorder=0.2, corrupt=0.1, delay=0.2, seed=11)
    hosts = make_hosts(3, faults=faults)
    for a in hosts:
        for number, b in enumerate(hosts, start=1):
            if a is b:
                continue
            ip = f"10.0.0.{number}"

            def reachable(a: Endpoint = a, ip: str = ip, b: Endpoint = b) -> bool:
                a.send([udp4(hosts.index(a) + 1, ip, b"again")])
                time.sleep(0.05)
                known = {entry["ip"]: entry["hwaddr"] for entry in a.neighbours()}
                return known.get(ip) == str(b.hwaddr)

            until(reachable, seconds=60)
    assert sum(host.stats()["fabric.faults_lost"] for host in hosts) > 0


def test_a_restarted_host_is_reached_at_its_new_queue_pair(make_hosts: Hosts) -> None:
    switch = MemorySwitch(3)
    address = ipaddress.ip_interface("10.0.0.2/24")

    def second() -> Endpoint:
        port = MemoryPort(switch, Gid.parse("fe80::2"))
        return Endpoint(EndpointConfig("b", "memory"), port=port)

    a = Endpoint(EndpointConfig("a", "memory"), port=MemoryPort(switch, Gid.parse("fe80::1")))
    with a:
        a.address_added(ipaddress.ip_interface("10.0.0.1/24"))
        with second() as b:
            b.address_added(address)
            a.send([udp4(1, "10.0.0.2", b"first life")])
            assert b.recv(timeout=10)
            former = b.hwaddr
        with second() as b:
            assert b.hwaddr != former
            b.address_added(address)
            started = time.monotonic()
            got: list[bytes] = []
            while not got and time.monotonic() < started + 30:  # tests/sim judges how soon
                a.send([udp4(1, "10.0.0.2", b"second life")])
                got = b.recv(timeout=0.05)
            assert got


def test_a_duplicate_address_is_reported_to_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    switch = MemorySwitch(3)
    verdicts: list[tuple[str, bool]] = []
    heard = threading.Event()

    def verdict(address: ipaddress.IPv4Address | ipaddress.IPv6Address, duplicate: bool) -> None:
        verdicts.append((str(address), duplicate))
        heard.set()

    first = Endpoint(EndpointConfig("a", "memory"), port=MemoryPort(switch, Gid.parse("fe80::1")))
    second = Endpoint(
        EndpointConfig("b", "memory"),
        port=MemoryPort(switch, Gid.parse("fe80::2")),
        callbacks=Callbacks(on_address=verdict),
    )
    with first, second:
        first.address_added(ipaddress.ip_interface("fd00::1/64"))
        until(lambda: preferred(first))
        monkeypatch.setattr("ipoibu.proto.neigh.dad.RETRANS_TIMER_S", 30.0)
        second.address_added(ipaddress.ip_interface("fd00::1/64"))
        assert heard.wait(20)
        assert verdicts == [("fd00::1", True)]
        assert second.show()["addresses"] == [{"address": "fd00::1", "state": "duplicate"}]


def test_a_port_that_goes_down_takes_the_link_with_it_and_back() -> None:
    port = MemoryPort(MemorySwitch(1), Gid.parse("fe80::1"))
    with Endpoint(EndpointConfig("a", "memory"), port=port) as endpoint:
        assert endpoint.show()["state"] == "up"
        port.up = False
        until(lambda: endpoint.show()["state"] == "down")
        port.up = True
        until(lambda: endpoint.show()["state"] == "up")


def test_a_broken_queue_pair_comes_back_by_itself(make_hosts: Hosts) -> None:
    a, b = make_hosts(2)
    a.send([udp4(1, "10.0.0.2", b"before")])
    assert b.recv(timeout=10)
    a._opened().fabric.break_queue_pair()  # type: ignore[attr-defined]
    until(lambda: a.stats()["fabric_recoveries"] == 1)
    a.send([udp4(1, "10.0.0.2", b"after")])
    assert b.recv(timeout=10) == [udp4(1, "10.0.0.2", b"after")]


def test_async_and_blocking_faces_agree(make_hosts: Hosts) -> None:
    a, b = make_hosts(2)
    packets = [udp4(1, "10.0.0.2", bytes([n])) for n in range(200)]

    async def talk() -> list[bytes]:
        assert await a.asend(packets[:1]) == 1
        got = await b.arecv()
        assert await a.asend(packets[1:]) == 199
        while len(got) < 200:
            got += await b.arecv()
        return got

    assert asyncio.run(talk()) == packets


@pytest.mark.timeout(60)
def test_none_asked_for_is_none_though_packets_are_there(make_hosts: Hosts) -> None:
    """The call once searched without end, also on the caller's event loop."""
    a, b = make_hosts(2)
    packets = [udp4(1, "10.0.0.2", bytes([number])) for number in range(2)]
    a.send(packets)
    assert b.recv(1, timeout=10) == packets[:1]
    assert b.recv(0) == []
    assert asyncio.run(b.arecv(0)) == []
    assert b.recv(timeout=10) == packets[1:]


def test_a_receiver_in_another_thread_is_woken_by_close(make_hosts: Hosts) -> None:
    (a,) = make_hosts(1)
    raised: list[BaseException] = []

    def receive() -> None:
        try:
            a.recv()
        except Closed as error:
            raised.append(error)

    thread = threading.Thread(target=receive)
    thread.start()
    a.close()
    thread.join(10)
    assert [str(error) for error in raised] == ["h1: the endpoint is not open"]


def test_an_endpoint_that_is_open_is_not_opened_again(make_hosts: Hosts) -> None:
    a, b = make_hosts(2)
    threads = threading.active_count()
    with pytest.raises(UsageError, match="h1: the endpoint is open already"):
        a.open()
    assert threading.active_count() == threads
    a.send([udp4(1, "10.0.0.2", b"still here")])
    assert b.recv(timeout=10) == [udp4(1, "10.0.0.2", b"still here")]
    a.close()
    a.open()
    a.address_added(ipaddress.ip_interface("10.0.0.1/24"))
    a.send([udp4(1, "10.0.0.2", b"here again")])
    assert b.recv(timeout=10) == [udp4(1, "10.0.0.2", b"here again")]


def test_many_threads_may_close_and_call_at_a_time(make_hosts: Hosts) -> None:
    """Each call returns or raises Closed; none waits for ever, and no resource goes back twice."""
    hosts = make_hosts(20)
    start = threading.Barrier(5)
    raised: list[BaseException] = []

    def close() -> None:
        for host in hosts:
            start.wait()
            host.close()

    def call() -> None:
        for host in hosts:
            start.wait()
            try:
                while True:
                    host.neighbours()
            except BaseException as error:
                raised.append(error)

    threads = [threading.Thread(target=work, daemon=True) for work in (close, close, call, call)]
    for thread in threads:
        thread.start()
    for _ in hosts:
        start.wait(20)
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert {type(error) for error in raised} == {Closed}


def test_a_callback_cannot_open_or_close() -> None:
    """It would wait for its own thread."""
    refused: list[str] = []
    called = threading.Event()

    def on_address(address: object, duplicate: bool) -> None:
        for call in (endpoint.open, endpoint.close):
            try:
                call()
            except UsageError as error:
                refused.append(str(error))
        called.set()

    port = MemoryPort(MemorySwitch(1), Gid.parse("fe80::1"))
    endpoint = Endpoint(
        EndpointConfig("a", "memory"), port=port, callbacks=Callbacks(on_address=on_address)
    )
    with endpoint:
        endpoint.address_added(ipaddress.ip_interface("10.0.0.1/24"))
        assert called.wait(10)
    assert refused == ["a: not from a callback, which must not block"] * 2


def test_a_capture_sees_arp_and_the_packet(make_hosts: Hosts) -> None:
    a, b = make_hosts(2)
    for host in (a, b):
        until(lambda host=host: preferred(host))  # type: ignore[misc]
    frames: list[CapturedFrame] = []
    end = a.capture(frames.extend)
    a.send([udp4(1, "10.0.0.2", b"seen")])
    assert b.recv(timeout=10)
    end()
    kinds = [frame.data[40:42].hex() for frame in frames]
    assert "0806" in kinds
    assert udp4(1, "10.0.0.2", b"seen") in [frame.data[44:] for frame in frames]
    a.send([udp4(1, "10.0.0.2", b"not seen")])
    assert b.recv(timeout=10)
    assert len(frames) == len(kinds)


def test_a_ping_has_the_time_or_the_reason(make_hosts: Hosts) -> None:
    a, b = make_hosts(2)
    for host in (a, b):
        until(lambda host=host: preferred(host))  # type: ignore[misc]
    answer = a.ping(ipaddress.ip_address("10.0.0.2"), timeout=20)
    assert (answer["ip"], answer["hwaddr"]) == ("10.0.0.2", str(b.hwaddr))
    assert (answer["method"], answer["reason"]) == ("arp", None)
    assert 0 < answer["rtt_ms"] < 20_000
    a.send([udp4(1, "10.0.0.2", b"known from now on")])
    assert b.recv(timeout=10)
    assert a.ping(b.hwaddr, timeout=20)["ip"] == "10.0.0.2"
    silent = a.ping(ipaddress.ip_address("10.0.0.9"), timeout=0.01)
    assert (silent["rtt_ms"], silent["reason"]) == (None, "no answer")
    assert a.ping(ipaddress.ip_address("10.0.0.1"))["reason"].startswith("the address belongs to")
    assert asyncio.run(a.aping(ipaddress.ip_address("10.0.0.2"), 20))["reason"] is None


def test_pings_beyond_the_cap_are_refused(
    make_hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ipoibu.endpoint.interface.pings.PINGS_MAX", 2)
    a, _ = make_hosts(2)
    until(lambda: preferred(a))

    target = ipaddress.ip_address("10.0.0.9")

    async def ask() -> None:
        pings = [asyncio.ensure_future(a.aping(target, 60)) for _ in range(3)]
        done, others = await asyncio.wait(pings, return_when=asyncio.FIRST_COMPLETED)
        assert [type(ping.exception()) for ping in done] == [LinkError]
        for ping in others:
            ping.cancel()

    def answers() -> bool:
        with suppress(LinkError):  # the others end soon
            return bool(a.ping(target, 0.01)["reason"] == "no answer")
        return False

    asyncio.run(ask())
    until(answers)


def test_a_path_without_an_administrator_is_the_links(make_hosts: Hosts) -> None:
    a, b = make_hosts(2)
    for host in (a, b):
        until(lambda host=host: preferred(host))  # type: ignore[misc]
    a.send([udp4(1, "10.0.0.2", b"known from now on")])
    assert b.recv(timeout=10)
    (path,) = a.paths()
    assert (path["gid"], path["state"], path["lid"]) == (str(b.hwaddr.gid), "static", None)
    assert path["next_hops"] == ["10.0.0.2"]


def test_a_watch_sees_a_neighbour_until_it_ends(make_hosts: Hosts) -> None:
    a, b = make_hosts(2)
    for host in (a, b):
        until(lambda host=host: preferred(host))  # type: ignore[misc]
    seen: list[Transition] = []
    end = a.watch(seen.append)
    a.send([udp4(1, "10.0.0.2", b"seen")])
    assert b.recv(timeout=10)
    until(lambda: "reachable" in [it.after for it in seen if str(it.subject) == "10.0.0.2"])
    end()
    count = len(seen)
    a.send([udp4(1, "10.0.0.9", b"not seen")])
    until(lambda: any(it["ip"] == "10.0.0.9" for it in a.neighbours()))
    assert len(seen) == count


def test_a_capture_that_raises_leaves_the_others_alone(
    make_hosts: Hosts, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = make_hosts(2)
    calls: list[int] = []
    seen: list[CapturedFrame] = []

    def fail(frames: list[CapturedFrame]) -> None:
        calls.append(len(frames))
        raise RuntimeError("full")

    ends = [a.capture(fail), a.capture(seen.extend)]
    for number in range(5):
        packet = udp4(1, "10.0.0.2", bytes([number]) * 8)
        a.send([packet])
        assert b.recv(timeout=10) == [packet]
        until(lambda packet=packet: packet in [f.data[44:] for f in list(seen)])  # type: ignore[misc]
    for end in ends:
        end()
    assert len(calls) == 1
    assert "a capture's sink failed" in caplog.text


@pytest.mark.parametrize(
    ("ib_mtu", "asked", "expected"),
    [
        (2048, None, 2044),
        (4096, None, 2044),
        (1024, None, 1020),
        (4096, 4092, 4092),
        (2048, 1500, 1500),
    ],
)
def test_the_mtu_is_the_links_or_what_was_asked_for(
    ib_mtu: int, asked: int | None, expected: int
) -> None:
    """T1."""
    port = MemoryPort(MemorySwitch(1), Gid.parse("fe80::1"), active_mtu_bytes=ib_mtu)
    with Endpoint(EndpointConfig("a", "memory", mtu=asked), port=port) as endpoint:
        assert endpoint.mtu == expected
        assert endpoint.show()["mtu"] == expected


@pytest.mark.parametrize(
    ("ib_mtu", "asked", "error", "text"),
    [
        (2048, 4092, LinkError, "carries an InfiniBand MTU of 2048"),
        (4096, 9000, UsageError, "too large for datagram mode"),
        (4096, 10, UsageError, "does not fit"),
    ],
)
def test_an_mtu_that_cannot_be_is_refused(
    ib_mtu: int, asked: int, error: type[Exception], text: str
) -> None:
    port = MemoryPort(MemorySwitch(1), Gid.parse("fe80::1"), active_mtu_bytes=ib_mtu)
    with pytest.raises(error, match=text):
        Endpoint(EndpointConfig("a", "memory", mtu=asked), port=port).open()


def test_oversize_and_empty_packets_are_the_callers_error(make_hosts: Hosts) -> None:
    (a,) = make_hosts(1)
    for packet in (b"", bytes(a.mtu + 1)):
        with pytest.raises(UsageError, match="does not fit"):
            a.send([packet])


def test_everything_raises_closed_before_open_and_after_close() -> None:
    endpoint = Endpoint(
        EndpointConfig("a", "memory"), port=MemoryPort(MemorySwitch(1), Gid.parse("fe80::1"))
    )
    for _ in range(2):
        for call in (
            lambda: endpoint.send([b"x"]),
            lambda: endpoint.recv(timeout=0),
            endpoint.stats,
            endpoint.show,
            endpoint.connections,
            lambda: endpoint.join(ipaddress.ip_address("224.0.0.9")),
            lambda: endpoint.route_added(ipaddress.ip_network("10.0.0.0/8"), None),
            lambda: endpoint.route_removed(ipaddress.ip_network("10.0.0.0/8")),
            lambda: endpoint.capture(lambda frames: None),
            lambda: endpoint.watch(lambda transition: None),
            lambda: endpoint.port,
            lambda: endpoint.hwaddr,
            lambda: endpoint.mtu,
            lambda: endpoint.params,
        ):
            with pytest.raises(Closed):
                call()
        with endpoint:
            pass


def test_two_hundred_lives_leave_no_descriptor_thread_or_memory_behind() -> None:
    def live() -> None:
        port = MemoryPort(MemorySwitch(1), Gid.parse("fe80::1"))
        with Endpoint(EndpointConfig("a", "memory"), port=port) as endpoint:
            endpoint.address_added(ipaddress.ip_interface("10.0.0.1/24"))

    def resident_kib() -> int:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") // 1024

    for _ in range(20):
        live()
    gc.collect()  # the cyclic garbage of other tests must not end in between
    descriptors, threads, memory_kib = (
        len(os.listdir("/proc/self/fd")),
        threading.active_count(),
        resident_kib(),
    )
    for _ in range(200):
        live()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert threading.active_count() == threads
    assert resident_kib() < memory_kib + 8192  # one leaked slab alone has 3 MiB: 200 are 600


@pytest.mark.parametrize("busy_poll_us", [-1, 1_000_001])
def test_a_busy_poll_out_of_bounds_is_refused(busy_poll_us: int) -> None:
    with pytest.raises(UsageError, match="busy_poll_us"):
        EndpointConfig("ib0", "soft:eth0", busy_poll_us=busy_poll_us)


def late_endpoint(
    monkeypatch: pytest.MonkeyPatch, errors: list[IpoibuError]
) -> tuple[Endpoint, list[IpoibuError]]:
    """An endpoint whose device raises `errors` before it opens, and the list of those left."""
    port = MemoryPort(MemorySwitch(7), Gid.parse("fe80::1"))
    host = Endpoint(EndpointConfig("late", "memory"), port=port)
    take = host._take_port

    def refuse(kept: Handover) -> SharedPort:
        if errors:
            raise errors.pop(0)
        return take(kept)

    monkeypatch.setattr(host, "_take_port", refuse)
    return host, errors


def test_open_waits_for_a_device_that_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    host, left = late_endpoint(monkeypatch, [NoSuchDevice("none"), NotReady("down")])
    host.open(wait_s=60)
    host.close()
    assert left == []


def test_open_tells_the_error_when_the_wait_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    for wait_s in (0.0, 0.05):
        host, _ = late_endpoint(monkeypatch, [NotReady("the device is down")] * 1000)
        with pytest.raises(NotReady, match="the device is down"):
            host.open(wait_s=wait_s)


def test_open_does_not_wait_for_what_time_does_not_heal(monkeypatch: pytest.MonkeyPatch) -> None:
    host, left = late_endpoint(monkeypatch, [LinkError("MTU too small"), NotReady("never asked")])
    with pytest.raises(LinkError, match="MTU too small"):
        host.open(wait_s=86400)
    assert len(left) == 1
