# SPDX-License-Identifier: BSD-2-Clause
"""Hosts of the link fill the tables of sockets on an endpoint."""

from __future__ import annotations

import socket
from collections import Counter
from ipaddress import IPv4Address, IPv4Interface
from types import SimpleNamespace
from typing import Any, Final, cast

from ipoibu.aio.address import Flow, Place
from ipoibu.aio.datagram_socket import Socket
from ipoibu.aio.host import Host
from ipoibu.aio.path_mtu import PathMtus
from ipoibu.aio.reassembly import Reassembly
from ipoibu.aio.thread_receiver import Mailbox
from ipoibu.base.limits import (
    AIO_DESTINATIONS_MAX,
    AIO_FLOWS_MAX,
    AIO_LOCAL_MAX,
    AIO_RECEIVE_BYTES,
    AIO_RECEIVE_OVERHEAD_BYTES,
    PATH_MTU_MAX,
    REASSEMBLY_BYTES,
    REASSEMBLY_MAX,
)
from ipoibu.wire.fragment import Fragment
from tests.unit.tables.filling import HONEST, Filling, host4

OURS: Final = IPv4Address("10.0.0.1")


def quiet_host() -> Host:
    """Return a host whose endpoint has an address and no packets."""
    endpoint = SimpleNamespace(
        addresses=lambda: [IPv4Interface("10.0.0.1/8")],
        mtu=2044,
        datagram_mtu=2044,
        watch=lambda sink: lambda: None,
        packet_queue=SimpleNamespace(send=len, send_datagrams=lambda headers, sent: len(sent)),
    )
    return Host(cast(Any, endpoint))


class _OfSocket(Filling):
    def __init__(self) -> None:
        super().__init__()
        self._host = quiet_host()
        self.counts = self._host.counts
        self._socket = Socket(self._host, socket.AF_INET)
        self._socket.bind(Place(OURS, 7000))
        self._got = 0
        self._socket.on_datagrams = self._note

    def _note(self, payloads: list[bytes], address: object) -> None:
        self._got += len(payloads)

    def receive(self, number: int) -> bool:
        before = self._got
        flow = Flow(Place(host4(number + 10), 5000), Place(OURS, 7000))
        self._host.dispatch(self.now, [(flow.pack(), [b"x"])])
        return self._got > before


class KnownFlows(_OfSocket):
    def __init__(self) -> None:
        super().__init__()
        self.cap = AIO_FLOWS_MAX

    def add(self, number: int) -> None:
        assert self.receive(number)

    def __len__(self) -> int:
        return len(self._host._flows)

    def admits_honest(self) -> bool:
        return self.receive(HONEST)


class Destinations(_OfSocket):
    def __init__(self) -> None:
        super().__init__()
        self.cap = AIO_DESTINATIONS_MAX

    def add(self, number: int) -> None:
        assert self._socket.send(b"x", (str(host4(number + 10)), 5000))

    def __len__(self) -> int:
        return len(self._socket._ways)

    def admits_honest(self) -> bool:
        return self._socket.send(b"x", ("10.9.9.9", 5000))


class ToOurselves(_OfSocket):
    def __init__(self) -> None:
        super().__init__()
        self.cap = AIO_LOCAL_MAX
        self._host.schedule = lambda function: None

    def add(self, number: int) -> None:
        assert self._socket.send(number.to_bytes(4, "big"), ("10.0.0.1", 7000))

    def __len__(self) -> int:
        return len(self._host._local)

    def admits_honest(self) -> bool:
        """The loop delivers what waits."""
        self._host.deliver_local()
        self.add(HONEST)
        return self._got == self.cap and len(self) == 1


class Unread(Filling):
    entries_each = 1024 + AIO_RECEIVE_OVERHEAD_BYTES

    def __init__(self) -> None:
        super().__init__()
        self.cap = AIO_RECEIVE_BYTES
        self._table = Mailbox(self.counts)

    def add(self, number: int) -> None:
        self._table.put([bytes(1024)], ("10.0.0.2", number))

    def __len__(self) -> int:
        return self._table._held_bytes

    def admits_honest(self) -> bool:
        """The socket reads."""
        self._table.take(1)
        before = len(self._table)
        self.add(HONEST)
        return len(self._table) == before + 1


class MissingFragments(Filling):
    """A host sends first fragments, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.cap = REASSEMBLY_MAX
        self.counts = Counter()
        self._table = Reassembly(self.counts)

    def add(self, number: int) -> None:
        assert self._part(number, 0, has_more=True) is None

    def _part(self, number: int, start: int, *, has_more: bool) -> object:
        payload = bytes(REASSEMBLY_BYTES // REASSEMBLY_MAX // 8 * 8)
        part = Fragment(host4(number), OURS, 17, 1, start, has_more, payload)
        return self._table.add(self.now, part)

    def __len__(self) -> int:
        return len(self._table)

    def admits_honest(self) -> bool:
        self.add(HONEST)
        last = REASSEMBLY_BYTES // REASSEMBLY_MAX // 8 * 8
        return self._part(HONEST, last, has_more=False) is not None


class ReportedMtus(Filling):
    def __init__(self) -> None:
        super().__init__()
        self.cap = PATH_MTU_MAX
        self._table = PathMtus()

    def add(self, number: int) -> None:
        assert self._table.lower(self.now, host4(number), 1400, 2044)

    def __len__(self) -> int:
        return len(self._table)

    def admits_honest(self) -> bool:
        self.add(HONEST)
        return self._table.get(host4(HONEST), 2044) == 1400


FILLINGS: dict[str, type[Filling]] = {
    "flows whose sockets are known": KnownFlows,
    "packets of which fragments are missing": MissingFragments,
    "path MTUs": ReportedMtus,
    "destinations of a socket": Destinations,
    "datagrams that a blocking socket has not read": Unread,
    "datagrams of an endpoint to itself": ToOurselves,
}
