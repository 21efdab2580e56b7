# SPDX-License-Identifier: BSD-2-Clause
"""Every port keeps the promises of `Port` and `Fabric`. tests/netns checks the built-in HCA likewise."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence

import pytest

from ipoibu.base.addr import Gid
from ipoibu.base.ib import PartitionParams
from ipoibu.fabric.base import Fabric, Port, RcQueuePair, TxQueue
from ipoibu.fabric.faults import FaultSpec, FaultyUd
from ipoibu.fabric.memory import MemoryPort, MemorySwitch
from ipoibu.fabric.shared_port import SharedPort
from ipoibu.fabric.verbs import link_layer
from ipoibu.fabric.verbs.port import VerbsPort
from ipoibu.fabric.wrapper import FabricWrapper
from tests.doubles.administered import IbPort
from tests.doubles.fake_sa import FakeSa
from tests.doubles.port_contract import PARAMS, check_packets, check_port
from tests.unit.fabric.verbs.verbs_fake import install, uninstall

MakePort = Callable[[MemorySwitch, int], Port]


class FaultyPort(SharedPort):
    def open_ud(self, params: PartitionParams) -> Fabric:
        return FaultyUd(super().open_ud(params), FaultSpec())


def memory(switch: MemorySwitch, number: int) -> Port:
    return MemoryPort(switch, Gid.parse(f"fe80::{number}"))


def faulty(switch: MemorySwitch, number: int) -> Port:
    return FaultyPort.wrap(memory(switch, number))


def shared(switch: MemorySwitch, number: int) -> Port:
    return SharedPort.wrap(memory(switch, number))


def administered(switch: MemorySwitch, number: int) -> Port:
    return IbPort(switch, FakeSa(), number)


@pytest.mark.parametrize("make", [memory, faulty, shared, administered])
def test_a_port_keeps_the_contract(make: MakePort) -> None:
    check_port(make(MemorySwitch(7), 1))


@pytest.mark.parametrize("make", [memory, faulty, shared])
def test_packets_pass_between_two_ports(make: MakePort) -> None:
    switch = MemorySwitch(7)
    check_packets(make(switch, 1), make(switch, 2))


@pytest.fixture
def verbs_port(monkeypatch: pytest.MonkeyPatch) -> Iterator[VerbsPort]:
    monkeypatch.setitem(sys.modules, "ipoibu._verbs", install(monkeypatch))
    gid = Gid.parse("fe80::ff:fe00:101")
    monkeypatch.setattr(link_layer, "local_addresses", lambda: {(1, gid)})
    yield VerbsPort("rxe0")
    uninstall()


def test_an_rdma_port_keeps_the_contract(verbs_port: VerbsPort) -> None:
    check_port(verbs_port)


@pytest.mark.parametrize(("wrapper", "contract"), [(FaultyUd, Fabric), (SharedPort, Port)])
def test_a_wrapper_passes_on_every_member_of_the_contract(wrapper: type, contract: type) -> None:
    members = {name for name, _ in inspect.getmembers(contract) if not name.startswith("_")}
    own_classes = wrapper.__mro__[: wrapper.__mro__.index(contract)]
    assert members <= {name for cls in own_classes for name in vars(cls)}


@pytest.mark.parametrize("contract", [Port, Fabric, RcQueuePair])
def test_every_member_of_a_contract_is_abstract(contract: type) -> None:
    public = {name for name in dir(contract) if not name.startswith("_")}
    assert public == vars(contract)["__abstractmethods__"]


def test_a_wrapper_that_forgets_a_member_is_not_made() -> None:
    class Forgetful(FabricWrapper):
        @property
        def native(self) -> object:
            return self._inner.native

        def open_tx_queues(self, count: int) -> Sequence[TxQueue]:
            return self._inner.open_tx_queues(count)

        def counters(self) -> dict[str, int]:
            return self._inner.counters()

    inner = memory(MemorySwitch(7), 1).open_ud(PARAMS)
    with pytest.raises(TypeError, match="open_guest_queue_pairs"):
        Forgetful(inner)  # type: ignore[abstract]
    inner.close()
