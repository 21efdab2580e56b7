# SPDX-License-Identifier: BSD-2-Clause
"""The MTU of a way, by probing: against hosts and routers that answer, and firewalls that do not."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any, ClassVar, Self

import pytest

from ipoibu.base.addr import IpAddress
from ipoibu.doctor import path_probe
from ipoibu.doctor.path_probe import PathMtu, PathProbe, path_mtu
from tests.doubles.ports import reserved_port

HOST = ip_address("192.0.2.2")


class Way:
    """A way that carries `carries` bytes; its routers tell `told`, one after the other."""

    carries: ClassVar[int]
    told: ClassVar[list[int]]
    answers: ClassVar[bool]

    def __init__(self, host: IpAddress, scope: int, port: int) -> None:
        self.known_mtu_bytes = 9000
        self.sent: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def refuses(self, mtu_bytes: int) -> bool:
        self.sent.append(mtu_bytes)
        if mtu_bytes > self.carries and self.told:
            self.known_mtu_bytes = self.told.pop(0)
        return self.answers and mtu_bytes <= self.carries


@pytest.mark.parametrize(
    ("carries", "told", "answers", "found"),
    [
        (9000, [], True, PathMtu(9000, is_proved=True)),
        (1400, [4000, 1400], True, PathMtu(1400, is_proved=True)),
        (1400, [], True, PathMtu(1400, is_proved=True)),  # a firewall drops what routers tell
        (1437, [], True, PathMtu(1420, is_proved=True)),
        (576, [], True, PathMtu(576, is_proved=True)),
        (8999, [], True, PathMtu(8900, is_proved=True)),
        (1500, [1500], False, PathMtu(1500, is_proved=False)),
        (1500, [], False, PathMtu(9000, is_proved=False)),
    ],
)
def test_the_mtu_of_a_way(
    monkeypatch: pytest.MonkeyPatch, carries: int, told: list[int], answers: bool, found: PathMtu
) -> None:
    fake: Any = type("Fake", (Way,), {"carries": carries, "told": list(told), "answers": answers})
    monkeypatch.setattr(path_probe, "PathProbe", fake)
    assert path_mtu(HOST, 0) == found


def test_a_closed_port_of_this_host_refuses_and_an_open_one_does_not() -> None:
    import socket

    loopback = ip_address("127.0.0.1")
    with reserved_port() as port:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("127.0.0.1", port))
            with PathProbe(loopback, 0, port) as probe:
                assert not probe.refuses(0)
        with PathProbe(loopback, 0, port) as probe:
            assert probe.refuses(1500)
            assert probe.known_mtu_bytes > 1500
