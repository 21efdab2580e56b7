# SPDX-License-Identifier: BSD-2-Clause
"""The transport of `ipoibu.aio` between endpoints of this process: asyncio's semantics, and UDP's."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import pytest

from ipoibu import Closed, Endpoint, UsageError
from ipoibu.aio import DatagramTransport, create_datagram_endpoint, stats, with_datagrams
from ipoibu.base.limits import AIO_WRITE_HEADER_BYTES, AIO_WRITE_HIGH_BYTES
from tests.doubles.endpoint_pair import PATIENCE_S, Noting, hosts

Scenario = Callable[[Endpoint, Endpoint], Awaitable[None]]
BOTH: Final = pytest.mark.parametrize("prefix", ["10.0.0.", "fd00::"])


def play(scenario: Scenario) -> None:
    async def run() -> None:
        async with hosts() as (alice, bob):
            await scenario(alice, bob)

    asyncio.run(run())


async def opened(
    endpoint: Endpoint, local: Any = None, remote: Any = None, **options: Any
) -> tuple[DatagramTransport, Noting]:
    return await create_datagram_endpoint(endpoint, Noting, local, remote, **options)


@BOTH
def test_a_datagram_goes_there_and_back(prefix: str) -> None:
    async def scenario(alice: Endpoint, bob: Endpoint) -> None:
        server, heard = await opened(bob, (f"{prefix}2", 7000))
        client, answers = await opened(alice, remote=(f"{prefix}2", 7000))
        own = client.get_extra_info("sockname")
        assert own[0] == f"{prefix}1"
        assert own[1] >= 49152
        assert client.get_extra_info("peername")[:2] == (f"{prefix}2", 7000)
        assert client.get_extra_info("socket") is None
        assert server.get_extra_info("peername") is None
        for data in (b"hello", bytearray(b"bytes"), memoryview(b"view"), b""):
            client.sendto(data)
        assert await heard.received(4) == [
            (data, own) for data in (b"hello", b"bytes", b"view", b"")
        ]
        server.sendto(b"answer", own)
        assert await answers.received(1) == [(b"answer", client.get_extra_info("peername"))]
        server.close()
        client.close()
        await answers.until("lost")
        await heard.until("lost")
        assert answers.calls == ["made", "datagram", "lost"]
        assert answers.lost == [None]

    play(scenario)


@BOTH
@pytest.mark.parametrize("length", [2016, 2017, 5000, 65507])
def test_a_long_datagram_is_cut_and_put_together(prefix: str, length: int) -> None:
    async def scenario(alice: Endpoint, bob: Endpoint) -> None:
        server, heard = await opened(bob, (f"{prefix}2", 7000))
        client, _ = await opened(alice, remote=(f"{prefix}2", 7000))
        payload = bytes(number & 0xFF for number in range(length))
        client.sendto(payload)
        assert (await heard.received(1))[0][0] == payload
        client.close()
        server.close()

    play(scenario)


@BOTH
def test_too_long_a_datagram_is_an_error_as_of_the_kernel(prefix: str) -> None:
    async def scenario(alice: Endpoint, bob: Endpoint) -> None:
        client, noted = await opened(alice, remote=(f"{prefix}2", 7000))
        client.sendto(bytes(65528))
        client.configure(dont_fragment=True)
        client.sendto(bytes(3000))
        assert [it.errno for it in noted.errors] == [errno.EMSGSIZE] * 2
        client.close()

    play(scenario)


@BOTH
def test_a_connected_socket_hears_that_nobody_listens(prefix: str) -> None:
    async def scenario(alice: Endpoint, bob: Endpoint) -> None:
        other, _ = await opened(bob, (f"{prefix}2", 7001))
        client, noted = await opened(alice, remote=(f"{prefix}2", 7000))
        asked = 0
        while not noted.errors and asked < PATIENCE_S:
            # Again where no answer comes, as in test_udp_socket.py.
            client.sendto(b"anybody")
            asked += 1
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await noted.until("error")
        assert isinstance(noted.errors[0], ConnectionRefusedError)
        assert 1 <= stats(bob)["aio.no_socket"] <= asked
        client.close()
        other.close()

    play(scenario)


def test_a_connected_socket_hears_nobody_else_and_another_socket_does() -> None:
    async def scenario(alice: Endpoint, bob: Endpoint) -> None:
        remote, _ = await opened(bob, ("10.0.0.2", 7000))
        stranger, _ = await opened(bob, ("10.0.0.2", 7001))
        mine = ("10.0.0.1", 5000)
        any_, heard_by_any = await opened(alice, mine, reuse_port=True)
        connected, heard = await opened(alice, mine, ("10.0.0.2", 7000), reuse_port=True)
        stranger.sendto(b"stranger", mine)
        remote.sendto(b"peer", mine)
        assert await heard.received(1) == [(b"peer", ("10.0.0.2", 7000))]
        assert await heard_by_any.received(1) == [(b"stranger", ("10.0.0.2", 7001))]
        with pytest.raises(ValueError, match="must be None or"):
            connected.sendto(b"", ("10.0.0.2", 7001))
        for each in (remote, stranger, any_, connected):
            each.close()

    play(scenario)


def test_a_socket_that_may_send_to_all_hosts_hears_each_of_them() -> None:
    async def scenario(alice: Endpoint, bob: Endpoint) -> None:
        server, heard = await opened(bob, ("0.0.0.0", 7000))
        stranger, _ = await opened(bob, ("10.0.0.2", 7001))
        everybody = ("10.0.0.255", 7000)
        client, answers = await opened(alice, remote=everybody, allow_broadcast=True)
        assert client.get_extra_info("peername") is None
        client.sendto(b"who is there")
        ((_, (_, port)),) = await heard.received(1)
        stranger.sendto(b"I am", ("10.0.0.1", port))
        assert await answers.received(1) == [(b"I am", ("10.0.0.2", 7001))]
        with pytest.raises(ValueError, match="must be None or"):
            client.sendto(b"", ("10.0.0.2", 7001))
        for each in (server, stranger, client):
            each.close()

    play(scenario)


def test_a_port_belongs_to_one_socket() -> None:
    async def scenario(alice: Endpoint, bob: Endpoint) -> None:
        first, _ = await opened(alice, ("10.0.0.1", 5000))
        for taken in (("10.0.0.1", 5000), ("0.0.0.0", 5000), ("::", 5000)):
            with pytest.raises(OSError, match="in use") as caught:
                await opened(alice, taken)
            assert caught.value.errno == errno.EADDRINUSE
        other, _ = await opened(alice, ("fd00::1", 5000))
        apart, _ = await opened(alice, ("::", 5001), v6only=True)
        wildcard, _ = await opened(alice, ("0.0.0.0", 5001))
        first.close()
        again, _ = await opened(alice, ("10.0.0.1", 5000))
        with pytest.raises(OSError, match="Cannot assign") as caught:
            await opened(alice, ("10.0.0.9", 0))
        assert caught.value.errno == errno.EADDRNOTAVAIL
        for each in (other, apart, wildcard, again):
            each.close()

    play(scenario)


def test_a_wildcard_socket_of_ipv6_speaks_ipv4_too() -> None:
    async def scenario(alice: Endpoint, bob: Endpoint) -> None:
        server, heard = await opened(bob, ("::", 7000))
        client, answers = await opened(alice, remote=("10.0.0.2", 7000))
        client.sendto(b"four")
        data, address = (await heard.received(1))[0]
        assert (data, address[0]) == (b"four", "::ffff:10.0.0.1")
        server.sendto(b"mapped", address)
        assert (await answers.received(1))[0][0] == b"mapped"
        client.close()
        server.close()

    play(scenario)


def test_datagrams_to_ourselves_arrive() -> None:
    async def scenario(alice: Endpoint, bob: Endpoint) -> None:
        server, heard = await opened(alice, ("10.0.0.1", 7000))
        client, noted = await opened(alice, remote=("10.0.0.1", 7000))
        client.sendto(bytes(3000))
        assert heard.got == []
        assert (await heard.received(1))[0][0] == bytes(3000)
        server.close()
        client.sendto(b"anybody")
        await noted.until("error")
        assert isinstance(noted.errors[0], ConnectionRefusedError)
        client.close()

    play(scenario)


def test_all_hosts_hear_a_broadcast_of_a_socket_that_may() -> None:
    async def scenario(alice: Endpoint, bob: Endpoint) -> None:
        server, heard = await opened(bob, ("0.0.0.0", 7000))
        mine, too = await opened(alice, ("0.0.0.0", 7000), allow_broadcast=True)
        for address in ("255.255.255.255", "10.0.0.255"):
            mine.sendto(b"all", (address, 7000))
        assert [it[0] for it in await heard.received(2)] == [b"all", b"all"]
        assert [it[0] for it in await too.received(2)] == [b"all", b"all"]
        quiet, noted = await opened(alice, ("0.0.0.0", 0))
        quiet.sendto(b"all", ("255.255.255.255", 7000))
        assert [it.errno for it in noted.errors] == [errno.EACCES]
        for each in (server, mine, quiet):
            each.close()

    play(scenario)


@pytest.mark.parametrize(
    ("group", "sender"), [("239.1.2.3", "10.0.0.1"), ("ff02::1:99", "fd00::1")]
)
def test_members_alone_hear_a_group(group: str, sender: str) -> None:
    async def scenario(alice: Endpoint, bob: Endpoint) -> None:
        any_ = "0.0.0.0" if "." in group else "::"
        member, heard = await opened(bob, (any_, 7000), reuse_port=True)
        stranger, nothing = await opened(bob, (any_, 7000), reuse_port=True)
        member.join(group)
        source, own = await opened(alice, (any_, 7000))
        source.join(group)
        source.sendto(b"one", (group, 7000))
        data, address = (await heard.received(1))[0]
        assert (data, address[0]) == (b"one", sender)
        assert (await own.received(1))[0][0] == b"one"
        source.configure(multicast_loop=False)
        member.block(group, sender)
        witness, seen = await opened(bob, (any_, 7000), reuse_port=True)
        witness.join(group)
        source.sendto(b"two", (group, 7000))
        await seen.received(1)
        stranger.join(group, sender)
        source.sendto(b"three", (group, 7000))
        assert [it[0] for it in await nothing.received(1)] == [b"three"]
        member.unblock(group, sender)
        source.sendto(b"four", (group, 7000))
        assert [it[0] for it in await heard.received(2)] == [b"one", b"four"]
        assert [it[0] for it in own.got] == [b"one"]
        for each in (member, stranger, source, witness):
            each.close()

    play(scenario)


def test_a_full_queue_pauses_the_protocol_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(alice: Endpoint, bob: Endpoint) -> None:
        server, heard = await opened(bob, ("10.0.0.2", 7000))
        client, noted = await opened(alice, remote=("10.0.0.2", 7000))
        client.sendto(b"first")  # while the neighbour is unknown, a burst would be lost
        await heard.received(1)
        true_send = client._socket.send
        monkeypatch.setattr(client._socket, "send", lambda data, address: False)
        client.set_write_buffer_limits(high=250, low=100)
        for number in range(3):
            client.sendto(bytes([number]) * 100)
        assert client.get_write_buffer_size() == 3 * (100 + AIO_WRITE_HEADER_BYTES)
        assert client.get_write_buffer_limits() == (100, 250)
        assert noted.calls[-1] == "pause"
        client.close()
        assert client.is_closing()
        monkeypatch.setattr(client._socket, "send", true_send)
        await noted.until("resume", "lost")
        assert [it[0][:1] for it in await heard.received(4)] == [b"f", b"\0", b"\1", b"\2"]
        server.close()

    play(scenario)


def test_empty_datagrams_that_wait_pause_the_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(alice: Endpoint, bob: Endpoint) -> None:
        client, noted = await opened(alice, remote=("10.0.0.2", 7000))
        monkeypatch.setattr(client._socket, "send", lambda data, address: False)
        for _ in range(AIO_WRITE_HIGH_BYTES // AIO_WRITE_HEADER_BYTES + 1):
            client.sendto(b"")
        assert noted.calls == ["made", "pause"]
        client.abort()

    play(scenario)


def test_abort_forgets_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(alice: Endpoint, bob: Endpoint) -> None:
        client, noted = await opened(alice, remote=("10.0.0.2", 7000))
        monkeypatch.setattr(client._socket, "send", lambda data, address: False)
        client.sendto(b"waits")
        client.abort()
        client.abort()
        client.sendto(b"late")
        await noted.until("lost")
        assert client.get_write_buffer_size() == 0
        assert noted.calls == ["made", "lost"]

    play(scenario)


def test_a_protocol_hears_of_its_transport_before_a_datagram_that_lay_there() -> None:
    async def scenario(alice: Endpoint, bob: Endpoint) -> None:
        client, _ = await opened(alice, remote=("10.0.0.2", 7000))
        client.sendto(b"early")
        async with asyncio.timeout(PATIENCE_S):
            while not bob.packet_queue.arm():
                await asyncio.sleep(0.01)
        server, heard = await opened(bob, ("10.0.0.2", 7000))
        await heard.received(1)
        assert heard.calls == ["made", "datagram"]
        client.close()
        server.close()

    play(scenario)


def test_a_failing_protocol_keeps_its_transport() -> None:
    async def scenario(alice: Endpoint, bob: Endpoint) -> None:
        told: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: told.append(context["message"]))

        class Failing(Noting):
            def datagram_received(self, data: bytes, addr: Any) -> None:
                super().datagram_received(data, addr)
                if data == b"bad":
                    raise RuntimeError("cannot read it")

        server, heard = await create_datagram_endpoint(bob, Failing, ("10.0.0.2", 7000))
        client, _ = await opened(alice, remote=("10.0.0.2", 7000))
        client.sendto(b"bad")
        client.sendto(b"good")
        await heard.received(2)
        assert told == ["datagram_received() failed"]
        client.close()
        server.close()

    play(scenario)


def test_sockets_hear_that_their_endpoint_is_closed() -> None:
    async def scenario(alice: Endpoint, bob: Endpoint) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        _, idle = await opened(alice, ("10.0.0.1", 7000))
        client, noted = await opened(alice, remote=("10.0.0.2", 7000))
        await asyncio.to_thread(alice.close)
        client.sendto(b"late")
        await noted.until("lost")
        await idle.until("lost")
        assert all(isinstance(it.lost[0], Closed) for it in (idle, noted))
        with pytest.raises(Closed):
            await opened(alice, ("10.0.0.1", 7000))

    play(scenario)


def test_a_failed_factory_and_a_cancelled_call_leave_no_socket() -> None:
    async def scenario(alice: Endpoint, bob: Endpoint) -> None:
        def failing() -> Noting:
            raise RuntimeError("no protocol")

        with pytest.raises(RuntimeError):
            await create_datagram_endpoint(alice, failing, ("10.0.0.1", 7000))
        task = asyncio.create_task(opened(alice, ("10.0.0.1", 7000)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        transport, _ = await opened(alice, ("10.0.0.1", 7000))
        transport.close()

    play(scenario)


def test_an_unclosed_transport_warns() -> None:
    async def scenario(alice: Endpoint, bob: Endpoint) -> None:
        transport, _ = await opened(alice, ("10.0.0.1", 7000))
        with pytest.warns(ResourceWarning, match="unclosed transport"):
            transport.__del__()
        transport.close()

    play(scenario)
    gc.collect()


def test_arguments_are_checked_as_by_asyncio() -> None:
    async def scenario(alice: Endpoint, bob: Endpoint) -> None:
        with pytest.raises(ValueError, match="unexpected address family"):
            await opened(alice)
        with pytest.raises(TypeError, match="2-tuple"):
            await opened(alice, "10.0.0.1")
        with pytest.raises(ValueError, match="can not get address information"):
            await opened(alice, ("10.0.0.1", 0), ("fd00::2", 7000))
        transport, noted = await opened(alice, family=socket.AF_INET)
        assert transport.get_extra_info("sockname")[0] == "0.0.0.0"
        with pytest.raises(TypeError, match="not str"):
            transport.sendto("text", ("10.0.0.2", 7000))
        transport.sendto(b"nowhere")
        transport.sendto(b"port 0", ("10.0.0.2", 0))
        assert [it.errno for it in noted.errors] == [errno.EDESTADDRREQ, errno.EINVAL]
        with pytest.raises(ValueError, match="must be >="):
            transport.set_write_buffer_limits(high=1, low=2)
        with pytest.raises(UsageError, match="hop_limit 256"):
            transport.configure(hop_limit=256)
        transport.close()

    play(scenario)


def test_an_endpoint_serves_one_loop() -> None:
    async def scenario(alice: Endpoint, bob: Endpoint) -> None:
        transport, _ = await opened(alice, ("10.0.0.1", 7000))
        with pytest.raises(UsageError, match="one event loop"):
            await asyncio.to_thread(asyncio.run, opened(alice, ("10.0.0.1", 7001)))
        transport.close()

    play(scenario)


def test_of_blocks_in_each_other_the_innermost_lends_its_sockets() -> None:
    async def scenario(alice: Endpoint, bob: Endpoint) -> None:
        loop = asyncio.get_running_loop()

        async def opener() -> str:
            transport, _ = await loop.create_datagram_endpoint(Noting, ("0.0.0.0", 0))
            endpoint = transport.get_extra_info("endpoint")
            transport.close()
            return "kernel" if endpoint is None else str(endpoint.addresses()[0].ip)

        with with_datagrams(loop, alice):
            with with_datagrams(loop, bob):
                assert await opener() == "10.0.0.2"
            assert await opener() == "10.0.0.1"
        assert await opener() == "kernel"

    play(scenario)


def test_the_loop_lends_its_sockets_to_an_unchanged_library() -> None:
    async def scenario(alice: Endpoint, bob: Endpoint) -> None:
        loop = asyncio.get_running_loop()
        server, heard = await opened(bob, ("10.0.0.2", 7000))
        with with_datagrams(loop, alice):
            client, _ = await loop.create_datagram_endpoint(Noting, remote_addr=("10.0.0.2", 7000))
            assert isinstance(client, DatagramTransport)
            client.sendto(b"one")
            kernel, _ = await loop.create_datagram_endpoint(Noting, ("127.0.0.1", 0))
            assert kernel.get_extra_info("socket") is not None
            sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.bind(("::", 0))
            port = sock.getsockname()[1]
            lent, _ = await loop.create_datagram_endpoint(Noting, sock=sock)
            assert lent.get_extra_info("sockname")[:2] == ("::", port)
            assert sock.fileno() == -1
            lent.sendto(b"two", ("::ffff:10.0.0.2", 7000, 0, 0))
        assert [it[0] for it in await heard.received(2)] == [b"one", b"two"]
        assert "create_datagram_endpoint" not in vars(loop)
        for each in (server, client, kernel, lent):
            each.close()

    play(scenario)


def test_a_socket_that_is_handed_over_takes_no_other_option() -> None:
    async def scenario(alice: Endpoint, bob: Endpoint) -> None:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, with_datagrams(loop, alice):
            for option in ({"remote_addr": ("10.0.0.2", 7)}, {"reuse_port": True}, {"proto": 17}):
                with pytest.raises(ValueError, match="can not be"):
                    await loop.create_datagram_endpoint(Noting, sock=sock, **option)

    play(scenario)
