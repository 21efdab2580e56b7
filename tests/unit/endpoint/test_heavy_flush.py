# SPDX-License-Identifier: BSD-2-Clause
"""Heavy flushes: another queue pair under an endpoint that lives on, on the in-process fabric."""

from __future__ import annotations

import gc
import ipaddress
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from ipoibu import Endpoint, PKey
from ipoibu.base.errors import LinkError
from ipoibu.base.ib import PartitionParams
from ipoibu.endpoint.callbacks import Callbacks
from ipoibu.endpoint.datapath.capture import SNAP_MAX_BYTES
from ipoibu.endpoint.interface.shell import Shell
from ipoibu.fabric.flush import Flush
from ipoibu.fabric.memory import MemoryUd
from ipoibu.wire import mgid
from tests.doubles.administered import (
    BROADCAST,
    DEFAULT,
    IbPort,
    Subnet,
    knows,
    passes,
    passes_again,
    receives,
    states,
    udp,
    until,
)

TV: Final = ipaddress.ip_address("239.1.2.3")


@pytest.fixture
def subnet() -> Iterator[Subnet]:
    made = Subnet()
    yield made
    made.close()


def give(port: IbPort, *pkeys: int) -> None:
    """The subnet manager writes another P_Key table into the port."""
    port.mads.info = replace(port.mads.info, pkeys=tuple(PKey(key) for key in pkeys))


def renewals(endpoint: Endpoint) -> int:
    return endpoint.stats().get("engine.renewals", 0)


def is_up(endpoint: Endpoint) -> bool:
    return bool(endpoint.show()["state"] == "up")


def renewed(endpoint: Endpoint, times: int) -> None:
    until(lambda: renewals(endpoint) == times and is_up(endpoint))


def test_a_p_key_that_moved_in_the_table_is_another_queue_pair(subnet: Subnet) -> None:
    first, second = subnet.host(), subnet.host()
    assert passes(subnet, 1, 2, b"before")
    before, sent = first.hwaddr, first.stats()["tx_packets"]
    give(subnet.ports[0], 0x8003, 0xFFFF)
    renewed(first, 1)
    assert first.hwaddr.qpn != before.qpn
    assert passes(subnet, 1, 2, b"there")
    until(lambda: knows(second, first))
    assert passes_again(subnet, 2, 1, b"and back, to the new queue pair")
    assert first.stats()["tx_packets"] > sent  # counters go on
    addresses = [entry["address"] for entry in first.show()["addresses"]]
    assert addresses == ["10.0.0.1"]
    assert subnet.failures == []


def test_a_table_that_has_our_p_key_where_it_was_changes_nothing(subnet: Subnet) -> None:
    endpoint = subnet.host(pkeys=(0xFFFF, 0x8002))
    before = endpoint.hwaddr
    give(subnet.ports[0], 0xFFFF, 0x8003)
    until(lambda: subnet.ports[0].sa.info.pkeys[1] == 0x8003)
    assert (renewals(endpoint), endpoint.hwaddr) == (0, before)


def test_without_its_p_key_an_interface_is_down_until_it_is_back(subnet: Subnet) -> None:
    first, second = subnet.host(), subnet.host()
    assert passes(subnet, 1, 2, b"before")
    give(subnet.ports[0], 0x8003)
    until(lambda: not is_up(first))
    until(lambda: first.stats().get("engine.renewals_refused", 0) > 0)
    second.send([udp(2, "10.0.0.1", b"nobody may hear this")])
    assert first.recv(timeout=0.3) == []
    until(lambda: not states(subnet.sa, BROADCAST, 2))
    assert subnet.ports[0].sa.held == ()
    give(subnet.ports[0], 0xFFFF)
    renewed(first, 1)
    assert passes(subnet, 1, 2, b"again")
    assert passes(subnet, 2, 1, b"and back")
    assert subnet.failures == []


