# SPDX-License-Identifier: BSD-2-Clause
"""Endpoints on ports that have a subnet administrator: `FakeSa` and the in-process fabric."""

from __future__ import annotations

import ipaddress
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from ipoibu import Endpoint, EndpointConfig, PKey
from ipoibu._core import CDevice, MemorySwitch, TunPacketDevice
from ipoibu.base.addr import Gid
from ipoibu.endpoint.callbacks import Callbacks
from ipoibu.fabric.memory import MemoryPort
from ipoibu.fabric.sa.client import SaClient
from ipoibu.proto.sa.requests import Pace
from ipoibu.wire import mgid
from ipoibu.wire.mcmember import JoinState
from ipoibu.wire.notice import Notice, Trap
from tests.doubles.fake_sa import FakePort, FakeSa, port_gid

DEFAULT: Final = PKey(0xFFFF)
BROADCAST: Final = mgid.broadcast(DEFAULT)
PACE: Final = Pace(timeout_s=0.05, attempts=2, probe_min_s=0.02, probe_max_s=0.05)


class IbPort(MemoryPort):
    """A memory port of host `number` at the SA `sa`."""

    def __init__(
        self,
        switch: MemorySwitch,
        sa: FakeSa,
        number: int,
        pkeys: tuple[int, ...] = (0xFFFF,),
        mtu_bytes: int = 2048,
    ) -> None:
        super().__init__(switch, port_gid(number), active_mtu_bytes=mtu_bytes)
        self.mads = FakePort(sa, number, pkeys)
        self._sa = SaClient.start(lambda: SaClient(self.mads, pace=PACE), confirm_s=0.1)

    def describe(self, device: str, number: int) -> None:
        """Be this port of that device."""
        self._info = replace(self._info, device=device, port=number)

    @property
    def sa(self) -> SaClient:
        return self._sa

    def close(self) -> None:
        self.sa.close()


class Subnet:
    """A switch, its SA, and endpoints on them."""

    def __init__(self) -> None:
        self.sa = FakeSa()
        self.sa.make_broadcast(DEFAULT)
        self.switch = MemorySwitch(7)
        self.ports: list[IbPort] = []
        self.endpoints: list[Endpoint] = []
        self.failures: list[str] = []
        self.mtus: list[int] = []

    def port(self, pkeys: tuple[int, ...] = (0xFFFF,), mtu_bytes: int = 2048) -> IbPort:
        number = len(self.ports) + 2
        self.ports.append(IbPort(self.switch, self.sa, number, pkeys, mtu_bytes))
        return self.ports[-1]

    def host(
        self,
        pkeys: tuple[int, ...] = (0xFFFF,),
        port_mtu_bytes: int = 2048,
        device: TunPacketDevice | CDevice | None = None,
        **fields: Any,
    ) -> Endpoint:
        port = self.port(pkeys, port_mtu_bytes)
        number = len(self.ports)
        config = EndpointConfig(f"h{number}", "memory", **fields)
        endpoint = Endpoint(
            config,
            device=device,
            port=port,
            callbacks=Callbacks(on_failure=self.failures.append, on_mtu=self.mtus.append),
        )
        self.endpoints.append(endpoint)
        endpoint.open()
        until(lambda: bool(endpoint.show()["state"] == "up"))
        endpoint.address_added(ipaddress.ip_interface(f"10.0.0.{number}/24"))
        return endpoint

    def close(self) -> None:
        for endpoint in self.endpoints:
            endpoint.close()
        for port in self.ports:
            port.close()


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)


def udp(source: int, target: str, data: bytes) -> bytes:
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(data), 0, 0, 64, 17, 0)
    ends = ipaddress.ip_address(f"10.0.0.{source}"), ipaddress.ip_address(target)
    return head + ends[0].packed + ends[1].packed + data


def passes(subnet: Subnet, source: int, target: int, data: bytes) -> bool:
    """Whether the packet arrives, perhaps after others that waited for the same path."""
    packet = udp(source, f"10.0.0.{target}", data)
    subnet.endpoints[source - 1].send([packet])
    return _arrives(subnet, target, packet, 10)


def passes_again(subnet: Subnet, source: int, target: int, data: bytes) -> bool:
    """Whether the packet arrives when the source repeats it.

    Until its engine has handled a message of the target's new queue pair, packets go to the old one.
    """
    packet = udp(source, f"10.0.0.{target}", data)
    end = time.monotonic() + 10
    while time.monotonic() < end:
        subnet.endpoints[source - 1].send([packet])
        if _arrives(subnet, target, packet, 0.5):
            return True
    return False


def _arrives(subnet: Subnet, target: int, packet: bytes, within_s: float) -> bool:
    end = time.monotonic() + within_s
    while received := subnet.endpoints[target - 1].recv(timeout=max(0, end - time.monotonic())):
        if packet in received:
            return True
    return False


def knows(endpoint: Endpoint, neighbour: Endpoint) -> bool:
    """Whether the endpoint has the present hardware address of a neighbour."""
    return str(neighbour.hwaddr) in [entry["hwaddr"] for entry in endpoint.neighbours()]


def report(subnet: Subnet, trap: Trap, group: Gid) -> None:
    """Report a trap to all subscribers, on the loop of the first host's port."""

    async def report_trap(sa: FakeSa) -> None:
        sa.report(Notice(trap, group))

    subnet.ports[0].sa.submit(lambda: report_trap(subnet.sa)).result()


def states(sa: FakeSa, group: Any, host: int) -> JoinState:
    entry = sa.groups.get(group)
    return entry.members.get(port_gid(host), JoinState(0)) if entry else JoinState(0)


def receives(endpoint: Endpoint, group: Gid) -> bool:
    """Return whether the queue pair is attached; the SA knows the membership earlier."""
    states = [one["state"] for one in endpoint.groups() if one["mgid"] == str(group)]
    return states == ["member"]
