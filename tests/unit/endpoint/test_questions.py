# SPDX-License-Identifier: BSD-2-Clause
"""Waiting for an endpoint: for its link and addresses, for a peer, for batches of packets, for its end."""

from __future__ import annotations

import asyncio
import ipaddress
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ipoibu import Closed, Endpoint, EndpointConfig, Gid, UsageError
from ipoibu._core import MemorySwitch
from ipoibu.fabric.memory import MemoryPort
from ipoibu.proto.engine import AddressInfo
from ipoibu.proto.neigh.dad import State

PACKET = bytes.fromhex("45000019000000004011 0000 0a000001 0a000002") + b"hello"


class Hosts:
    """Two endpoints that are not open yet, 10.0.0.1 and 10.0.0.2."""

    def __init__(self) -> None:
        switch = MemorySwitch(7)
        self.ports = [MemoryPort(switch, Gid.parse(f"fe80::{n}")) for n in (1, 2)]
        self.one, self.two = (
            Endpoint(EndpointConfig(f"h{n}", "memory"), port=port)
            for n, port in enumerate(self.ports, 1)
        )


@pytest.fixture
def hosts() -> Hosts:
    return Hosts()


def test_wait_up_returns_when_the_addresses_are_checked(hosts: Hosts) -> None:
    with hosts.one as host:
        host.address_added("10.0.0.1/24")
        host.address_added("fd00::1/64")
        assert host.wait_up(timeout=60)
        shown = host.show()
        assert shown["state"] == "up"
        assert "tentative" not in {entry["state"] for entry in shown["addresses"]}
        assert host.wait_up(timeout=0)


def test_wait_up_tells_that_the_link_is_not_up_in_time(hosts: Hosts) -> None:
    with hosts.one as host:
        assert host.wait_up(timeout=60)
        hosts.ports[0].up = False
        deadline = time.monotonic() + 60
        while host.show()["state"] != "down":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert not host.wait_up(timeout=0.01)
        assert not asyncio.run(host.await_up(timeout=0.01))


def test_async_with_opens_pings_receives_and_closes(hosts: Hosts) -> None:
    async def main() -> list[bytes]:
        async with hosts.one as one, hosts.two as two:
            one.address_added("10.0.0.1/24")
            two.address_added("10.0.0.2/24")
            assert await one.await_up(timeout=60)
            assert await two.await_up(timeout=60)
            answer = await one.aping("10.0.0.2", timeout=60)
            assert answer["hwaddr"] == str(two.hwaddr)
            one.set_neighbour("10.0.0.2", answer["hwaddr"])
            assert one.ping(str(two.hwaddr), timeout=60)["ip"] == "10.0.0.2"
            await one.asend([PACKET])
            async for packets in two.batches():
                return packets
        return []

    assert asyncio.run(main()) == [PACKET]
    for host in (hosts.one, hosts.two):
        with pytest.raises(Closed):
            host.show()


def test_batches_end_when_the_endpoint_is_closed(hosts: Hosts) -> None:
    async def main() -> int:
        async with hosts.one as host:
            closing = asyncio.get_running_loop().run_in_executor(None, host.close)
            count = 0
            async for _ in host.batches():
                count += 1
            await closing
            return count

    assert asyncio.run(main()) == 0


def test_frames_come_in_batches_too(hosts: Hosts) -> None:
    async def main() -> bytes:
        async with hosts.one as one, hosts.two as two:
            one.address_added("10.0.0.1/24")
            two.address_added("10.0.0.2/24")
            await one.asend([PACKET])
            async for frames in two.frame_batches():
                return bytes(frames[0])
        return b""

    assert asyncio.run(main()) == PACKET


@pytest.mark.parametrize(
    "ask", [lambda host: host.ping("10.0.0.9", 3600), lambda host: host.wait_up(3600)]
)
def test_a_call_that_waits_ends_with_the_endpoint(
    hosts: Hosts, ask: Callable[[Endpoint], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    host, ended = hosts.one, list[BaseException]()
    host.open()
    host.address_added("10.0.0.1/24")
    assert host.wait_up(timeout=60)

    def wait() -> None:
        try:
            ask(host)
        except Closed as error:
            ended.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    interface = host._opened()
    never = AddressInfo(ipaddress.ip_address("10.0.0.3"), State.TENTATIVE)
    monkeypatch.setattr(interface.engine, "addresses", lambda: [never])
    thread.start()
    deadline = time.monotonic() + 60
    while not interface._questions:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    host.close()
    thread.join(60)
    assert not thread.is_alive()
    (error,) = ended
    assert "h1: the endpoint closed meanwhile" in str(error)


def test_a_cancelled_wait_stays_a_cancellation(hosts: Hosts) -> None:
    async def main() -> None:
        async with hosts.one as host:
            host.address_added("10.0.0.1/24")
            assert await host.await_up(timeout=60)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await host.aping("10.0.0.9", timeout=3600)

    asyncio.run(main())


@pytest.mark.parametrize("target", ["10.0.0", "00:6d:41:eb:fe:80:00:00:00", "host"])
def test_text_that_is_no_address_is_refused_in_words(hosts: Hosts, target: str) -> None:
    with hosts.one as host, pytest.raises(UsageError, match="is not a"):
        host.ping(target)


def test_groups_proxies_and_partitions_may_be_text(hosts: Hosts) -> None:
    with hosts.one as host:
        host.memberships_changed(["239.1.2.3", "ff02::4242"])
        joined = {ip for group in host.groups() for ip in group["groups"]}
        assert {"239.1.2.3", "ff02::4242"} <= joined
        host.proxies_changed(["10.0.0.77"])
        host.arp_changed(["10.9.0.1"])
        with pytest.raises(TypeError, match=r"write \['239.1.2.3'\]"):
            host.memberships_changed("239.1.2.3")
        with pytest.raises(UsageError, match="is not a multicast group"):
            host.leave("10.0.0.1")
        assert host.child("0x8001").config.name == "h1.8001"
        assert host.child(0x8002).config.pkey == 0x8002
        with pytest.raises(UsageError, match="is not a P_Key"):
            host.child(1 << 16)
