# SPDX-License-Identifier: BSD-2-Clause
"""What one process leaves in the service manager's store, and the next one takes."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipoibu.base.addr import HwAddr, PKey, Qpn
from ipoibu.daemon.handover.keeper import Keeper, KeptInterface
from ipoibu.endpoint.handover import HandedNeighbour
from ipoibu.host.kernel_interface import Leased, RouteSpec
from ipoibu.host.tun import Tun

PEER = "00:2b:35:bb:fe:80:00:00:00:00:00:00:00:00:00:ff:fe:00:00:02"
KEPT = KeptInterface(
    PKey(0x8001),
    Qpn(0x2B35BB),
    (ipaddress.ip_interface("10.0.0.1/24"), ipaddress.ip_interface("fd00::1/64")),
    (
        RouteSpec(ipaddress.ip_network("10.9.0.0/16"), ipaddress.ip_address("10.0.0.9")),
        RouteSpec(ipaddress.ip_network("fd09::/48")),
    ),
    (ipaddress.ip_address("fd00::1"),),
    (HandedNeighbour(ipaddress.ip_address("10.0.0.2"), HwAddr.parse(PEER), True),),
    (
        Leased(
            ipaddress.ip_interface("10.0.0.7/24"),
            (RouteSpec(ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_address("10.0.0.9")),),
        ),
        Leased(ipaddress.ip_interface("fd00::7/128")),
    ),
)


class Manager:
    """The service manager's side: keeps descriptors by name, as the notices say."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(path)
        self.store: dict[str, int] = {}

    def carry_out(self) -> None:
        while True:
            try:
                text, fds, _, _ = socket.recv_fds(self._socket, 1000, 4)
            except BlockingIOError:
                return
            notice = dict(line.split("=", 1) for line in text.decode().splitlines())
            if "FDSTORE" in notice:
                assert notice["FDNAME"] not in self.store
                assert notice["FDPOLL"] == "0"
                (self.store[notice["FDNAME"]],) = fds
            elif "FDSTOREREMOVE" in notice:
                os.close(self.store.pop(notice["FDNAME"]))
            else:
                assert notice == {"BARRIER": "1"}
                os.close(*fds)

    def next_keeper(self) -> Keeper:
        self.carry_out()
        return Keeper({name: os.dup(fd) for name, fd in self.store.items()})

    def close(self) -> None:
        self._socket.close()
        for fd in self.store.values():
            os.close(fd)


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    path = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    monkeypatch.setenv("FDSTORE", "2050")
    # Nobody carries notices out meanwhile.
    monkeypatch.setattr("ipoibu.daemon.process.notify._BARRIER_MS", 0)
    manager = Manager(path)
    yield manager
    manager.close()


@pytest.fixture
def tun() -> Iterator[Tun]:
    fds = [os.open(os.devnull, os.O_RDWR) for _ in range(3)]
    with Tun("ib0", fds[0], (), tuple(fds[1:])) as tun:
        yield tun


def test_the_next_process_knows_what_the_last_one_left(manager: Manager, tun: Tun) -> None:
    first = Keeper()
    first.keep(tun, tun.fd, KEPT)
    second = manager.next_keeper()
    assert list(manager.store) == ["tun-0-ib0", "tun-1-ib0", "tun-2-ib0", "port", "state"]
    assert second.before("ib0") == KEPT
    assert second.before("ib1") is None
    port = second.port()
    assert port is not None
    assert port.qpns == {PKey(0x8001): Qpn(0x2B35BB)}
    second.keep(tun, tun.fd, KEPT)  # stores nothing twice
    manager.carry_out()
    first.close()
    second.close()


def test_an_interface_that_is_forgotten_is_not_left(manager: Manager, tun: Tun) -> None:
    keeper = Keeper()
    keeper.keep(tun, None, KEPT)
    keeper.forget("b0")  # another name
    assert keeper.leaves_something
    keeper.forget("ib0")
    assert not keeper.leaves_something
    after = manager.next_keeper()
    assert list(manager.store) == ["state"]
    assert after.before("ib0") is None
    keeper.close()
    after.close()


def test_what_nobody_takes_is_forgotten(manager: Manager, tun: Tun) -> None:
    first = Keeper()
    first.keep(tun, None, KEPT)
    second = manager.next_keeper()
    second.forget_rest()
    third = manager.next_keeper()
    assert list(manager.store) == ["state"]
    assert third.before("ib0") is None
    for keeper in (first, second, third):
        keeper.close()


def test_what_is_no_tun_of_ours_is_forgotten(manager: Manager, tun: Tun) -> None:
    first = Keeper()
    first.keep(tun, None, KEPT)
    second = manager.next_keeper()
    assert second.tun("ib0", super_frames=True, queues=3, persistent=False) is None
    manager.carry_out()
    assert list(manager.store) == ["state"]
    first.close()
    second.close()


def test_a_socket_of_another_device_is_forgotten(manager: Manager, tun: Tun) -> None:
    first = Keeper()
    first.keep(tun, tun.fd, KEPT)
    second = manager.next_keeper()
    port = second.port()
    assert port is not None
    port.forget()
    manager.carry_out()
    assert "port" not in manager.store
    assert second.port() is None
    first.close()
    second.close()


@pytest.mark.parametrize(
    "text", [b"", b"no JSON", b"[]", b"[" * 100_000, b'{"ib0": {"pkey": 70000, "qpn": 1}}']
)
def test_a_state_of_another_version_is_as_good_as_none(text: bytes) -> None:
    fd = os.memfd_create("state")
    os.write(fd, text)
    keeper = Keeper({"state": fd})
    assert keeper.before("ib0") is None
    keeper.close()


def test_a_manager_without_a_store_gets_no_descriptor(
    manager: Manager, tun: Tun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FDSTORE")
    keeper = Keeper()
    keeper.keep(tun, tun.fd, KEPT)
    manager.carry_out()
    assert manager.store == {}
    keeper.close()


def test_without_a_service_manager_nothing_is_kept(
    tun: Tun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    keeper = Keeper.of_service()
    keeper.keep(tun, tun.fd, KEPT)
    keeper.forget("ib0")
    assert keeper.port() is None
    keeper.close()


def test_names_of_the_store_are_ascii_without_colons(manager: Manager) -> None:
    queues = [os.open(os.devnull, os.O_RDWR) for _ in range(4)]
    keeper = Keeper()
    with Tun("ib€-%", queues[0], (), tuple(queues[1:])) as tun:
        keeper.keep(tun, None, KEPT)
        manager.carry_out()
        assert len(manager.store) == len(queues) + 1
        assert all(name.isascii() and ":" not in name for name in manager.store)
        keeper.forget(tun.name)
    manager.carry_out()
    assert list(manager.store) == ["state"]
    keeper.close()


def test_descriptors_for_another_process_stay_untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTEN_PID", "1")
    monkeypatch.setenv("LISTEN_FDS", "1")
    monkeypatch.setenv("LISTEN_FDNAMES", "port")
    assert Keeper.of_service().port() is None
