# SPDX-License-Identifier: BSD-2-Clause
"""Ask a host of a link without multicast who listens there, without becoming its peer."""

from __future__ import annotations

import secrets
import socket

from ipoibu.base.errors import BadFrame
from ipoibu.fabric.mesh.peer_key import PeerKey
from ipoibu.wire.mesh import Greeting, greeting_untrusted
from ipoibu.wire.mesh_key import NONCE_LEN, Denial, KeyExchange
from ipoibu.wire.mesh_stream import FrameKind, FrameReader, frame

_READ_BYTES = 65536


class Denied(Exception):
    """The host's key and ours do not agree; the argument is the `Denial`."""

    def __init__(self, denial: Denial) -> None:
        super().__init__(denial)
        self.denial = denial


def query(sock: socket.socket, key: PeerKey | None) -> list[Greeting]:
    """Return the greeting of each interface at the other end of a TCP connection.

    Blocks as long as the socket does. `Denied`, `BadFrame`, `OSError`.
    """
    exchange = None
    if key is not None:
        exchange = KeyExchange(key.secret, secrets.token_bytes(NONCE_LEN), is_ours=True)
        sock.sendall(frame(FrameKind.NONCE, exchange.ours))
    else:
        sock.sendall(frame(FrameKind.QUERY, b""))
    reader = FrameReader(exchange)
    greetings = []
    while data := sock.recv(_READ_BYTES):
        for kind, body in reader.frames_untrusted(data):
            match kind:
                case FrameKind.NONCE if exchange is not None:
                    sock.sendall(frame(FrameKind.QUERY, b"", exchange.seal))
                case FrameKind.DENIAL:
                    raise Denied(Denial.read_untrusted(body))
                case FrameKind.REFUSAL:
                    greetings.append(greeting_untrusted(body))
                case _:
                    raise BadFrame("mesh_frame_kind")
    return greetings
