# SPDX-License-Identifier: BSD-2-Clause
"""Endpoints in several partitions of one port, over the in-process fabric."""

from __future__ import annotations

import ipaddress
import os
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from ipoibu import Closed, Endpoint, EndpointConfig, Gid, LinkError, PKey, UsageError
from ipoibu._core import MemorySwitch
from ipoibu.fabric.memory import MemoryPort

GREEN = PKey(0x8001)


def udp4(source: str, target: str, data: bytes) -> bytes:
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(data), 0, 0, 64, 17, 0)
    return head + ipaddress.ip_address(source).packed + ipaddress.ip_address(target).packed + data


def parent(switch: MemorySwitch, number: int, partitions: Path | None = None) -> Endpoint:
    port = MemoryPort(switch, Gid.parse(f"fe80::{number}"))
    return Endpoint(EndpointConfig(f"h{number}", "memory", partitions=partitions), port=port)


def test_children_of_two_ports_talk_in_their_partition_and_their_parents_hear_nothing() -> None:
    switch = MemorySwitch(7)
    with ExitStack() as stack:
        parents = [stack.enter_context(parent(switch, n)) for n in (1, 2)]
        children = [stack.enter_context(each.child(GREEN)) for each in parents]
        for number, (above, below) in enumerate(zip(parents, children, strict=True), 1):
            for each in (above, below):  # the same address in both partitions is no duplicate
                each.address_added(ipaddress.ip_interface(f"10.0.0.{number}/24"))
        packet = udp4("10.0.0.1", "10.0.0.2", b"in green")
        children[0].send([packet])
        assert children[1].recv(timeout=10) == [packet]
        assert parents[1].recv(timeout=0) == []
        packet = udp4("10.0.0.1", "10.0.0.2", b"in default")
        parents[0].send([packet])
        assert parents[1].recv(timeout=10) == [packet]
        assert children[1].recv(timeout=0) == []
        shown = children[0].show()
        assert (shown["name"], shown["parent"], shown["pkey"]) == ("h1.8001", "h1", "0x8001")
        assert parents[0].show()["parent"] is None
        assert shown["qpn"] != parents[0].show()["qpn"]
        assert shown["gid"] == parents[0].show()["gid"]
        assert shown["broadcast"][15:29] == "12:40:1b:80:01"


def test_a_child_goes_on_when_its_parent_is_closed() -> None:
    switch = MemorySwitch(7)
    first, second = parent(switch, 1), parent(switch, 2)
    with ExitStack() as stack:
        children = []
        for number, above in enumerate((first, second), 1):
            above.open()
            child = stack.enter_context(above.child(GREEN))
            child.address_added(ipaddress.ip_interface(f"10.0.0.{number}/24"))
            children.append(child)
            above.close()
        packet = udp4("10.0.0.1", "10.0.0.2", b"orphans")
        children[0].send([packet])
        assert children[1].recv(timeout=10) == [packet]


def test_a_closed_parent_has_no_new_children() -> None:
    above = parent(MemorySwitch(7), 1)
    child = above.child(GREEN)
    with pytest.raises(Closed, match="h1: the endpoint is not open"):
        child.open()
    above.open()
    child.open()
    child.close()
    above.close()
    with pytest.raises(Closed):
        child.open()


def test_a_child_that_cannot_open_leaves_the_port_to_its_parent(tmp_path: Path) -> None:
    file = tmp_path / "partitions.conf"
    file.write_text("Default=0x7fff, ipoib : ALL=full;\nred=2, ipoib : 0x9=full;\n")
    with parent(MemorySwitch(7), 1, file) as above:
        with pytest.raises(LinkError, match=r"conf:2: memory/1 is no member of partition red"):
            above.child(PKey(2)).open()
        with pytest.raises(LinkError, match="no partition 0x8001"):
            above.child(GREEN).open()
        with pytest.raises(UsageError, match=r"conf:1: the link carries an MTU of 2044"):
            above.child(PKey(0xFFFF), mtu=4092).open()
        # A child reads the file as it is now.
        file.write_text("green=1, ipoib, sl=5, Q_Key=7 : ALL;")
        with above.child(GREEN) as child:
            assert (child.params.sl, child.params.qkey, child.params.pkey) == (5, 7, GREEN)
            assert child.show()["membership"] == "limited"
        assert above.show()["membership"] == "full"


def test_children_that_come_and_go_leave_no_descriptors_or_threads() -> None:
    def resources() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    def settle(is_so: Callable[[], bool]) -> None:
        """A joined thread is in /proc for a moment longer."""
        deadline = time.monotonic() + 10
        while not is_so():
            assert time.monotonic() < deadline, resources()
            time.sleep(0.01)

    with parent(MemorySwitch(7), 1) as above:
        with above.child(GREEN):
            pass
        before = resources()
        for number in range(50):
            with above.child(PKey(number + 1)):
                pass
        settle(lambda: all(now <= then for now, then in zip(resources(), before, strict=True)))
