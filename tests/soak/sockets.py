# SPDX-License-Identifier: BSD-2-Clause
"""Sends datagrams by `ipoibu.aio` at full rate between two hosts for a long time, as root:

    python -m tests.soak.sockets [--hours H] [--mode connected]

The hosts take turns of `TURN_S`: with blocking sockets in batches, then by asyncio. Of each batch one
datagram is cut into fragments; each turn opens new sockets, joins a group, and hears of a closed port.
Between two turns, without a socket, each host counts its resident memory, descriptors and Python objects.
They may not grow after the first turns. The exit status is 1 when they did, or nothing arrived.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ipoibu.aio import UdpSocket, create_datagram_endpoint, stats
from ipoibu.endpoint.api.endpoint import Endpoint
from ipoibu.endpoint.config import EndpointConfig
from ipoibu.lab import NamespaceLab

TURN_S: Final = 5.0
WARM_TURNS: Final = 24  # until every pool and every cache is as large as it gets
REPORT_TURNS: Final = 4
PAUSE_S: Final = 1.0  # the receiver waits for so long after the sender's end
PORT: Final = 7000
CLOSED_PORT: Final = 7001
GROUP: Final = "239.1.2.3"
BATCH: Final = [bytes(64)] * 32 + [bytes(1400)] * 31
LONG: Final = bytes(5000)
RSS_MORE_BYTES: Final = 4 << 20  # pages that the allocator of C keeps
OBJECTS_MORE: Final = 500  # caches of Python's library
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Held:
    """What a host holds between two turns, and how many datagrams it has sent and received by then."""

    datagrams: int
    rss_bytes: int
    fds: int
    objects: int

    @classmethod
    def now(cls, datagrams: int) -> Held:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        fds = len(os.listdir("/proc/self/fd"))
        objects = gc.get_objects()
        # asyncio keeps a cancelled timer, with its context, until it is due or there are a hundred of them.
        cancelled = sum(isinstance(it, asyncio.TimerHandle) and it.cancelled() for it in objects)
        return cls(datagrams, pages * PAGE_BYTES, fds, len(objects) - 2 * cancelled)

    def growth(self, name: str, before: Held) -> list[str]:
        """Return what a host has more of than before."""
        found = []
        if self.rss_bytes > before.rss_bytes + RSS_MORE_BYTES:
            found.append(f"{name}: {self.rss_bytes >> 10} KiB, {before.rss_bytes >> 10} KiB before")
        if self.fds > before.fds:
            found.append(f"{name}: {self.fds} descriptors, {before.fds} before")
        if self.objects > before.objects + OBJECTS_MORE:
            found.append(f"{name}: {self.objects} objects, {before.objects} before")
        return found


class Talker:
    """One host: it sends, or receives and answers."""

    def __init__(self, role: str, own: str, peer: str, mode: str) -> None:
        self._is_client = role == "client"
        self._own, self._peer = own, peer
        self.datagrams = 0
        self.endpoint = Endpoint(EndpointConfig("ib0", "soft:eth0", mode=mode))
        self.endpoint.open()
        self.endpoint.address_added(f"{own}/24")
        assert self.endpoint.wait_up(30)

    def blocking(self, end: float) -> None:
        """Take a turn with blocking sockets."""
        if not self._is_client:
            self._answer(end + PAUSE_S)
            return
        with UdpSocket(self.endpoint, remote_addr=(self._peer, PORT)) as udp:
            while time.monotonic() < end:
                self.datagrams += udp.send_many(BATCH) + udp.send_many([LONG])
                self.datagrams += len(udp.recv_many(timeout=0))
        with UdpSocket(self.endpoint, remote_addr=(self._peer, CLOSED_PORT)) as udp:
            udp.send(b"nobody")
            with suppress(ConnectionRefusedError):
                udp.recv_many(timeout=PAUSE_S)

    def _answer(self, end: float) -> None:
        with UdpSocket(self.endpoint, ("0.0.0.0", PORT)) as udp:
            udp.join(GROUP)
            while time.monotonic() < end:
                received = udp.recv_many(timeout=0.1)
                self.datagrams += len(received)
                if received:
                    data, address = received[0]
                    udp.sendto(data, address)
            udp.leave(GROUP)

    async def by_asyncio(self, end: float) -> None:
        """Take a turn with transports."""
        talker = self

        class Protocol(asyncio.DatagramProtocol):
            can_write = asyncio.Event()
            transport: Any = None

            def connection_made(self, transport: Any) -> None:
                self.transport = transport
                self.can_write.set()

            def pause_writing(self) -> None:
                self.can_write.clear()

            def resume_writing(self) -> None:
                self.can_write.set()

            def datagram_received(self, data: bytes, addr: Any) -> None:
                talker.datagrams += 1
                if not talker._is_client and talker.datagrams % len(BATCH) == 0:
                    self.transport.sendto(data, addr)

        ends = (None, (self._peer, PORT)) if self._is_client else (("0.0.0.0", PORT), None)
        transport, protocol = await create_datagram_endpoint(self.endpoint, Protocol, *ends)
        if self._is_client:
            while time.monotonic() < end:
                for data in (*BATCH, LONG):
                    await protocol.can_write.wait()
                    transport.sendto(data)
                    self.datagrams += 1
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(end + PAUSE_S - time.monotonic())
        transport.abort()
        await asyncio.sleep(0)


def work(role: str, own: str, peer: str, mode: str) -> None:
    """Take a turn for each line of the input, which says how and until when; print what we hold."""
    talker = Talker(role, own, peer, mode)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        way, end = line.split()
        if way == "asyncio":
            asyncio.run(talker.by_asyncio(float(end)))
        else:
            talker.blocking(float(end))
        held = Held.now(talker.datagrams)
        counts = {name: value for name, value in stats(talker.endpoint).items() if value}
        shown = [held.datagrams, held.rss_bytes, held.fds, held.objects]
        print(json.dumps([shown, counts]), flush=True)


def run(seconds: float, mode: str = "datagram") -> list[str]:
    """Let two hosts talk; return what is wrong at the end."""
    before: list[Held] = []
    until = time.monotonic() + seconds
    with ExitStack() as exits:
        lab = exits.enter_context(NamespaceLab(options=["--mode", mode], start=False))
        workers = []
        for role, (own, peer) in zip(
            ("client", "server"), (lab.hosts, lab.hosts[::-1]), strict=True
        ):
            ends = [str(own.ipv4.ip), str(peer.ipv4.ip)]
            command = [sys.executable, "-m", "tests.soak.sockets", "--work", role, *ends, mode]
            worker = own.namespace.popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            exits.callback(worker.wait)
            exits.callback(worker.kill)
            workers.append(worker)
        for worker in workers:
            assert json.loads(_line(worker)) == "ready"
        turn = 0
        while turn <= WARM_TURNS or time.monotonic() < until:
            way = "asyncio" if turn % 2 else "blocking"
            end = time.monotonic() + TURN_S
            for worker in workers:
                assert worker.stdin is not None
                worker.stdin.write(f"{way} {end}\n".encode())
                worker.stdin.flush()
            said = [json.loads(_line(worker)) for worker in workers]
            now = [Held(*held) for held, _ in said]
            if turn == WARM_TURNS - 1:
                before = now
            turn += 1
            if turn % REPORT_TURNS == 0:
                print(f"turn {turn}:", *now, sep="\n  ", flush=True)
        print("counters:", *(counts for _, counts in said), sep="\n  ", flush=True)
    failures = []
    for name, held, first in zip(("the sender", "the receiver"), now, before, strict=True):
        failures += held.growth(name, first)
        if held.datagrams == first.datagrams:
            failures.append(f"{name}: no datagram since turn {WARM_TURNS}")
    return failures


def _line(worker: subprocess.Popen[bytes]) -> bytes:
    assert worker.stdout is not None
    line = worker.stdout.readline()
    assert line, f"a host ended with {worker.wait()}"
    return line


def main() -> int:
    parser = argparse.ArgumentParser(description="Send datagrams for a long time.")
    parser.add_argument("--hours", type=float, default=2.0, help="how many hours")
    parser.add_argument("--mode", default="datagram", help="datagram or connected")
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work(*args.work)
        return 0
    failures = run(args.hours * 3600, args.mode)
    print(*(f"FAILED {it}" for it in failures), sep="\n", end="\n" if failures else "")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