def test_e7_full_membership_that_became_limited_is_used_as_such(subnet: Subnet) -> None:
    """E7."""
    endpoint = subnet.host()
    assert endpoint.show()["membership"] == "full"
    give(subnet.ports[0], 0x7FFF)
    renewed(endpoint, 1)
    assert endpoint.show()["membership"] == "limited"


def test_b1_a_link_with_another_mtu_and_q_key_is_taken_over(subnet: Subnet) -> None:
    """B1."""
    first = subnet.host()
    subnet.host()
    assert passes(subnet, 1, 2, b"before")
    subnet.sa.is_deaf = True
    subnet.sa.forget()
    subnet.sa.make_broadcast(DEFAULT, mtu_bytes=2048, qkey=0x1B1B)
    subnet.sa.is_deaf = False
    for endpoint in subnet.endpoints:
        renewed(endpoint, 1)
    assert first.show()["qkey"] == "0x00001b1b"
    assert passes(subnet, 1, 2, b"after")
    assert subnet.mtus == []


def test_b1_a_link_with_another_rate_is_taken_over_for_its_groups_too(subnet: Subnet) -> None:
    """B1. A group has one rate: hosts that came before the change and after it have to agree on it."""
    old, group = subnet.host(), mgid.of_group(TV, DEFAULT)
    subnet.sa.is_deaf = True
    subnet.sa.forget()
    subnet.sa.make_broadcast(DEFAULT, rate=6)
    subnet.sa.is_deaf = False
    until(lambda: bool(states(subnet.sa, BROADCAST, 2)) and is_up(old))
    until(lambda: old.params.rate == 6)
    old.join(TV)
    until(lambda: receives(old, group))
    new = subnet.host()
    new.join(TV)
    until(lambda: receives(new, group))


def test_another_mtu_is_reported_to_the_owner_of_the_interface(subnet: Subnet) -> None:
    subnet.sa.make_broadcast(DEFAULT, mtu_bytes=4096)
    endpoint = subnet.host(port_mtu_bytes=4096)
    assert endpoint.mtu == 4092
    subnet.sa.forget()
    subnet.sa.make_broadcast(DEFAULT, mtu_bytes=2048)
    renewed(endpoint, 1)
    assert subnet.mtus == [2044]
    assert (endpoint.mtu, endpoint.show()["ib_mtu"]) == (2044, 2048)


def test_t3_an_mtu_that_ends_ipv6_ends_the_interface(subnet: Subnet) -> None:
    """T3."""
    endpoint = subnet.host()
    subnet.sa.forget()
    subnet.sa.make_broadcast(DEFAULT, mtu_bytes=1024)
    until(lambda: subnet.failures != [])
    assert subnet.failures[0].startswith(
        "the link's MTU went from 2044 to 1020, and IPv6 needs 1280"
    )
    assert not is_up(endpoint)


def test_what_the_application_has_set_up_outlives_the_queue_pair(subnet: Subnet) -> None:
    """Groups, routes, captures and frames reserved before stay."""
    first, second = subnet.host(), subnet.host()
    first.join(TV)
    first.route_added(ipaddress.ip_network("10.9.0.0/16"), ipaddress.ip_address("10.0.0.2"))
    first.route_added(ipaddress.ip_network("10.8.0.0/16"), ipaddress.ip_address("10.0.0.2"))
    group = mgid.of_group(TV, DEFAULT)
    until(lambda: receives(first, group))
    captured: list[bytes] = []
    end = first.capture(lambda frames: captured.extend(f.data for f in frames), SNAP_MAX_BYTES)
    (frame,) = first.reserve(1)
    give(subnet.ports[0], 0x8003)
    until(lambda: not is_up(first))
    first.route_removed(ipaddress.ip_network("10.8.0.0/16"))
    give(subnet.ports[0], 0x8003, 0xFFFF)
    renewed(first, 1)
    until(lambda: receives(first, group))
    second.send([udp(2, str(TV), b"news")])
    assert first.recv(timeout=10) == [udp(2, str(TV), b"news")]
    far = udp(1, "10.9.0.1", b"by the gateway")
    with memoryview(frame) as view:
        view[: len(far)] = far
    frame.length = len(far)
    assert first.send_frames([frame]) == 1
    assert second.recv(timeout=10) == [far]
    until(lambda: any(far in data for data in captured))
    end()


