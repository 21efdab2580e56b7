# SPDX-License-Identifier: BSD-2-Clause
"""Queue pair 1 of a port of the kernel, over a libibumad that the test plays."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any, Final

import pytest

from ipoibu.base.addr import DEFAULT_PKEY, Gid, PKey, Qpn
from ipoibu.base.errors import LinkError
from ipoibu.base.ib import Destination
from ipoibu.fabric.cm.gsi import UmadGsiPort
from ipoibu.fabric.sa import umad
from ipoibu.fabric.sa.mad_port import MadIn, MadPortInfo, MadTo
from ipoibu.proto.cm.connection import MadSource

GID: Final = Gid.parse("fe80::1")
PEER: Final = Gid.parse("fe80::2")
RAW: Final = bytes(256)
PKEYS: Final = (PKey(0x7FFF), PKey(0), PKey(0x8001))


class Umad:
    """In place of `UmadPort`; the last one made is `now`."""

    now: Umad
    hears_unasked = True

    def __init__(self, device: str, port: int, methods: list[int], **mgmt: int) -> None:
        self.asked = (device, port, methods, mgmt)
        self.sent: list[tuple[bytes, MadTo, float]] = []
        self.inbox: deque[MadIn] = deque()
        self.error: OSError | None = None
        self.is_closed = False
        Umad.now = self

    def send(self, raw: bytes, to: MadTo, wait_s: float) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append((raw, to, wait_s))

    def receive(self) -> MadIn | None:
        return self.inbox.popleft() if self.inbox else None

    def close(self) -> None:
        self.is_closed = True


class Port:
    info = MadPortInfo("mlx5_0", 1, True, 5, 1, 0, GID, PKEYS)


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> UmadGsiPort:
    monkeypatch.setattr(umad, "UmadPort", Umad)
    return UmadGsiPort("mlx5_0", 1, lambda: Port.info)


def sent(services: UmadGsiPort, destination: Destination, pkey: PKey = DEFAULT_PKEY) -> MadTo:
    assert services.send(destination, pkey, RAW)
    [(raw, to, wait_s)] = Umad.now.sent
    assert (raw, wait_s) == (RAW, 0)  # umad waits for no reply: IDs assign the messages
    return to


def test_it_takes_part_in_communication_management(services: UmadGsiPort) -> None:
    """Class 7, version 2; every message has the method SEND (3): InfiniBand volume 1, §12.6."""
    device, port, methods, mgmt = Umad.now.asked
    assert (device, port, list(methods)) == ("mlx5_0", 1, [3])
    assert mgmt == {"mgmt_class": 7, "version": 2}


def test_where_the_kernel_has_a_manager_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(umad, "UmadPort", Umad)
    monkeypatch.setattr(Umad, "hears_unasked", False)
    with pytest.raises(LinkError, match="modprobe -r ib_cm"):
        UmadGsiPort("mlx5_0", 1, lambda: Port.info)
    assert Umad.now.is_closed


def test_what_stays_on_the_subnet_goes_by_its_lid(services: UmadGsiPort) -> None:
    to = sent(services, Destination(PEER, Qpn(1), dlid=9, sl=3, hop_limit=1))
    assert to == MadTo(9, 1, 3, 0)


def test_what_may_leave_it_has_a_grh(services: UmadGsiPort) -> None:
    destination = Destination(PEER, Qpn(1), dlid=9, hop_limit=64)
    assert sent(services, destination).route == destination


def test_the_key_is_that_of_the_partition(services: UmadGsiPort) -> None:
    destination = Destination(PEER, Qpn(1), dlid=9, hop_limit=1)
    assert sent(services, destination, PKey(0x8001)).pkey_index == 2


def test_of_a_full_and_a_limited_key_the_full_one_is_used(
    services: UmadGsiPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The full key comes first, as for the queue pair: limited members cannot talk to each other."""
    keys = PKey(0x7FFF), PKey(0x0001), PKey(0x8001)
    monkeypatch.setattr(Port, "info", replace(Port.info, pkeys=keys))
    destination = Destination(PEER, Qpn(1), dlid=9, hop_limit=1)
    assert sent(services, destination, PKey(0x8001)).pkey_index == 2


def test_a_partition_that_the_port_has_left_gets_nothing(services: UmadGsiPort) -> None:
    destination = Destination(PEER, Qpn(1), dlid=9)
    assert not services.send(destination, PKey(0x8005), RAW)
    assert not Umad.now.sent


def test_a_datagram_that_the_kernel_does_not_take_is_logged(services: UmadGsiPort) -> None:
    Umad.now.error = OSError(22, "Invalid argument")
    assert not services.send(Destination(PEER, Qpn(1), dlid=9), DEFAULT_PKEY, RAW)


def test_a_senders_address_is_its_grhs_or_its_lid_alone(services: UmadGsiPort) -> None:
    Umad.now.inbox += [MadIn(RAW, 9, 1, gid=PEER, sl=2), MadIn(RAW, 8, 1)]
    assert services.receive() == (MadSource(Qpn(1), PEER, 9, 2), RAW)
    assert services.receive() == (MadSource(Qpn(1), None, 8, 0), RAW)
    assert services.receive() is None


def test_the_partition_that_a_datagram_came_in_is_announced(services: UmadGsiPort) -> None:
    """The index of the key decides; the table may have become shorter meanwhile."""
    Umad.now.inbox += [MadIn(RAW, 9, 1, pkey_index=2), MadIn(RAW, 9, 1, pkey_index=3)]
    assert services.receive() == (MadSource(Qpn(1), None, 9, 0, PKey(0x8001)), RAW)
    assert services.receive() == (MadSource(Qpn(1), None, 9, 0, DEFAULT_PKEY), RAW)


def test_what_comes_back_of_ours_is_not_received(services: UmadGsiPort) -> None:
    Umad.now.inbox += [MadIn(RAW, 9, 1, status=110), MadIn(RAW, 8, 1)]
    assert services.receive() == (MadSource(Qpn(1), None, 8, 0), RAW)


def test_the_address_is_the_ports_now(
    services: UmadGsiPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert services.address == (GID, 5)
    moved: Any = replace(Port.info, lid=17)
    monkeypatch.setattr(Port, "info", moved)
    assert services.address == (GID, 17)
