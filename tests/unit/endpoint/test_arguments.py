# SPDX-License-Identifier: BSD-2-Clause
"""What an endpoint's methods accept: text for addresses, lists of packets, and words for all else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest

from ipoibu import Endpoint, EndpointConfig, Gid, UsageError
from ipoibu._core import MemorySwitch
from ipoibu.fabric.base import MeshOptions
from ipoibu.fabric.memory import MemoryPort

HWADDR: Final = "00:00:00:07:fe:80:00:00:00:00:00:00:00:00:00:00:00:00:00:09"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    port = MemoryPort(MemorySwitch(7), Gid.parse("fe80::1"), active_mtu_bytes=2048)
    with Endpoint(EndpointConfig("h1", "memory"), port=port) as endpoint:
        yield endpoint


@pytest.mark.parametrize(
    ("packets", "text"),
    [
        (b"one", r"a list of packets, not one bytes: write send\(\[packet\]\)"),
        ("text", "a list of packets, not one str"),
        (None, "a list of packets, not one NoneType"),
        (7, "a list of packets, not one int"),
        ([7], "a packet is bytes, bytearray or memoryview, not int"),
        ([None], "not NoneType"),
        (["text"], "bytes-like object is required, not 'str'"),
    ],
)
def test_what_is_no_list_of_packets_is_refused_in_words(
    endpoint: Endpoint, packets: Any, text: str
) -> None:
    with pytest.raises(TypeError, match=text):
        endpoint.send(packets)
    with pytest.raises(TypeError, match=text):
        asyncio.run(endpoint.asend(packets))


def test_addresses_may_be_text(endpoint: Endpoint) -> None:
    endpoint.address_added("10.1.0.1/24")
    assert "'10.1.0.1'" in str(endpoint.show())
    endpoint.address_removed("10.1.0.1/24")
    assert "'10.1.0.1'" not in str(endpoint.show())
    endpoint.route_added("10.2.0.0/16", "10.0.0.2")
    endpoint.route_removed("10.2.0.0/16")
    endpoint.join("239.1.2.3")
    endpoint.leave("239.1.2.3")
    endpoint.set_neighbour("10.0.0.9", HWADDR)
    assert ("10.0.0.9", HWADDR) in [(n["ip"], n["hwaddr"]) for n in endpoint.neighbours()]
    endpoint.remove_neighbour("10.0.0.9")
    assert "10.0.0.9" not in [n["ip"] for n in endpoint.neighbours()]


@pytest.mark.parametrize(
    ("method", "arguments", "text"),
    [
        ("address_added", ("10.0.0.300/24",), "is not an address with its prefix such as"),
        ("route_added", ("10.0.0.1/24", None), "is not a network such as .* has host bits set"),
        ("join", ("all",), "is not an address such as"),
        ("join", ("10.0.0.1",), "10.0.0.1 is not a multicast group"),
        ("set_neighbour", ("10.0.0.2", "00:11"), "is not a 20-byte hardware address"),
    ],
)
def test_text_that_is_no_address_is_refused(
    endpoint: Endpoint, method: str, arguments: tuple[Any, ...], text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        getattr(endpoint, method)(*arguments)


def test_an_object_that_is_no_address_is_refused(endpoint: Endpoint) -> None:
    with pytest.raises(TypeError, match="10 is not an address with its prefix such as"):
        endpoint.address_added(10)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda it: it.send_frames([b"abc"]), "frames that `reserve` lent, not of bytes; `send`"),
        (lambda it: it.send_frames(None), "frames that `reserve` lent, not NoneType"),
        (lambda it: it.recv(timeout="soon"), "timeout is a number of seconds, not 'soon'"),
        (lambda it: it.recv_frames(timeout="soon"), "timeout is a number of seconds"),
        (lambda it: it.ping("10.0.0.2", "soon"), "timeout is a number of seconds"),
        (lambda it: it.wait_up("soon"), "timeout is a number of seconds"),
        (lambda it: it.open("soon"), "wait_s is a number of seconds, not 'soon'"),
        (lambda it: it.memberships_changed(None), "a list of addresses is wanted, not None"),
        (lambda it: it.child(None), "None is not a P_Key such as 0x8001"),
        (lambda it: it.capture(7), "a sink is a function of one argument, not 7"),
        (lambda it: it.watch(None), "a sink is a function of one argument, not None"),
        (lambda it: it.recv("all"), "max is a number of packets, not 'all'"),
        (lambda it: it.reserve(None), "max is a number of packets, not None"),
        (lambda it: asyncio.run(it.arecv(b"1")), "max is a number of packets, not b'1'"),
        (lambda it: it.routes_changed(7), "a list of RouteChange, not 7"),
        (lambda it: it.routes_changed("x"), "a list of RouteChange, not of 'x'"),
        (lambda it: it.set_peers("10.0.0.2"), "a list of peers such as .* is wanted"),
        (lambda it: it.set_peers([7]), "a list of peers such as .* not of 7"),
        (lambda it: it.set_busy_poll("long"), "busy_poll_us is a number, 0 to .*, not 'long'"),
        (lambda it: it.answer_routes(7), "the answer to a route is a function of a packet, not 7"),
        (lambda it: it.answer_arp(None), "the answer to ARP is a function of two addresses"),
        (lambda it: it.answer_proxy(7), "the answer for a proxy is a function of two addresses"),
        (lambda it: it.proxied_changed(["10.0.0.0/8"]), "proxied_changed takes ProxyRules"),
    ],
)
def test_garbage_is_refused_in_words(endpoint: Endpoint, call: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        call(endpoint)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda it: it.memberships_changed(["10.0.0.7"]), "10.0.0.7 is not a multicast group"),
        (lambda it: it.arp_changed(["fd00::1"]), "fd00::1 is not an IPv4 address"),
        (lambda it: it.child(0), "0x0 is not a P_Key"),
        (lambda it: it.child(0x8000), "0x8000 is not a P_Key"),
        (lambda it: it.recv(-1), "max -1: expected 0 or more packets"),
        (lambda it: it.recv_frames(-1), "max -1: expected 0 or more packets"),
    ],
)
def test_values_that_cannot_be_are_refused_in_words(
    endpoint: Endpoint, call: Any, text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        call(endpoint)


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("name", None, "name is the text of a name such as ib0, not None"),
        ("device", 7, "device is the text of a device such as soft:eth0, not 7"),
        ("port", "1", "port is the number of a port, not '1'"),
        ("mtu", "big", "mtu is a number of bytes, not 'big'"),
        ("qkey", 1.5, "qkey is a number, not 1.5"),
        ("queues", None, "queues is a number, 1 to 16 queues, not None"),
        ("busy_poll_us", "x", "busy_poll_us is a number, 0 to .* microseconds, not 'x'"),
        ("faults", "loss=0.5", "faults is a FaultSpec, not 'loss=0.5'"),
        ("partitions", "a.conf", "partitions is the Path of a file, not 'a.conf'"),
        ("dhcp", True, "dhcp is a DhcpConfig, not True"),
        ("dhcp6", True, "dhcp6 is a DhcpConfig, not True"),
        ("port", True, "port is the number of a port, not True"),
        ("pkey", "0x8001", "pkey is a PKey, not '0x8001'"),
        ("mesh", "10.0.0.2", "mesh is a MeshOptions, not '10.0.0.2'"),
        ("parent", 7, "parent is the name of an interface, not 7"),
        ("allmulticast", "yes", "allmulticast is True or False, not 'yes'"),
        ("queues", 1.5, "queues is a number, 1 to 16 queues, not 1.5"),
        ("frames", True, "frames is a number, 64 to 1024 frames, not True"),
        ("backups", ("soft:eth1",), "a backup is a pair of a device and a port, not 'soft:eth1'"),
        ("rail_monitor", "10.0.0.2", "rail_monitor is a tuple of IP addresses, not '10.0.0.2'"),
        ("rail_monitor", ("10.0.0.2",), "rail_monitor is a tuple of IP addresses, not of '10.0.0"),
    ],
)
def test_a_configuration_refuses_garbage_in_words(field: str, value: Any, text: str) -> None:
    fields: dict[str, Any] = {"name": "ib0", "device": "soft:eth0", field: value}
    with pytest.raises(TypeError, match=text):
        EndpointConfig(**fields)


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"peers": "10.0.0.2"}, TypeError, "peers is a tuple of texts such as .*, not '10.0.0.2'"),
        ({"peers": (7,)}, TypeError, r"peers is a tuple of texts such as .*, not \(7,\)"),
        ({"file": "peers.txt"}, TypeError, "file is the Path of a file, not 'peers.txt'"),
        ({"port": "4790"}, TypeError, "port is the number of a TCP port, not '4790'"),
        ({"port": 65536}, UsageError, "port 65536: expected 0 to 65535"),
    ],
)
def test_the_places_of_peers_refuse_garbage_in_words(
    fields: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        MeshOptions(**fields)
