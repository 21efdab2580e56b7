# SPDX-License-Identifier: BSD-2-Clause
"""Blocking sockets on endpoints of this process: batches, time-outs, errors, and several threads."""

from __future__ import annotations

import asyncio
import errno
import gc
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ipoibu import Closed, Endpoint, EndpointConfig, Gid, UsageError
from ipoibu.aio import UdpSocket, create_datagram_endpoint, stats
from ipoibu.fabric.memory import MemoryPort, MemorySwitch
from tests.doubles.endpoint_pair import PATIENCE_S, Noting


@pytest.fixture
def pair() -> Iterator[tuple[Endpoint, Endpoint]]:
    switch = MemorySwitch()
    made = []
    for number in (1, 2):
        port = MemoryPort(switch, Gid.parse(f"fe80::{number}"))
        config = EndpointConfig(f"host{number}", "memory", dad_ipv4="off", dad_ipv6="off")
        endpoint = Endpoint(config, port=port)
        endpoint.open()
        endpoint.address_added(f"10.0.0.{number}/24")
        endpoint.address_added(f"fd00::{number}/64")
        made.append(endpoint)
    for endpoint in made:
        assert endpoint.wait_up(PATIENCE_S)
    yield made[0], made[1]
    for endpoint in made:
        endpoint.close()


def received(socket: UdpSocket, count: int) -> list[bytes]:
    got: list[bytes] = []
    while len(got) < count:
        more = socket.recv_many(timeout=PATIENCE_S)
        assert more
        got += [data for data, _ in more]
    return got


@pytest.mark.parametrize("prefix", ["10.0.0.", "fd00::"])
def test_batches_go_there_and_back(pair: tuple[Endpoint, Endpoint], prefix: str) -> None:
    alice, bob = pair
    there = (f"{prefix}2", 7000)
    with UdpSocket(bob, there) as server, UdpSocket(alice, remote_addr=there) as client:
        client.send(b"first")
        data, address = server.recvfrom(PATIENCE_S)
        assert (data, address) == (b"first", client.getsockname())
        batch = [bytes([number]) * (10 * number) for number in range(200)]
        assert client.send_many(batch) == 200
        assert received(server, 200) == batch
        assert server.send_many([bytearray(b"one"), memoryview(b"two")], address) == 2
        assert received(client, 2) == [b"one", b"two"]
        long = bytes(5000)
        client.send_many([b"short", long])
        assert received(server, 2) == [b"short", long]
        assert client.getpeername()[:2] == there


def test_a_call_ends_after_its_time(pair: tuple[Endpoint, Endpoint]) -> None:
    with UdpSocket(pair[0], ("10.0.0.1", 7000)) as socket:
        assert socket.recv_many(timeout=0) == []
        assert socket.recv_many(timeout=0.01) == []
        with pytest.raises(TimeoutError):
            socket.recv(timeout=0.01)
        with pytest.raises(OSError, match="not connected") as caught:
            socket.getpeername()
        assert caught.value.errno == errno.ENOTCONN


def ask_until_refused(client: UdpSocket) -> None:
    """Ask again where no answer comes: an ICMP error begins no resolution (`tx_error_unresolved`), and the
    datagram may overtake the ARP request by which the other engine learns our address."""
    end_s = time.monotonic() + PATIENCE_S
    while True:
        client.send(b"anybody")
        try:
            with pytest.raises(ConnectionRefusedError):
                client.recv(1.0)
            return
        except TimeoutError:
            if time.monotonic() > end_s:
                raise


def test_a_connected_socket_hears_that_nobody_listens(pair: tuple[Endpoint, Endpoint]) -> None:
    alice, bob = pair
    ends = threading.Event()
    with (
        UdpSocket(bob, ("10.0.0.2", 7001)) as other,
        UdpSocket(alice, remote_addr=("10.0.0.2", 7000)) as client,
        ThreadPoolExecutor(1) as pool,
    ):

        def answer() -> None:  # a thread that waits in a socket does
            while not ends.is_set():
                assert other.recv_many(timeout=0.05) == []

        answering = pool.submit(answer)
        try:
            ask_until_refused(client)
        except TimeoutError:
            seen = [(it.stats(), it.neighbours(), stats(it)) for it in pair]
            pytest.fail(f"nothing came: {seen}, {answering}")
        finally:
            ends.set()
        answering.result(PATIENCE_S)


