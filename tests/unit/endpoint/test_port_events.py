# SPDX-License-Identifier: BSD-2-Clause
"""The endpoint asks a device that reports an event at once, not after a second."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import Mock

import pytest

from ipoibu import Endpoint, EndpointConfig, LinkError
from ipoibu._core import MemorySwitch
from ipoibu.base.addr import Gid, HwAddr
from ipoibu.base.ib import PartitionParams
from ipoibu.endpoint.callbacks import Callbacks
from ipoibu.fabric.faults import FaultSpec
from ipoibu.fabric.memory import MemoryPort, MemoryUd
from tests.doubles.administered import until
from tests.doubles.fake_sa import port_gid


class TellingUd(MemoryUd):
    events_fd: int

    @property
    def event_fd(self) -> int:
        return self.events_fd


class TellingPort(MemoryPort):
    """`say` makes the descriptor readable until `active` has taken the event."""

    def __init__(self) -> None:
        super().__init__(MemorySwitch(1), port_gid(2))
        self.event_fd = os.eventfd(0, os.EFD_NONBLOCK)
        self.looks = 0
        self.is_gone = False

    def say(self) -> None:
        os.eventfd_write(self.event_fd, 1)

    def active(self) -> bool:
        self.looks += 1
        if self.is_gone:
            raise LinkError("the device failed")  # and the descriptor stays readable
        os.eventfd_read(self.event_fd)
        return super().active()

    def open_ud(self, params: PartitionParams) -> TellingUd:
        ud = TellingUd(self._switch, self.info)
        ud.events_fd = self.event_fd
        return ud


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[TellingPort]:
    monkeypatch.setattr("ipoibu.endpoint.interface.port_follower.PORT_POLL_S", 3600)
    port = TellingPort()
    yield port
    os.close(port.event_fd)


def state(endpoint: Endpoint) -> str:
    return str(endpoint.show()["state"])


@pytest.mark.parametrize("faults", [None, FaultSpec()])
def test_news_of_the_device_are_taken_at_once(port: TellingPort, faults: FaultSpec | None) -> None:
    config = EndpointConfig("h", "memory", faults=faults)
    with Endpoint(config, port=port) as endpoint:
        until(lambda: state(endpoint) == "up")
        port.up = False
        port.say()
        until(lambda: state(endpoint) == "down")
        port.up = True
        port.say()
        until(lambda: state(endpoint) == "up")
    assert port.looks == 2


def test_a_new_address_that_rdma_cm_cannot_listen_on_yet_is_taken_at_the_next_look(
    port: TellingPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = [LinkError("rdma_cm: Cannot assign requested address")]
    asked: list[Gid] = []

    def rename(hwaddr: HwAddr) -> None:
        asked.append(hwaddr.gid)
        if refusals:
            raise refusals.pop()

    with Endpoint(EndpointConfig("h", "memory"), port=port) as endpoint:
        until(lambda: state(endpoint) == "up")
        engine, after = endpoint._engine, port_gid(3)
        event = Mock(wraps=engine.port_event)
        monkeypatch.setattr(engine, "port_event", event)
        monkeypatch.setattr(endpoint._shell, "rc", Mock(rename=rename))
        port._info = replace(port.info, gid=after)
        port.say()
        until(lambda: len(asked) == 1)
        assert not event.called
        port.say()
        until(lambda: event.called)
        assert event.call_args.args[1:] == ("gid", endpoint.hwaddr)
    assert asked == [after, after]


def test_a_device_that_failed_is_asked_no_more(port: TellingPort) -> None:
    failures: list[str] = []
    config = EndpointConfig("h", "memory")
    with Endpoint(config, port=port, callbacks=Callbacks(on_failure=failures.append)) as endpoint:
        port.is_gone = True
        port.say()
        until(lambda: failures == ["the device failed"])
        state(endpoint)  # a turn of the loop, in which the endpoint would ask again
        state(endpoint)
    assert port.looks == 1
