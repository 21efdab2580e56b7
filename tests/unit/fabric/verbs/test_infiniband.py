# SPDX-License-Identifier: BSD-2-Clause
"""A verbs port whose link layer is InfiniBand, over a pyverbs and an SA that the test plays."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator

import pytest

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.errors import LinkError
from ipoibu.base.ib import PartitionParams
from ipoibu.fabric.cm import rdma_cm
from ipoibu.fabric.cm.gsi_cm import GsiCm
from ipoibu.fabric.flush import Flush
from ipoibu.fabric.sa.client import SaClient
from ipoibu.fabric.verbs import link_layer
from ipoibu.fabric.verbs.port import VerbsPort
from tests.doubles.fake_sa import FakePort, FakeSa
from tests.unit.fabric.cm.test_rdma_cm import Channel

from .verbs_fake import Fabric, Membership, install, machine, uninstall

GID = Gid.parse("fe80::2:c903:1:1")
OTHER_GID = Gid.parse("fe80::2:c903:1:2")
GROUP = Gid.parse("ff12:401b:8001::1")
PARAMS = PartitionParams(pkey=PKey(0x8001), qkey=0x0B1B, mtu_bytes=2048)


@pytest.fixture(autouse=True)
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[VerbsPort]:
    monkeypatch.setitem(sys.modules, "ipoibu._verbs", install(monkeypatch))
    machine().devices = {"mlx5_0": 0}
    machine().link_layer = 1
    machine().gids = [(0, str(GID), 0, 0, 1)]
    machine().pkeys = [0xFFFF, 0x8001]
    umad = FakePort(FakeSa())
    monkeypatch.setattr(SaClient, "open", lambda device, port: SaClient(umad))
    port = VerbsPort("mlx5_0")
    yield port
    port.close()
    assert umad.is_closed
    uninstall()


def test_the_first_gid_and_no_net_device_describe_it(port: VerbsPort) -> None:
    info = port.info
    assert (info.link_layer, info.gid, info.netdev) == ("InfiniBand", GID, None)
    assert port.sa is not None
    assert port.active()


def test_two_ports_of_a_device_are_open_at_once(
    port: VerbsPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has queue pairs at its own port, and its own end, as the rails of a bond need them."""
    machine().gids.append((0, str(OTHER_GID), 0, 0, 2))
    opened: list[tuple[str, int]] = []

    def open_client(device: str, number: int) -> SaClient:
        opened.append((device, number))
        return SaClient(FakePort(FakeSa()))

    monkeypatch.setattr(SaClient, "open", open_client)
    second = VerbsPort("mlx5_0", 2)
    assert (second.info.port, second.info.gid, port.info.gid) == (2, OTHER_GID, GID)
    for each in (port, second):
        each.open_ud(PARAMS)
    assert opened == [("mlx5_0", 2)]
    assert [made.options["port"] for made in Fabric.made] == [1, 2]
    Fabric.made[1].pending = 1  # PORT_DOWN: the C core drops the events of another port
    assert (port.active(), second.active()) == (True, False)
    second.close()
    assert port.active()
    assert port.open_ud(PARAMS).qpn


def test_its_queue_pair_makes_handles_at_once_and_has_the_partitions_key(port: VerbsPort) -> None:
    port.open_ud(PARAMS)
    options = Fabric.made[-1].options
    assert (options["resolves"], options["pkey_index"], options["sgid_index"]) == (False, 1, 0)


def test_a_group_is_attached_by_its_lid_and_no_net_device_asked(port: VerbsPort) -> None:
    ud = port.open_ud(PARAMS)
    ud.attach(GROUP, 0xC005)
    ud.attach(GROUP, 0xC005)
    ud.detach(GROUP)
    ud.detach(GROUP)
    assert Fabric.made[-1].log == [("attach", GROUP.raw, 0xC005), ("detach", GROUP.raw, 0xC005)]
    assert not Membership.groups


def test_a_group_that_has_another_lid_now_is_attached_anew(port: VerbsPort) -> None:
    ud = port.open_ud(PARAMS)
    ud.attach(GROUP, 0xC005)
    ud.attach(GROUP, 0xC009)
    assert [entry[0::2] for entry in Fabric.made[-1].log] == [
        ("attach", 0xC005),
        ("detach", 0xC005),
        ("attach", 0xC009),
    ]


def test_a_subnet_prefix_that_changed_is_taken(port: VerbsPort) -> None:
    port.open_ud(PARAMS)
    other = Gid.parse("fec0::2:c903:1:1")
    machine().gids = [(0, str(other), 0, 0, 1)]
    assert port.active()
    assert port.info.gid == other
    assert Fabric.made[-1].log == [("rebind", other.raw, 0)]


def test_a_port_below_the_links_mtu_is_down_and_no_net_device_is_blamed(
    port: VerbsPort, caplog: pytest.LogCaptureFixture
) -> None:
    port.open_ud(PARAMS)
    machine().active_mtu = 3
    assert not port.active()
    assert "the port's MTU fell to 1024, the link's is 2048" in caplog.text
    assert "ip link" not in caplog.text


@pytest.mark.parametrize(
    ("event", "flush"),
    [
        ("PKEYS_CHANGED", Flush.HEAVY),
        ("PORT_CHANGED", Flush.NORMAL),
        ("SUBNET_CHANGED", Flush.LIGHT),
    ],
)
def test_what_the_device_says_of_the_port_reaches_the_administrator(
    port: VerbsPort, monkeypatch: pytest.MonkeyPatch, event: str, flush: Flush
) -> None:
    flushes: list[Flush] = []
    monkeypatch.setattr(SaClient, "device_event", lambda self, flush: flushes.append(flush))
    port.open_ud(PARAMS)
    Fabric.made[-1].pending = getattr(sys.modules["ipoibu._verbs"], event)
    assert port.active()
    assert port.active()
    assert flushes == [flush]


class Services:
    """In place of queue pair 1: the kernel's manager is not there."""

    address = GID, 2

    def __init__(self, device: str, port: int, info: object) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC)

    def wait_ms(self) -> float | None: ...
    def arm(self) -> None: ...

    def receive(self) -> None: ...

    def close(self) -> None:
        os.close(self.fd)


def test_connections_are_our_own_managers_where_the_kernel_has_none(
    port: VerbsPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_layer, "UmadGsiPort", Services)
    cm = port.cm()
    assert isinstance(cm, GsiCm)
    assert cm.accepts


def test_connections_can_only_be_asked_for_where_the_kernel_has_a_manager(
    port: VerbsPort, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(device: str, port: int, info: object) -> None:
        raise LinkError("the kernel's ib_cm answers")

    monkeypatch.setattr(link_layer, "UmadGsiPort", refuse)
    monkeypatch.setattr(rdma_cm, "EventChannel", Channel)
    assert not port.cm().accepts
    assert "ib_cm answers; we can connect to peers, but they cannot connect to us" in caplog.text


def test_without_management_datagrams_the_device_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(device: str, port: int) -> SaClient:
        raise LinkError("no /dev/infiniband/umad*; run `modprobe ib_umad`")

    monkeypatch.setattr(SaClient, "open", refuse)
    with pytest.raises(LinkError, match="modprobe ib_umad"):
        VerbsPort("mlx5_0")
    assert machine().log[-1] == "close context"


def test_a_group_that_the_device_refuses_is_named(port: VerbsPort) -> None:
    ud = port.open_ud(PARAMS)
    Fabric.made[-1].errors["attach"] = OSError(errno.EINVAL, "Invalid argument")
    with pytest.raises(LinkError, match="Invalid argument"):
        ud.attach(GROUP, 0xC005)