def test_one_of_two_waiting_threads_takes_the_packets_of_both(
    pair: tuple[Endpoint, Endpoint],
) -> None:
    alice, bob = pair
    with (
        UdpSocket(bob, ("10.0.0.2", 7000)) as one,
        UdpSocket(bob, ("10.0.0.2", 7001)) as two,
        UdpSocket(alice) as client,
        ThreadPoolExecutor(2) as pool,
    ):
        first = pool.submit(received, one, 3)
        second = pool.submit(received, two, 3)
        for number in range(3):
            for port in (7000, 7001):
                client.sendto(bytes([number]), ("10.0.0.2", port))
        for each in (first, second):
            assert each.result(PATIENCE_S) == [b"\0", b"\1", b"\2"]


def test_what_nobody_reads_is_dropped_and_counted(pair: tuple[Endpoint, Endpoint]) -> None:
    alice, bob = pair
    with (
        UdpSocket(bob, ("10.0.0.2", 7000)) as full,
        UdpSocket(bob, ("10.0.0.2", 7001)) as read,
        UdpSocket(alice) as client,
    ):
        client.sendto(b"first", ("10.0.0.2", 7001))  # resolves the neighbour
        received(read, 1)
        for _ in range(400):
            client.sendto(bytes(1000), ("10.0.0.2", 7000))
        client.sendto(b"last", ("10.0.0.2", 7001))
        assert received(read, 1) == [b"last"]
        kept = len(full.recv_many(1000, timeout=0))
        assert kept == 212_992 // 1512
        assert stats(bob)["aio.receive_full"] == 400 - kept


def test_closing_ends_a_wait(pair: tuple[Endpoint, Endpoint]) -> None:
    socket = UdpSocket(pair[0], ("10.0.0.1", 7000))
    began = threading.Event()

    def wait() -> None:
        began.set()
        socket.recv()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        assert began.wait(PATIENCE_S)
        socket.close()
        with pytest.raises(OSError, match="Bad file") as caught:
            waiting.result(PATIENCE_S)
    assert caught.value.errno == errno.EBADF
    with pytest.raises(OSError, match="Bad file"):
        socket.sendto(b"late", ("10.0.0.2", 7000))
    socket.close()


def test_closing_the_endpoint_ends_a_wait(pair: tuple[Endpoint, Endpoint]) -> None:
    with UdpSocket(pair[0], ("10.0.0.1", 7000)) as socket, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(socket.recv)
        pair[0].close()
        with pytest.raises(Closed):
            waiting.result(PATIENCE_S)


@pytest.mark.filterwarnings("ignore:unclosed transport")
def test_a_loop_that_has_ended_frees_its_sockets(pair: tuple[Endpoint, Endpoint]) -> None:
    async def open_one() -> None:
        transport, _ = await create_datagram_endpoint(pair[0], Noting, ("10.0.0.1", 7000))
        transport.join("239.1.2.3")

    asyncio.run(open_one())
    asyncio.run(open_one())
    with UdpSocket(pair[0], ("10.0.0.1", 7000)) as socket:
        assert socket.getsockname() == ("10.0.0.1", 7000)
    gc.collect()  # the transports warn


def test_an_endpoint_has_blocking_sockets_or_those_of_a_loop(
    pair: tuple[Endpoint, Endpoint],
) -> None:
    async def open_one() -> None:
        transport, _ = await create_datagram_endpoint(pair[0], Noting, ("10.0.0.1", 7001))
        with pytest.raises(UsageError, match="blocking ones"):
            UdpSocket(pair[0])
        transport.close()
        await asyncio.sleep(0)

    with UdpSocket(pair[0], ("10.0.0.1", 7000)):
        with pytest.raises(UsageError, match="this event loop"):
            asyncio.run(open_one())
        with pytest.raises(OSError, match="in use"):
            UdpSocket(pair[0], ("10.0.0.1", 7000))
    asyncio.run(open_one())
    with UdpSocket(pair[0], ("10.0.0.1", 7001)) as again:
        assert again.getsockname() == ("10.0.0.1", 7001)
