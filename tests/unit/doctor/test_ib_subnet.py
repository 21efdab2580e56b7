# SPDX-License-Identifier: BSD-2-Clause
"""The checkup of an InfiniBand subnet, over an SA that the test plays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ipoibu.base.addr import PKey
from ipoibu.base.errors import LinkError
from ipoibu.doctor.finding import Finding
from ipoibu.doctor.ib_subnet import subnet
from ipoibu.fabric.sa.client import SaClient
from ipoibu.proto.sa.requests import Pace
from tests.doubles.fake_sa import FakePort, FakeSa

PARTITION = PKey(0x8001)


@pytest.fixture
def fake_sa(monkeypatch: pytest.MonkeyPatch) -> FakeSa:
    fake_sa = FakeSa()
    opens(monkeypatch, lambda: FakePort(fake_sa, pkeys=(0xFFFF, 0x8001)))
    return fake_sa


def opens(monkeypatch: pytest.MonkeyPatch, port: Callable[[], FakePort]) -> None:
    pace = Pace(timeout_s=0.02, attempts=1)
    monkeypatch.setattr(SaClient, "open", lambda device, number: SaClient(port(), pace=pace))


def findings() -> list[tuple[str, str, str | None]]:
    return [(it.check, it.status, it.remedy) for it in _results()]


def _results() -> list[Finding]:
    return subnet("mlx5_0", 1, PARTITION)


def test_a_link_that_is_there_is_described_and_not_joined(fake_sa: FakeSa) -> None:
    group = fake_sa.make_broadcast(PARTITION)
    assert [(it.check, it.status) for it in _results()] == [
        ("subnet_manager", "ok"),
        ("pkey", "ok"),
        ("broadcast_group", "ok"),
    ]
    assert _results()[-1].detail == "the link of 0x8001 has an IP MTU of 2044, Q_Key 0xb1b"
    assert not fake_sa.groups[group].members


def test_a_broadcast_group_that_is_missing_has_a_line_to_add(fake_sa: FakeSa) -> None:
    assert findings()[-1] == (
        "broadcast_group",
        "fail",
        "add to partitions.conf: ib8001=0x0001, ipoib : ALL=full;",
    )


def test_a_port_outside_the_partition_has_a_line_to_add(monkeypatch: pytest.MonkeyPatch) -> None:
    opens(monkeypatch, lambda: FakePort(FakeSa()))
    assert findings()[-1] == (
        "pkey",
        "fail",
        "add to partitions.conf: ib8001=0x0001, ipoib : 0x0000000000000002=full;",
    )
    assert "it has: 0xffff" in _results()[-1].detail


def test_a_silent_administrator_is_reported(fake_sa: FakeSa) -> None:
    fake_sa.is_deaf = True
    check, status, _ = findings()[-1]
    assert (check, status) == ("broadcast_group", "fail")


def test_a_port_without_a_subnet_manager_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def port() -> FakePort:
        port = FakePort(FakeSa())
        port.info = replace(port.info, lid=0, sa_lid=0)
        return port

    opens(monkeypatch, port)
    assert findings() == [("subnet_manager", "fail", "systemctl start opensm, on one host")]


def test_a_port_without_management_datagrams_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(device: str, port: int) -> SaClient:
        raise LinkError("no /dev/infiniband/umad*; run `modprobe ib_umad`")

    monkeypatch.setattr(SaClient, "open", refuse)
    [result] = _results()
    assert (result.check, result.status) == ("subnet_manager", "fail")
    assert "modprobe ib_umad" in result.detail
