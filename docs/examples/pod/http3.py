# SPDX-License-Identifier: BSD-2-Clause
"""HTTP/3 over IP over InfiniBand, without a TUN and without any privilege.

Run: python http3.py serve 10.0.0.1/24 CERTIFICATE KEY; python http3.py get 10.0.0.2/24 CERTIFICATE 10.0.0.1
"""

import asyncio
import sys
from typing import Any

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration

from ipoibu import Endpoint, EndpointConfig
from ipoibu.aio import with_datagrams


class Http3(QuicConnectionProtocol):
    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        self.http, self.body, self.answer = H3Connection(self._quic), b"", asyncio.Event()

    def send(self, stream: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.http.send_headers(stream, [(k.encode(), v.encode()) for k, v in headers.items()])
        self.http.send_data(stream, body, end_stream=True)
        self.transmit()

    def quic_event_received(self, quic_event: Any) -> None:
        for event in self.http.handle_event(quic_event):
            if isinstance(event, HeadersReceived) and not self._quic.configuration.is_client:
                self.send(event.stream_id, {":status": "200"}, b"HTTP/3 over InfiniBand\n" * 9999)
            elif isinstance(event, DataReceived) and self._quic.configuration.is_client:
                self.body += event.data
                self.answer.set() if event.stream_ended else None


async def main(role: str, own: str, certificate: str, other: str) -> None:
    async with Endpoint(EndpointConfig("ib0", "soft:eth0")) as endpoint:
        endpoint.address_added(own)
        assert await endpoint.await_up(timeout=60)
        ours = QuicConfiguration(H3_ALPN, is_client=role == "get", cafile=certificate)
        with with_datagrams(asyncio.get_running_loop(), endpoint):
            if role == "serve":
                ours.load_cert_chain(certificate, other)
                await serve(own.partition("/")[0], 443, configuration=ours, create_protocol=Http3)
                await asyncio.Event().wait()
            async with connect(other, 443, configuration=ours, create_protocol=Http3) as client:
                asked = {":method": "GET", ":scheme": "https", ":authority": "pod", ":path": "/"}
                assert isinstance(client, Http3)
                client.send(client._quic.get_next_available_stream_id(), asked)
                await client.answer.wait()
                print(len(client.body.splitlines()), "lines:", client.body.decode()[:22])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
