# SPDX-License-Identifier: BSD-2-Clause
"""The SA client over rdma_cm instead of umad: the test plays the kernel. tests/lab tries the real one."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from ipoibu.base.addr import Gid, PKey, Qpn
from ipoibu.base.errors import IpoibuError, LinkError, NoSuchDevice, NotPermitted
from ipoibu.base.ib import Destination, PartitionParams
from ipoibu.fabric.cm.librdmacm import (
    PORT_SPACE_IB,
    PORT_SPACE_IPOIB,
    CmEvent,
    CmEventType,
    CmGroup,
    PortAddress,
    SocketAddress,
)
from ipoibu.fabric.sa import client as sa_client
from ipoibu.fabric.sa import kernel_sa
from ipoibu.fabric.sa.client import SaClient
from ipoibu.fabric.sa.kernel_ipoib import KernelIpoib
from ipoibu.fabric.sa.kernel_sa import KernelSaPort
from ipoibu.proto.sa.errors import InvalidRequest, NoRecords, Unsupported
from ipoibu.wire import mgid
from ipoibu.wire.mcmember import JoinState
from ipoibu.wire.notice import Trap
from ipoibu.wire.pathrecord import PathRecord
from tests.doubles.event_channel import EventChannel

OURS: Final = Gid.parse("fe80::2:c903:1:1")
PEER: Final = Gid.parse("fe80::2:c903:1:2")
DEFAULT: Final = PKey(0xFFFF)
BROADCAST: Final = mgid.broadcast(DEFAULT)
GROUP: Final = Gid.parse("ff12:401b:ffff::e:102")
PARAMS: Final = PartitionParams(pkey=DEFAULT, qkey=0xB1B, mtu_bytes=4096)
PATH: Final = PathRecord(PEER, OURS, 7, 3, DEFAULT, sl=2, mtu_bytes=4096, rate=3)
IB0: Final = KernelIpoib("ib0", DEFAULT, 4092, is_connected=False)
ADDRESS: Final = SocketAddress(OURS.ip, scope=5)
T = CmEventType


class Id:
    """An identifier that records its calls; the kernel's answers are `Kernel.answers`, by call."""

    def __init__(self, kernel: Kernel, space: int) -> None:
        self.kernel = kernel
        self.calls: list[tuple[Any, ...]] = [("create", space)]
        self.route: PathRecord | None = None
        kernel.ids.append(self)

    def _call(self, name: str, *words: Any) -> None:
        self.calls.append((name, *words))
        answer = self.kernel.answers.get(name)
        if isinstance(answer, OSError):
            raise answer
        if answer is not None:
            self.kernel.emit(self, *answer(*words))

    def bind(self, address: Any) -> None:
        self._call("bind", address)

    def join(self, group: PortAddress, *, to_send_only: bool) -> None:
        self._call("join", group.gid, to_send_only)

    def resolve_address(self, target: PortAddress, timeout_ms: int) -> None:
        self._call("address", target.gid)

    def resolve_route(self, timeout_ms: int) -> None:
        self._call("route")

    def path(self) -> PathRecord | None:
        return self.route

    def close(self) -> None:
        self.calls.append(("close",))

    @property
    def is_closed(self) -> bool:
        return self.calls[-1] == ("close",)


Answer = Callable[..., tuple[CmEventType, int, CmGroup | None]]


def joined(group: Gid, to_send_only: bool) -> tuple[CmEventType, int, CmGroup | None]:
    to = Destination(group, Qpn(0xFFFFFF), dlid=0xC005, sl=2, static_rate=3, hop_limit=0)
    return T.MULTICAST_JOIN, 0, CmGroup(to, 0xB1B)


