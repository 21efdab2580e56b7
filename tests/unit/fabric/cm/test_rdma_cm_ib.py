# SPDX-License-Identifier: BSD-2-Clause
"""Connections of an InfiniBand port by rdma_cm, which the test plays."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any, Final

import pytest

from ipoibu.base.addr import Gid, PKey, Qpn
from ipoibu.base.ib import Destination
from ipoibu.fabric.cm import rdma_cm
from ipoibu.fabric.cm.librdmacm import PORT_SPACE_IB, CmEventType, PortAddress
from ipoibu.fabric.cm.rdma_cm import RcTimeouts
from ipoibu.fabric.cm.rdma_cm_ib import IbRdmaCm
from ipoibu.proto.rc.events import Connect, Event, Handle, Replied, Role
from ipoibu.wire.cm_private import ServiceForm, service_id, service_ids
from tests.unit.fabric.cm.test_rdma_cm import ATTRIBUTES, PEER, WAIT_S, Channel, Id

OURS: Final = Gid.parse("fe80::2:c903:1:1")
PARTITION: Final = PKey(0x8001)
SERVICE: Final = service_id(ServiceForm.LINUX, Qpn(0x42))


class SpaceChannel(Channel):
    spaces: list[int]

    def create(self, port_space: int = 0) -> Id:
        self.spaces = [*getattr(self, "spaces", []), port_space]
        return super().create()


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[IbRdmaCm]:
    monkeypatch.setattr(rdma_cm, "EventChannel", SpaceChannel)
    made = IbRdmaCm("mlx5_0", lambda: OURS, RcTimeouts(14, 5, 6))
    yield made
    made.close()


def test_an_address_is_packed_as_the_kernel_has_it() -> None:
    """`struct sockaddr_ib` of include/rdma/ib.h: family 27, P_Key, GID, service ID and its mask."""
    raw = b"".join(PortAddress(PEER, PARTITION, SERVICE).pack())[:48]
    assert raw == bytes.fromhex(
        "1b00 8001 00000000 fe80000000000000 0000000000000002"
        "1000000000000042 ffffffffffffffff 0000000000000000"
    )
    ours = b"".join(PortAddress(OURS, PARTITION).pack())
    assert ours[24:48] == bytes(24)  # no service: any


def test_linuxs_service_is_asked_for_by_the_ports_gid_and_key(
    manager: IbRdmaCm,
) -> None:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    subscriber = manager.subscribe(service_ids(Qpn(0x41)), events.put, PARTITION)
    handle = Handle(Role.ACTIVE, 1)
    destination = Destination(PEER, Qpn(0x42), dlid=7)
    manager.request(
        subscriber, Connect(handle, destination, SERVICE, Qpn(0x111), 2048, b"hi", PARTITION)
    )
    channel: Any = Channel.now
    cm_id = channel.next()
    assert channel.spaces == [PORT_SPACE_IB]  # one identifier: there is no listener
    (_, ours), (_, theirs) = cm_id.take("bind", "resolve")
    assert ours == PortAddress(OURS, PARTITION)
    assert theirs == PortAddress(PEER, PARTITION, SERVICE)
    channel.emit(CmEventType.ADDR_RESOLVED, cm_id)
    cm_id.take("route")
    channel.emit(CmEventType.ROUTE_RESOLVED, cm_id)
    assert cm_id.take("connect") == [("connect", 0x111, b"hi", 5)]
    channel.emit(CmEventType.CONNECT_RESPONSE, cm_id, private=b"welcome")
    assert events.get(timeout=WAIT_S) == Replied(handle, ATTRIBUTES, b"welcome")


def test_it_says_that_nobody_can_ask_us(manager: IbRdmaCm) -> None:
    assert not manager.accepts
    assert manager.forms == (ServiceForm.LINUX, ServiceForm.RFC)
