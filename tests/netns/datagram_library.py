# SPDX-License-Identifier: BSD-2-Clause
"""A program with a library that speaks UDP by asyncio, over the kernel's sockets or over an endpoint's.

python datagram_library.py LIBRARY ROLE STACK OWN PEER [KEY=VALUE...]

LIBRARY: quic, http3, webrtc (data channels), dns, coap, or plain (datagrams of all lengths); ROLE: server
or client; STACK: kernel or aio, which opens an endpoint on soft:eth0 with the address OWN. The server
prints "ready", and ends with its input; the client prints what it got. KEY=VALUE: `mode` and `loss` of the
endpoint, `cert` and `key` of quic and http3.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from ipaddress import ip_interface
from typing import Any

PORT = 7000
PATIENCE_S = 120.0
LENGTHS = (0, 1, 1400, 2016, 2017, 9000, 40000, 65507)
BODY = b"".join(hashlib.sha256(bytes([number & 0xFF])).digest() for number in range(4096))


@contextlib.asynccontextmanager
async def stack(name: str, own: str, options: dict[str, str]) -> AsyncIterator[None]:
    if name == "kernel":
        yield
        return
    from ipoibu import Endpoint, EndpointConfig
    from ipoibu.aio import with_datagrams
    from ipoibu.fabric.faults import FaultSpec

    faults = FaultSpec(loss=float(options["loss"])) if "loss" in options else None
    mode = options.get("mode", "datagram")
    config = EndpointConfig("ib0", "soft:eth0", mode=mode, faults=faults)
    async with Endpoint(config) as endpoint:
        endpoint.address_added(own)
        assert await endpoint.await_up(PATIENCE_S)
        with with_datagrams(asyncio.get_running_loop(), endpoint):
            yield


async def plain_server(own: str, options: dict[str, str]) -> None:
    class Echo(asyncio.DatagramProtocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes, addr: Any) -> None:
            self.transport.sendto(data, addr)

    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(Echo, local_addr=(own, PORT))


async def plain_client(own: str, peer: str, options: dict[str, str]) -> str:
    got: asyncio.Queue[bytes] = asyncio.Queue()

    class Client(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            got.put_nowait(data)

    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Client, remote_addr=(peer, PORT))
    for length in LENGTHS:
        data = (BODY + BODY)[:length]
        if not data and sys.version_info < (3, 13):
            continue  # asyncio's transport sends none
        while True:  # UDP may lose one
            transport.sendto(data)
            with contextlib.suppress(TimeoutError):
                while await asyncio.wait_for(got.get(), 2) != data:
                    pass
                break
    transport.close()
    return "echoed"


async def quic_server(own: str, options: dict[str, str]) -> None:
    from aioquic.asyncio.server import serve
    from aioquic.quic.configuration import QuicConfiguration

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(hashlib.sha256(await reader.read()).hexdigest().encode() + BODY)
        writer.write_eof()

    def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.ensure_future(answer(reader, writer)))

    tasks: list[asyncio.Future[None]] = []
    configuration = QuicConfiguration(is_client=False)
    configuration.load_cert_chain(options["cert"], options["key"])
    await serve(own, PORT, configuration=configuration, stream_handler=handle)


async def quic_client(own: str, peer: str, options: dict[str, str]) -> str:
    from aioquic.asyncio.client import connect
    from aioquic.quic.configuration import QuicConfiguration

    configuration = QuicConfiguration(is_client=True)
    configuration.load_verify_locations(options["cert"])
    configuration.server_name = "example.test"
    async with connect(peer, PORT, configuration=configuration) as connection:
        reader, writer = await connection.create_stream()
        writer.write(BODY)
        writer.write_eof()
        answer = await reader.read()
    digest = hashlib.sha256(BODY).hexdigest().encode()
    return "both ways" if answer == digest + BODY else f"{len(answer)} bytes"


def http3_page() -> bytes:
    return b"".join(BODY[number:] + BODY[:number] for number in range(8))  # 1 MiB


async def http3_server(own: str, options: dict[str, str]) -> None:
    from aioquic.asyncio.protocol import QuicConnectionProtocol
    from aioquic.asyncio.server import serve
    from aioquic.h3.connection import H3_ALPN, H3Connection
    from aioquic.h3.events import HeadersReceived
    from aioquic.quic.configuration import QuicConfiguration

    class Server(QuicConnectionProtocol):
        def __init__(self, *args: Any, **rest: Any) -> None:
            super().__init__(*args, **rest)
            self._http = H3Connection(self._quic)

        def quic_event_received(self, event: Any) -> None:
            for each in self._http.handle_event(event):
                if isinstance(each, HeadersReceived):
                    self._answer(each.stream_id, dict(each.headers))

        def _answer(self, stream: int, asked: dict[bytes, bytes]) -> None:
            found = asked[b":method"] == b"GET" and asked[b":path"] == b"/page"
            page = http3_page() if found else b""
            digest = hashlib.sha256(page).hexdigest().encode()
            headers = [(b":status", b"200" if found else b"404"), (b"etag", digest)]
            self._http.send_headers(stream, headers)
            self._http.send_data(stream, page, end_stream=True)
            self.transmit()

    configuration = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN)
    configuration.load_cert_chain(options["cert"], options["key"])
    await serve(own, PORT, configuration=configuration, create_protocol=Server)


async def http3_client(own: str, peer: str, options: dict[str, str]) -> str:
    from aioquic.asyncio.client import connect
    from aioquic.asyncio.protocol import QuicConnectionProtocol
    from aioquic.h3.connection import H3_ALPN, H3Connection
    from aioquic.h3.events import DataReceived, HeadersReceived
    from aioquic.quic.configuration import QuicConfiguration

    class Client(QuicConnectionProtocol):
        def __init__(self, *args: Any, **rest: Any) -> None:
            super().__init__(*args, **rest)
            self._http = H3Connection(self._quic)
            self._answers: dict[int, asyncio.Future[None]] = {}
            self.headers: dict[bytes, bytes] = {}
            self.body = b""

        async def get(self, path: bytes) -> None:
            stream = self._quic.get_next_available_stream_id()
            done = self._answers[stream] = asyncio.get_running_loop().create_future()
            asked = {b":method": b"GET", b":scheme": b"https", b":authority": b"example.test"}
            asked[b":path"] = path
            self._http.send_headers(stream, list(asked.items()), end_stream=True)
            self.transmit()
            await done

        def quic_event_received(self, event: Any) -> None:
            for each in self._http.handle_event(event):
                if isinstance(each, HeadersReceived):
                    self.headers = dict(each.headers)
                elif isinstance(each, DataReceived):
                    self.body += each.data
                    if each.stream_ended:
                        self._answers[each.stream_id].set_result(None)

    configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN)
    configuration.load_verify_locations(options["cert"])
    configuration.server_name = "example.test"
    connecting = connect(peer, PORT, configuration=configuration, create_protocol=Client)
    async with connecting as connection:
        assert isinstance(connection, Client)
        await connection.get(b"/page")
    digest = hashlib.sha256(connection.body).hexdigest()
    is_whole = connection.headers == {b":status": b"200", b"etag": digest.encode()}
    return f"{len(connection.body)} bytes" if is_whole else repr(connection.headers)


def webrtc_peer(own: str) -> Any:
    """Return a peer connection that knows this address alone: aioice asks the kernel for addresses."""
    import aioice.ice
    from aiortc import RTCConfiguration, RTCPeerConnection

    aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: [own]
    peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    kept.append(peer)
    return peer


def webrtc_described(peer: Any) -> bytes:
    description = peer.localDescription
    return json.dumps([description.sdp, description.type]).encode()


def send_in_pieces(channel: Any, data: bytes) -> None:
    for start in range(0, len(data), 16384):
        channel.send(data[start : start + 16384])


async def webrtc_server(own: str, options: dict[str, str]) -> None:
    from aiortc import RTCSessionDescription

    class Introducer(asyncio.DatagramProtocol):
        """Answers each offer, and an offer that comes again by the same answer."""

        answers: dict[bytes, asyncio.Task[bytes]]

        def connection_made(self, transport: Any) -> None:
            self.transport = transport
            self.answers = {}

        def datagram_received(self, data: bytes, addr: Any) -> None:
            if data not in self.answers:
                self.answers[data] = asyncio.ensure_future(self.answer(data))
            answer = self.answers[data]
            answer.add_done_callback(lambda done: self.transport.sendto(done.result(), addr))

        async def answer(self, offer: bytes) -> bytes:
            peer = webrtc_peer(own)
            peer.on("datachannel", self.talk)
            await peer.setRemoteDescription(RTCSessionDescription(*json.loads(offer)))
            await peer.setLocalDescription(await peer.createAnswer())
            return webrtc_described(peer)

        def talk(self, channel: Any) -> None:
            channel.on("message", partial(self.take, channel, bytearray()))

        def take(self, channel: Any, got: bytearray, piece: bytes) -> None:
            got += piece
            if len(got) == len(BODY):
                channel.send(hashlib.sha256(got).hexdigest())
                send_in_pieces(channel, BODY)

    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(Introducer, local_addr=(own, PORT))


async def webrtc_client(own: str, peer: str, options: dict[str, str]) -> str:
    from aiortc import RTCSessionDescription

    ours = webrtc_peer(own)
    channel = ours.createDataChannel("test")
    digests: list[str] = []
    got, done = bytearray(), asyncio.Event()

    def take(piece: bytes | str) -> None:
        if isinstance(piece, str):
            digests.append(piece)
            return
        got.extend(piece)
        if len(got) == len(BODY):
            done.set()

    channel.on("open", lambda: send_in_pieces(channel, BODY))
    channel.on("message", take)
    await ours.setLocalDescription(await ours.createOffer())
    answer = await ask(peer, webrtc_described(ours))
    await ours.setRemoteDescription(RTCSessionDescription(*json.loads(answer)))
    await done.wait()
    await ours.close()
    is_right = digests == [hashlib.sha256(BODY).hexdigest()] and got == BODY
    return "both ways" if is_right else f"{len(got)} bytes, {digests}"


async def ask(peer: str, question: bytes) -> bytes:
    """Send a datagram again until an answer comes, which is returned."""
    got = asyncio.get_running_loop().create_future()

    class Asking(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            if not got.done():
                got.set_result(data)

    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Asking, remote_addr=(peer, PORT))
    while not got.done():
        transport.sendto(question)
        await asyncio.wait((got,), timeout=2)
    transport.close()
    return bytes(got.result())


async def dns_server(own: str, options: dict[str, str]) -> None:
    import dns.message
    import dns.rrset

    class Server(asyncio.DatagramProtocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes, addr: Any) -> None:
            query = dns.message.from_wire(data)
            answer = dns.message.make_response(query)
            name = query.question[0].name
            texts = [f'"{"x" * 200}{number}"' for number in range(15)]
            answer.answer.append(dns.rrset.from_text(name, 60, "IN", "TXT", *texts))
            self.transport.sendto(answer.to_wire(max_size=65535), addr)

    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(Server, local_addr=(own, PORT))


async def dns_client(own: str, peer: str, options: dict[str, str]) -> str:
    import dns.asyncquery
    import dns.exception
    import dns.message

    query = dns.message.make_query("a.example.", "TXT", use_edns=0, payload=8192)
    while True:
        with contextlib.suppress(dns.exception.Timeout):
            answer = await dns.asyncquery.udp(query, peer, port=PORT, timeout=2)
            return f"{len(answer.answer[0])} texts"


async def coap_server(own: str, options: dict[str, str]) -> None:
    import aiocoap
    from aiocoap.resource import Resource, Site

    class Echo(Resource):  # type: ignore[misc]
        async def render_put(self, request: Any) -> Any:
            return aiocoap.Message(code=aiocoap.CHANGED, payload=request.payload[::-1])

    site = Site()
    site.add_resource(["echo"], Echo())
    kept.append(await aiocoap.Context.create_server_context(site, bind=(own, 5683)))


async def coap_client(own: str, peer: str, options: dict[str, str]) -> str:
    import aiocoap

    context = await aiocoap.Context.create_client_context()
    host = f"[{peer}]" if ":" in peer else peer
    message = aiocoap.Message(code=aiocoap.PUT, uri=f"coap://{host}/echo", payload=BODY[:5000])
    answer = await context.request(message).response
    await context.shutdown()
    return "in blocks" if answer.payload == BODY[:5000][::-1] else repr(answer)


kept: list[object] = []  # what would end with its last name
SERVERS: dict[str, Callable[..., Awaitable[None]]] = {
    "plain": plain_server,
    "quic": quic_server,
    "http3": http3_server,
    "webrtc": webrtc_server,
    "dns": dns_server,
    "coap": coap_server,
}
CLIENTS: dict[str, Callable[..., Awaitable[str]]] = {
    "plain": plain_client,
    "quic": quic_client,
    "http3": http3_client,
    "webrtc": webrtc_client,
    "dns": dns_client,
    "coap": coap_client,
}


async def main(library: str, role: str, stack_name: str, own: str, peer: str, *rest: str) -> None:
    options = dict(each.split("=", 1) for each in rest)
    os.environ["AIOCOAP_CLIENT_TRANSPORT"] = "simple6"
    os.environ["AIOCOAP_SERVER_TRANSPORT"] = "simplesocketserver"
    address = str(ip_interface(own).ip)
    async with stack(stack_name, own, options), asyncio.timeout(PATIENCE_S):
        if role == "client":
            print(await CLIENTS[library](address, peer, options), flush=True)
        else:
            await SERVERS[library](address, options)
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
