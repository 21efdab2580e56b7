# SPDX-License-Identifier: BSD-2-Clause
"""Compare UDP from Python over the kernel's sockets behind `ipoibu up` with `ipoibu.aio`, as root:
python bench/datagram_sockets.py [--rounds N] [--mode connected]

Two hosts of each kind stay up, and take turns in random order, second by second. It prints the ratios of
`UdpSocket` in batches of 64 to the kernel's sockets: datagrams a second that arrive, of 64 and of 1400
bytes, the time of a request with its answer, blocking and by asyncio, and how often a thread of the asking
host, of its program or of `ipoibu up`, goes to sleep for each (which another load hardly changes).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from rounds import ratios, take_turns

from ipoibu.aio import UdpSocket, create_datagram_endpoint
from ipoibu.endpoint.api.endpoint import Endpoint
from ipoibu.endpoint.config import EndpointConfig
from ipoibu.lab import NamespaceLab

PORT: Final = 7000
BATCH: Final = 64
SECONDS: Final = 1.0
WAYS: Final = ("rate 64", "rate 1400", "echo 64", "aecho 64", "sleeps 64")


class Kernel:
    """A host's sockets of the kernel."""

    def __init__(self, own: str, peer: str) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.bind((own, PORT))
        self.socket.connect((peer, PORT))
        self.socket.settimeout(0.1)

    def send_some(self, data: bytes) -> None:
        send = self.socket.send
        for _ in range(BATCH):
            send(data)

    def receive_some(self) -> int:
        receive = self.socket.recv
        for count in range(BATCH):
            try:
                receive(65535)
            except TimeoutError:
                return count
        return BATCH

    def send(self, data: bytes) -> None:
        self.socket.send(data)

    def receive(self) -> bytes:
        return self.socket.recv(65535)

    async def transport(self, factory: Callable[[], Any], own: str, peer: str) -> Any:
        loop = asyncio.get_running_loop()
        made = await loop.create_datagram_endpoint(
            factory, local_addr=(own, PORT + 1), remote_addr=(peer, PORT + 1)
        )
        return made[0]

    def pause(self) -> None:
        """Let asyncio have the packets."""

    def resume(self) -> None:
        """Take them back."""


class Ours(Kernel):
    """The sockets of an endpoint."""

    def __init__(self, own: str, peer: str, mode: str) -> None:
        self._ends = (own, PORT), (peer, PORT)
        self._endpoint = Endpoint(EndpointConfig("ib0", "soft:eth0", mode=mode))
        self._endpoint.open()
        self._endpoint.address_added(f"{own}/24")
        assert self._endpoint.wait_up(30)
        self.resume()

    def send_some(self, data: bytes) -> None:
        self._udp.send_many([data] * BATCH)

    def receive_some(self) -> int:
        return len(self._udp.recv_many(BATCH, 0.1))

    def send(self, data: bytes) -> None:
        self._udp.send(data)

    def receive(self) -> bytes:
        return self._udp.recv(0.1)

    async def transport(self, factory: Callable[[], Any], own: str, peer: str) -> Any:
        made = await create_datagram_endpoint(
            self._endpoint, factory, (own, PORT + 1), (peer, PORT + 1)
        )
        return made[0]

    def pause(self) -> None:
        self._udp.close()

    def resume(self) -> None:
        self._udp = UdpSocket(self._endpoint, *self._ends)


def requests(size: int) -> Iterator[bytes]:
    """Yield requests without end, each with another content."""
    for number in itertools.count():
        yield number.to_bytes(8, "big") + bytes(size - 8)


class Asked(asyncio.DatagramProtocol):
    """Answers each request, or sends the next one after each answer until its time is over."""

    def __init__(self, size: int, until: float, is_client: bool) -> None:
        self._requests, self._until, self._is_client = requests(size), until, is_client
        self.done = asyncio.get_running_loop().create_future()
        self.times: list[float] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def ask(self) -> None:
        self._asked, self._request = time.perf_counter(), next(self._requests)
        self.transport.sendto(self._request)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if not self._is_client:
            self.transport.sendto(data)
            return
        if data != self._request:
            return  # the late answer to one that nobody waits for
        now = time.perf_counter()
        self.times.append(now - self._asked)
        if now < self._until:
            self.ask()
        elif not self.done.done():
            self.done.set_result(None)

    def error_received(self, exc: Exception) -> None:
        """The other end is not there yet, or no longer."""


def sleeps(*processes: str) -> int:
    """Return how often all threads of some processes have gone to sleep."""
    count = 0
    for process in processes:
        for status in Path("/proc", process, "task").glob("*/status"):
            with suppress(FileNotFoundError):  # the thread has ended
                lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
                count += int(lines["voluntary_ctxt_switches"])
    return count


