# SPDX-License-Identifier: BSD-2-Clause
"""The benchmark's ceiling carries a stream unchanged, so its cost is that of the whole work."""

from __future__ import annotations

import hashlib
import os
import random
import socket
import threading

import pytest

from ipoibu.bench.contender import CEILING_PACKET_BYTES, Tunnel, number_wire, wait_answer
from ipoibu.lab import NamespaceLab

pytestmark = pytest.mark.netns

PORT = 5001
BYTES = 20_000_000


def _send(stream: socket.socket, sent: bytes) -> None:
    stream.sendall(sent)
    stream.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("packet_bytes", [0, 4096, CEILING_PACKET_BYTES])
def test_a_stream_through_the_ceiling_is_what_was_sent(packet_bytes: int) -> None:
    sent = random.Random(packet_bytes).randbytes(BYTES)
    received = hashlib.sha256()
    with NamespaceLab(start=False) as lab:
        number_wire(lab)
        with Tunnel("ceiling", "ceiling", packet_bytes).running(lab) as running:
            ends = running.ends(lab)
            assert [os.getsid(pid) for pid in running.pids] == list(running.pids)
            wait_answer(ends)
            with ends.receiver.inside(lambda: socket.create_server((ends.address, PORT))) as server:
                sender = ends.sender.inside(lambda: socket.create_connection((ends.address, PORT)))
                stream, _ = server.accept()
                with sender, stream:
                    sending = threading.Thread(target=_send, args=(sender, sent))
                    sending.start()
                    while piece := stream.recv(1 << 20):
                        received.update(piece)
                    sending.join()
    assert received.hexdigest() == hashlib.sha256(sent).hexdigest()