def test_children_are_renewed_by_themselves(subnet: Subnet) -> None:
    subnet.sa.make_broadcast(PKey(0x8002))
    parent = subnet.host(pkeys=(0xFFFF, 0x8002))
    child = parent.child(PKey(0x8002), callbacks=Callbacks(on_failure=subnet.failures.append))
    with child:
        until(lambda: is_up(child))
        before = parent.hwaddr
        give(subnet.ports[0], 0xFFFF, 0x8001, 0x8002)
        renewed(child, 1)
        assert (renewals(parent), parent.hwaddr) == (0, before)
    assert subnet.failures == []


def test_an_interface_may_be_closed_while_it_waits_for_its_p_key(subnet: Subnet) -> None:
    endpoint = subnet.host()
    give(subnet.ports[0], 0x8003)
    until(lambda: not is_up(endpoint))
    endpoint.close()
    give(subnet.ports[0], 0xFFFF)
    with endpoint:
        until(lambda: is_up(endpoint))


def test_a_queue_pair_that_cannot_be_made_is_tried_again_and_the_link_left_meanwhile(
    subnet: Subnet, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = subnet.host()
    open_ud = IbPort.open_ud

    def fail(self: IbPort, params: PartitionParams) -> MemoryUd:
        raise LinkError("no queue pair")

    monkeypatch.setattr(IbPort, "open_ud", fail)
    give(subnet.ports[0], 0x8003, 0xFFFF)
    until(lambda: endpoint.stats().get("engine.renewals_refused", 0) > 0)
    until(lambda: not states(subnet.sa, BROADCAST, 2))
    assert not is_up(endpoint)
    monkeypatch.setattr(IbPort, "open_ud", open_ud)
    renewed(endpoint, 1)


def test_a_pump_that_takes_no_commands_after_a_flush_ends_the_interface(
    subnet: Subnet, monkeypatch: pytest.MonkeyPatch
) -> None:
    subnet.host()
    resume = Shell.resume

    def fail(shell: Shell, *arguments: Any) -> None:
        resume(shell, *arguments)
        raise BufferError("the command ring is full")

    monkeypatch.setattr(Shell, "resume", fail)
    give(subnet.ports[0], 0x8003, 0xFFFF)
    until(lambda: len(subnet.failures) > 0)
    assert subnet.failures == ["no other queue pair: BufferError: the command ring is full"]


def test_a_port_that_is_down_meanwhile_brings_the_link_up_when_it_is_back(subnet: Subnet) -> None:
    endpoint = subnet.host()
    give(subnet.ports[0], 0x8003)
    until(lambda: not is_up(endpoint))
    subnet.ports[0].up = False
    give(subnet.ports[0], 0xFFFF)
    until(lambda: not endpoint._opened()._port_watch.is_active)
    until(lambda: not endpoint._shell.is_severed)
    assert not is_up(endpoint)
    until(lambda: not states(subnet.sa, BROADCAST, 2))  # the engine, which is down, is no member
    give(subnet.ports[0], 0x8003, 0xFFFF)  # another flush may join again
    until(lambda: endpoint.stats()["engine.renewals"] == 2 and not endpoint._shell.is_severed)
    subnet.ports[0].up = True
    renewed(endpoint, 2)


def test_thirty_heavy_flushes_leave_no_descriptor_and_no_thread_behind(subnet: Subnet) -> None:
    endpoint, port = subnet.host(), subnet.ports[0]

    def renew(times: int) -> None:
        tables = (0x8003, 0xFFFF), (0xFFFF, 0x8003)
        give(port, *tables[times % 2])
        port.sa.device_event(Flush.HEAVY)
        renewed(endpoint, times + 1)

    for times in range(5):
        renew(times)
    gc.collect()
    held = len(os.listdir("/proc/self/fd")), threading.active_count()
    for times in range(5, 30):
        renew(times)
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == held
