# SPDX-License-Identifier: BSD-2-Clause
"""Numbered datagrams between all hosts of a lab, which show when a flow stands still and moves again."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from ipoibu.base.addr import IpAddress
from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host

PORT: Final = 7733
PERIOD_S: Final = 0.05
SIZES: Final = (20, 200, 1200, 1200, 6000)  # bytes; the largest travel in fragments by datagram
_HEADER: Final = struct.Struct("!IId")  # flow, number, time of sending
_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}


@dataclass(slots=True)
class Flow:
    """Datagrams of one host to another over one IP version."""

    source: Host
    target: Host
    version: int
    sent: int = 0
    received: int = 0
    repeated: int = 0
    newest: int = -1
    newest_sent_at: float = 0.0  # when the newest datagram that has arrived was sent

    @property
    def name(self) -> str:
        return f"{self.source.name} -> {self.target.name} over IPv{self.version}"

    @property
    def target_ip(self) -> IpAddress:
        return (self.target.ipv4 if self.version == 4 else self.target.ipv6).ip

    @property
    def address(self) -> tuple[str, int]:
        return str(self.target_ip), PORT

    def arrived(self, number: int, sent_at: float) -> None:
        self.received += 1
        self.repeated += number == self.newest
        if number > self.newest:
            self.newest, self.newest_sent_at = number, sent_at


class Flows:
    """All flows of a lab, while the block runs: from each host to the next and to the opposite one."""

    def __init__(self, lab: NamespaceLab) -> None:
        hosts = lab.hosts
        steps = sorted({1, len(hosts) // 2})
        self.flows = [
            Flow(host, hosts[(at + step) % len(hosts)], version)
            for at, host in enumerate(hosts)
            for step in steps
            for version in _FAMILIES
        ]
        self._stopping = threading.Event()
        self._ends = contextlib.ExitStack()
        self._selector = self._ends.enter_context(selectors.DefaultSelector())
        self._sockets: dict[tuple[int, int], socket.socket] = {}
        for host in hosts:
            for version, family in _FAMILIES.items():
                opened = self._ends.enter_context(host.socket(family, socket.SOCK_DGRAM))
                if version == 6:
                    opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                opened.bind(("0.0.0.0" if version == 4 else "::", PORT))
                opened.setblocking(False)
                self._selector.register(opened, selectors.EVENT_READ)
                self._sockets[host.number, version] = opened
        self._threads = [threading.Thread(target=each) for each in (self._send, self._receive)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        self._ends.close()

    def _send(self) -> None:
        turn = 0
        while not self._stopping.wait(PERIOD_S):
            turn += 1
            for number, flow in enumerate(self.flows):
                data = _HEADER.pack(number, flow.sent, time.monotonic())
                data += bytes(SIZES[turn % len(SIZES)] - len(data))
                with contextlib.suppress(OSError):  # the interface or its address is away
                    self._sockets[flow.source.number, flow.version].sendto(data, flow.address)
                    flow.sent += 1

    def _receive(self) -> None:
        while not self._stopping.is_set():
            for key, _ in self._selector.select(0.1):
                self._take(key.fileobj)

    def _take(self, opened: Any) -> None:
        with contextlib.suppress(OSError):
            while True:
                number, sequence, sent_at = _HEADER.unpack_from(opened.recv(65536))
                self.flows[number].arrived(sequence, sent_at)

    def standing_since(self, moment: float) -> list[Flow]:
        """Return the flows without an arrived datagram that was sent after `moment`."""
        return [flow for flow in self.flows if flow.newest_sent_at < moment]

    def resumed(self, moment: float, within_s: float) -> tuple[float, list[Flow]]:
        """Wait for all flows; return the seconds since `moment`, and the flows that are late."""
        deadline = moment + within_s
        while (standing := self.standing_since(moment)) and time.monotonic() < deadline:
            time.sleep(0.02)
        return time.monotonic() - moment, standing
