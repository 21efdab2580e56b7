# SPDX-License-Identifier: BSD-2-Clause
"""One open port for several endpoints."""

from __future__ import annotations

import pytest

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.errors import Closed, LinkError
from ipoibu.base.ib import PartitionParams, PortInfo
from ipoibu.fabric.base import Fabric
from ipoibu.fabric.plain import PlainPort
from ipoibu.fabric.shared_port import SharedPort

GID = Gid.parse("fe80::1")


class FakePort(PlainPort):
    def __init__(self) -> None:
        self._info = PortInfo("soft:eth0", 1, GID, GID.interface_id, 2048, "Ethernet", "eth0")
        self.answers: list[bool | LinkError] = []
        self.opened: list[PartitionParams] = []
        self.closed = 0

    @property
    def info(self) -> PortInfo:
        return self._info

    def active(self) -> bool:
        answer = self.answers.pop(0) if self.answers else True
        if isinstance(answer, LinkError):
            raise answer
        return answer

    def open_ud(self, params: PartitionParams) -> Fabric:
        self.opened.append(params)
        raise LinkError("no more queue pairs")

    def close(self) -> None:
        self.closed += 1


def test_the_last_user_closes_the_port_whatever_the_order() -> None:
    port = FakePort()
    first = SharedPort.wrap(port)
    second, third = first.share(), first.share()
    first.close()
    third.close()
    first.close()  # again: it counts once
    assert (port.closed, second.users) == (0, 1)
    second.close()
    assert (port.closed, second.users) == (1, 0)
    second.close()
    assert port.closed == 1


def test_a_lent_port_is_its_lenders_to_close() -> None:
    port = FakePort()
    SharedPort.wrap(port, lent=True).close()
    assert port.closed == 0


def test_a_closed_port_has_no_new_users() -> None:
    shared = SharedPort.wrap(FakePort())
    shared.close()
    with pytest.raises(Closed, match="soft:eth0/1: the port is closed"):
        shared.share()


def test_every_other_user_hears_once_of_a_port_that_one_user_saw_down() -> None:
    port = FakePort()
    first = SharedPort.wrap(port)
    second = first.share()
    port.answers = [False]  # down between two calls, reported once
    assert not first.active()
    assert first.active()
    assert not second.active()
    assert second.active()


def test_a_user_who_knows_that_the_port_is_down_hears_at_once_that_it_is_up() -> None:
    port = FakePort()
    first = SharedPort.wrap(port)
    second = first.share()
    port.answers = [False, False, True, True]
    assert [user.active() for user in (first, second, first, second)] == [False, False, True, True]


def test_the_loss_of_the_device_is_announced_to_all_and_stays() -> None:
    port = FakePort()
    first = SharedPort.wrap(port)
    second = first.share()
    port.answers = [LinkError("gone")]
    for user in (first, second, first):
        with pytest.raises(LinkError, match="gone"):
            user.active()


def test_a_users_port_is_the_port() -> None:
    port = FakePort()
    user = SharedPort.wrap(port)
    params = PartitionParams(PKey(0x8001), 0x0B1B, 2048)
    assert user.info is port.info
    with pytest.raises(LinkError, match="no more queue pairs"):
        user.open_ud(params)
    assert port.opened == [params]