def ask(ours: Kernel, size: int, end: float) -> list[float]:
    """Send one request after the other until `end`; return the times to their answers."""
    times = []
    for request in requests(size):
        began = time.perf_counter()
        if began >= end:
            break
        ours.send(request)
        try:
            while ours.receive() != request:
                pass  # the late answer to one that nobody waits for
        except OSError:
            continue
        times.append(time.perf_counter() - began)
    return times


def measure(
    ours: Kernel, what: str, size: int, role: str, ends: tuple[str, str], *, processes: list[str]
) -> Any:
    """Play the role for a while: return datagrams a second that arrived, the median time in us, or the
    sleeps of a request."""
    data, end = bytes(size), time.perf_counter() + SECONDS
    if what == "aecho":
        ours.pause()
        try:
            return asyncio.run(_by_asyncio(ours, size, role, ends))
        finally:
            ours.resume()
    if what == "rate" and role == "client":
        while time.perf_counter() < end:
            ours.send_some(data)
        return None
    if what == "rate":
        while not ours.receive_some():
            pass
        arrived, began = 0, time.perf_counter()
        while more := ours.receive_some():
            arrived, last = arrived + more, time.perf_counter()
        return arrived / (last - began)
    if role == "server":
        end += 1
        while time.perf_counter() < end:
            try:
                ours.send(ours.receive())
            except TimeoutError:
                continue
        return None
    before = sleeps(*processes)
    times = ask(ours, size, end)
    if what == "sleeps":
        return (sleeps(*processes) - before) / len(times)
    return statistics.median(times) * 1e6


async def _by_asyncio(ours: Kernel, size: int, role: str, ends: tuple[str, str]) -> Any:
    protocol = Asked(size, time.perf_counter() + SECONDS, role == "client")
    transport = await ours.transport(lambda: protocol, *ends)
    if role == "server":
        await asyncio.sleep(SECONDS + 1)
        transport.close()
        return None
    while not protocol.done.done():
        protocol.ask()
        await asyncio.wait((protocol.done,), timeout=SECONDS + 0.2)
    transport.close()
    return statistics.median(protocol.times) * 1e6


def work(stack: str, own: str, peer: str, daemon: str, mode: str) -> None:
    """Be a host: measure what the lines of the input say, and print the results."""
    processes = ["self", daemon] if stack == "kernel" else ["self"]
    ours = Kernel(own, peer) if stack == "kernel" else Ours(own, peer, mode)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        role, what, size = line.split()
        said = measure(ours, what, int(size), role, (own, peer), processes=processes)
        print(json.dumps(said), flush=True)


class Pair:
    """Two hosts of one kind."""

    def __init__(self, stack: str, mode: str, exits: ExitStack) -> None:
        lab = exits.enter_context(NamespaceLab(options=["--mode", mode], start=stack == "kernel"))
        self._hosts = []
        command = [sys.executable, __file__, "--mode", mode]
        for own, peer in (lab.hosts, lab.hosts[::-1]):
            worker = own.namespace.popen(
                [*command, "--work", stack, str(own.ipv4.ip), str(peer.ipv4.ip), str(own.pid)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            exits.callback(worker.kill)
            self._hosts.append(worker)
        for worker in self._hosts:
            assert self._read(worker) == "ready"

    def _read(self, worker: Any) -> Any:
        return json.loads(worker.stdout.readline())

    def measure(self, way: str) -> dict[str, float]:
        for worker, role in zip(self._hosts, ("client", "server"), strict=True):
            worker.stdin.write(f"{role} {way}\n".encode())
            worker.stdin.flush()
        client, server = (self._read(worker) for worker in self._hosts)
        unit = {"rate": "/s", "sleeps": "a request"}.get(way.split(maxsplit=1)[0], "us")
        return {f"{way}, {unit}": float(client if server is None else server)}


def compare(pairs: dict[str, Pair], way: str, rounds: int) -> None:
    figures = take_turns(pairs, rounds, lambda stack: pairs[stack].measure(way))
    print(*ratios(figures), sep="\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mode", default="datagram")
    parser.add_argument("--way", action="append", choices=WAYS, help="only this one; repeatable")
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(*given.work, given.mode)
        return
    with ExitStack() as exits:
        pairs = {stack: Pair(stack, given.mode, exits) for stack in ("kernel", "aio")}
        for way in given.way or WAYS:
            compare(pairs, way, given.rounds)


if __name__ == "__main__":
    main()