class Kernel(EventChannel):
    """rdma_cm's event channel."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[Id] = []
        self.answers: dict[str, Answer | OSError] = {
            "join": joined,
            "address": lambda gid: (T.ADDR_RESOLVED, 0, None),
            "route": lambda: (T.ROUTE_RESOLVED, 0, None),
        }

    def create(self, port_space: int) -> Id:
        made = Id(self, port_space)
        made.route = PATH
        return made

    def emit(self, about: Any, kind: CmEventType, status: int, group: CmGroup | None) -> None:
        self.add(CmEvent(kind, about, None, status, b"", 0, group))

    def close(self) -> None:
        """Do nothing: the test uses the kernel again."""

    def calls(self, name: str) -> list[tuple[Any, ...]]:
        return [call[1:] for each in self.ids for call in each.calls if call[0] == name]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    kernel = Kernel()
    monkeypatch.setattr(kernel_sa, "EventChannel", lambda: kernel)
    monkeypatch.setattr(kernel_sa, "_address_of", lambda netdev: ADDRESS)
    yield kernel
    os.close(kernel.fd)


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    port = tmp_path / "mlx5_0" / "ports" / "1"
    (port / "pkeys").mkdir(parents=True)
    (port / "gids").mkdir()
    texts = {
        "state": "4: ACTIVE",
        "lid": "0x3",
        "sm_lid": "0x1",
        "sm_sl": "0",
        "link_layer": "InfiniBand",
        "gids/0": "fe80:0000:0000:0000:0002:c903:0001:0001",
        "pkeys/0": "0xffff",
        "pkeys/1": "0x8001",
        "pkeys/2": "0x0000",
    }
    for name, text in texts.items():
        (port / name).write_text(text + "\n")
    return tmp_path


Ask = Callable[[SaClient], Awaitable[Any]]


def run(sysfs: Path, work: Ask, *interfaces: KernelIpoib) -> Any:
    """Return the result of `work` on a client of the port."""

    async def main() -> Any:
        port = KernelSaPort("mlx5_0", sysfs=sysfs, interfaces=lambda: interfaces or (IB0,))
        async with SaClient(port) as client:
            return await work(client)

    return asyncio.run(main())


def test_the_port_is_read_from_sysfs(sysfs: Path, kernel: Kernel) -> None:
    info = KernelSaPort("mlx5_0", sysfs=sysfs, interfaces=lambda: ()).look()
    assert (info.is_active, info.lid, info.sa_lid, info.gid) == (True, 3, 1, OURS)
    assert info.pkeys == (PKey(0xFFFF), PKey(0x8001), PKey(0))


def test_a_port_that_is_not_infiniband_is_refused(sysfs: Path, kernel: Kernel) -> None:
    (sysfs / "mlx5_0/ports/1/link_layer").write_text("Ethernet\n")
    with pytest.raises(LinkError, match="mlx5_0/1: not an InfiniBand port"):
        KernelSaPort("mlx5_0", sysfs=sysfs)
    with pytest.raises(NoSuchDevice, match="mlx5_0/2: no such InfiniBand port"):
        KernelSaPort("mlx5_0", 2, sysfs=sysfs)


def test_the_broadcast_groups_record_has_what_the_kernel_tells(sysfs: Path, kernel: Kernel) -> None:
    record = run(sysfs, lambda sa: sa.join(BROADCAST))
    assert (record.qkey, record.mlid, record.mtu_bytes, record.sl) == (0xB1B, 0xC005, 4096, 2)
    assert (record.pkey, record.scope, record.rate) == (DEFAULT, 2, 3)
    [member] = kernel.ids
    assert member.calls[:3] == [
        ("create", PORT_SPACE_IPOIB),
        ("bind", ADDRESS),
        ("join", BROADCAST, False),
    ]
    assert member.is_closed  # the client left at its end


@pytest.mark.parametrize(
    ("mtu_bytes", "is_connected", "link_mtu_bytes"),
    [(2044, False, 2048), (1500, False, 2048), (252, False, 256), (65520, True, 2048)],
)
def test_the_links_mtu_is_the_one_that_the_kernels_interface_fits_in(
    sysfs: Path, kernel: Kernel, mtu_bytes: int, is_connected: bool, link_mtu_bytes: int
) -> None:
    interface = KernelIpoib("ib0", DEFAULT, mtu_bytes, is_connected)
    record = run(sysfs, lambda sa: sa.join(BROADCAST), interface)
    assert record.mtu_bytes == link_mtu_bytes


def test_without_an_interface_of_the_kernel_the_log_says_what_is_missing(
    sysfs: Path, kernel: Kernel, caplog: pytest.LogCaptureFixture
) -> None:
    other = KernelIpoib("ib0.8001", PKey(0x8001), 2044, is_connected=False)
    with pytest.raises(NoRecords):
        run(sysfs, lambda sa: sa.join(BROADCAST), other)
    assert "only while its own interface is up, with an IP address" in caplog.text
    assert kernel.ids == []


def test_a_refused_call_is_a_refused_request(
    sysfs: Path, kernel: Kernel, caplog: pytest.LogCaptureFixture
) -> None:
    kernel.answers["join"] = OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    with pytest.raises(InvalidRequest):
        run(sysfs, lambda sa: sa.join(BROADCAST))
    assert "rdma_cm: Cannot assign requested address" in caplog.text
    assert all(each.is_closed for each in kernel.ids)


def test_each_membership_has_an_identifier_and_ends_with_it(sysfs: Path, kernel: Kernel) -> None:
    async def work(sa: SaClient) -> None:
        await sa.join(BROADCAST)
        await sa.join(GROUP, params=PARAMS)
        await sa.join_to_send(GROUP, PARAMS)
        assert kernel.calls("join") == [(BROADCAST, False), (GROUP, False), (GROUP, True)]
        await sa.leave(GROUP)
        assert [each.is_closed for each in kernel.ids] == [False, True, False]
        await sa.leave_to_send(GROUP)
        assert kernel.ids[2].is_closed

    run(sysfs, work)


def test_where_the_sa_lets_nobody_send_only_we_become_a_full_member(
    sysfs: Path, kernel: Kernel
) -> None:
    def answer(group: Gid, to_send_only: bool) -> tuple[CmEventType, int, CmGroup | None]:
        if to_send_only:
            return T.MULTICAST_ERROR, -errno.EINVAL, None
        return joined(group, to_send_only)

    kernel.answers["join"] = answer
    record = run(sysfs, lambda sa: sa.join_to_send(GROUP, PARAMS))
    assert record.mlid == 0xC005
    assert kernel.calls("join") == [(GROUP, True), (GROUP, False)]


def test_a_membership_that_the_kernel_loses_is_joined_again(
    sysfs: Path, kernel: Kernel, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(sa: SaClient) -> None:
        await sa.join(BROADCAST)
        assert (await sa.membership(BROADCAST)).mlid == 0xC005
        kernel.emit(kernel.ids[0], T.MULTICAST_ERROR, -errno.ENETRESET, None)
        with pytest.raises(NoRecords):
            await sa.membership(BROADCAST)
        assert kernel.ids[0].is_closed
        assert await sa.rejoin() == {}
        assert kernel.calls("join") == [(BROADCAST, False)] * 2

    with caplog.at_level(logging.WARNING):
        run(sysfs, work)
    assert f"the kernel lost the membership of {BROADCAST}" in caplog.text


def test_a_look_up_of_the_broadcast_group_joins_it_for_a_moment(
    sysfs: Path, kernel: Kernel
) -> None:
    assert run(sysfs, lambda sa: sa.group(BROADCAST)).qkey == 0xB1B
    [member] = kernel.ids
    assert member.is_closed
    with pytest.raises(NoRecords):
        run(sysfs, lambda sa: sa.group(GROUP))


def test_a_path_is_a_route_between_two_gids(sysfs: Path, kernel: Kernel) -> None:
    path = run(sysfs, lambda sa: sa.path(PEER, DEFAULT))
    assert (path.dlid, path.sl, path.rate, path.mtu_bytes) == (7, 2, 3, 4096)
    [route] = kernel.ids
    assert route.calls[0] == ("create", PORT_SPACE_IB)
    assert route.calls[1] == ("bind", PortAddress(OURS, DEFAULT))
    assert route.is_closed


@pytest.mark.parametrize("name", ["address", "route"])
def test_a_port_that_the_kernel_does_not_find_has_no_path(
    sysfs: Path, kernel: Kernel, name: str
) -> None:
    kind = T.ADDR_ERROR if name == "address" else T.ROUTE_ERROR
    kernel.answers[name] = lambda *words: (kind, -errno.EINVAL, None)
    with pytest.raises(NoRecords):
        run(sysfs, lambda sa: sa.path(PEER, DEFAULT))
    kernel.answers[name] = OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    with pytest.raises(InvalidRequest):
        run(sysfs, lambda sa: sa.path(PEER, DEFAULT))
    assert all(each.is_closed for each in kernel.ids)


def test_what_rdma_cm_cannot_do_is_unsupported(sysfs: Path, kernel: Kernel) -> None:
    with pytest.raises(Unsupported):
        run(sysfs, lambda sa: sa.groups(DEFAULT))
    with pytest.raises(Unsupported):
        run(sysfs, lambda sa: sa.join(GROUP, JoinState.NON_MEMBER))
    with pytest.raises(LinkError, match="no umad"):
        run(sysfs, lambda sa: sa.subscribe(Trap.GROUP_CREATED))


def test_the_client_uses_it_where_umad_is_refused_and_says_so(
    sysfs: Path, kernel: Kernel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(device: str, port: int) -> None:
        raise NotPermitted(f"{device}/{port}: umad is closed")

    async def main() -> int:
        async with SaClient.open("mlx5_0") as client:
            return client.info.lid

    monkeypatch.setattr(sa_client, "UmadPort", refuse)
    monkeypatch.setattr(kernel_sa, "SYSFS", sysfs)
    assert asyncio.run(main()) == 3
    assert "mlx5_0/1: umad is closed: rdma_cm asks the subnet administrator" in caplog.text
    (sysfs / "mlx5_0/ports/1/link_layer").write_text("Ethernet\n")
    with pytest.raises(IpoibuError, match="umad is closed"):
        asyncio.run(main())
