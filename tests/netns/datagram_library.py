# SPDX-License-Identifier: BSD-2-Clause
"""A program with a library that speaks UDP by asyncio, over the kernel's sockets or over an endpoint's.

python datagram_library.py LIBRARY ROLE STACK OWN PEER [KEY=VALUE...]

LIBRARY: quic, dns, coap, or plain (datagrams of all lengths); ROLE: server or client; STACK: kernel or aio,
which opens an endpoint on soft:eth0 with the address OWN. The server prints "ready", and ends with its
input; the client prints what it got. KEY=VALUE: `mode` and `loss` of the endpoint, `cert` and `key` of quic.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
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
    "dns": dns_server,
    "coap": coap_server,
}
CLIENTS: dict[str, Callable[..., Awaitable[str]]] = {
    "plain": plain_client,
    "quic": quic_client,
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
