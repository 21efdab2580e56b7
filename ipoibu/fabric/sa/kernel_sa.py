# SPDX-License-Identifier: BSD-2-Clause
"""The SA client's requests without umad: the kernel's rdma_cm carries them out.

`/dev/infiniband/umad*` is for root on most machines, `/dev/infiniband/rdma_cm` for everybody.
`KernelSaPort` takes the datagrams that the SA client sends, has rdma_cm do what they ask, and hands the
client the datagrams that an SA would have answered:

- A join becomes a join in port space IPOIB. The kernel takes Q_Key, MTU and rate from the broadcast group
  of its own interface in the partition, so that interface has to be up, in this network namespace. The
  kernel counts all members of the port together, ib_ipoib's too (M4), and joins again by itself when the
  SA has forgotten the port.
- A path becomes the resolution of a route between two GIDs (AF_IB).
- Everything else is refused as an SA refuses it: lists of groups, memberships that do not count (M7), and
  reports.

Kernel: drivers/infiniband/core/cma.c, cma_join_ib_multicast and cma_resolve_ib_route.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import select
import socket
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.errors import BadFrame, LinkError, NoSuchDevice
from ipoibu.base.limits import ENCAP_LEN, IB_MTUS
from ipoibu.fabric.cm.librdmacm import (
    PORT_SPACE_IB,
    PORT_SPACE_IPOIB,
    CmEvent,
    CmEventType,
    CmId,
    EventChannel,
    PortAddress,
    SocketAddress,
)
from ipoibu.fabric.sa.kernel_ipoib import KernelIpoib, kernel_interfaces
from ipoibu.fabric.sa.mad_port import MadIn, MadPortInfo, MadTo
from ipoibu.fabric.sa.memberships import is_broadcast
from ipoibu.fabric.verbs.roce_gid import local_addresses
from ipoibu.proto.machine.backoff import Repeats
from ipoibu.wire import mad, mcmember, mgid, pathrecord, sa
from ipoibu.wire.mad import Method
from ipoibu.wire.mcmember import JoinState, McMemberRecord
from ipoibu.wire.pathrecord import PathQuery
from ipoibu.wire.sa import Attribute, Capability2, ClassPortInfo, SaMad, Status

_log = logging.getLogger(__name__)

SYSFS: Final = Path("/sys/class/infiniband")
_SIOCGIFADDR: Final = 0x8915
_IFREQ: Final = struct.Struct("16s4x4s16x")  # name, then a sockaddr_in
_LINK_MTU_BYTES: Final = 2048  # of a link whose MTU we cannot see: OpenSM's default
_RESPONSE_TIME: Final = 16  # a code: 268 ms
_NO_TIME: Final = (-errno.ETIMEDOUT, -errno.ENETRESET)
_SEND_ONLY: Final = JoinState.SEND_ONLY_FULL_MEMBER
_ANSWERS: Final = {
    Method.DELETE: Method.DELETE_RESPONSE,
    Method.GET_TABLE: Method.GET_TABLE_RESPONSE,
}

_Membership = tuple[Gid, JoinState]


@dataclass(slots=True)
class _Member:
    """A membership at the kernel; `record` is None until the kernel has joined."""

    id: CmId
    record: McMemberRecord | None = None
    waiting: list[SaMad] = field(default_factory=list)
    is_send_only: bool = False
    is_look_up: bool = False


@dataclass(slots=True)
class _Route:
    """A path that the kernel resolves."""

    id: CmId
    request: SaMad
    timeout_ms: int


class KernelSaPort:
    """A `MadPort` for the class of the SA. `LinkError`, `NoSuchDevice` or `NotPermitted` if it does not open.

    `interfaces` returns the kernel's own interfaces on the port.
    """

    hears_unasked = False

    def __init__(
        self,
        device: str,
        port: int = 1,
        *,
        sysfs: Path | None = None,
        interfaces: Callable[[], tuple[KernelIpoib, ...]] | None = None,
    ) -> None:
        self._device, self._port = device, port
        self._directory = (sysfs or SYSFS) / device / "ports" / str(port)
        self._interfaces = interfaces or partial(kernel_interfaces, device, port)
        self._info = self.look()
        self._answers: deque[MadIn] = deque()
        self._members: dict[_Membership, _Member] = {}
        self._routes: dict[CmId, _Route] = {}
        self._complaints = Repeats()
        self._channel = EventChannel()
        self._ready = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)  # readable: an answer waits
        self._epoll = select.epoll()
        self._epoll.register(self._ready, select.EPOLLIN)
        self._epoll.register(self._channel.fileno(), select.EPOLLIN)

    def look(self) -> MadPortInfo:
        """Read the port's attributes in sysfs, as libibumad does."""
        if not self._directory.is_dir():
            raise NoSuchDevice(f"{self._device}/{self._port}: no such InfiniBand port")
        if self._text("link_layer") != "InfiniBand":
            raise LinkError(f"{self._device}/{self._port}: not an InfiniBand port")
        try:
            keys = sorted((self._directory / "pkeys").iterdir(), key=lambda path: int(path.name))
        except OSError as error:  # the device goes
            raise NoSuchDevice(f"{self._device}/{self._port}: pkeys: {error.strerror}") from error
        return MadPortInfo(
            self._device,
            self._port,
            self._text("state").endswith("ACTIVE"),
            self._number("lid"),
            self._number("sm_lid"),
            self._number("sm_sl"),
            Gid.parse(self._text("gids/0")),
            tuple(PKey(self._number(f"pkeys/{key.name}")) for key in keys),
        )

    def fileno(self) -> int:
        return self._epoll.fileno()

    def send(self, raw: bytes, to: MadTo, wait_s: float) -> None:
        """Begin what the request asks for; `receive` returns the answer."""
        self._take_events()
        request = sa.parse_untrusted(raw)
        try:
            self._begin(request, round(wait_s * 1000))
        except BadFrame:
            self._refuse(request, Status.REQUEST_INVALID)

    def receive(self) -> MadIn | None:
        """Take the kernel's events, and return the next answer, or None."""
        self._take_events()
        if self._answers:
            return self._answers.popleft()
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._ready)
        return None

    def close(self) -> None:
        if self._epoll.closed:
            return
        self._epoll.close()
        os.close(self._ready)
        self._channel.close()
        self._members.clear()
        self._routes.clear()

    # ---- requests

    def _begin(self, request: SaMad, timeout_ms: int) -> None:
        match request.method, request.attribute:
            case Method.GET, Attribute.CLASS_PORT_INFO:
                info = ClassPortInfo(0, Capability2.SEND_ONLY_FULL_MEMBER, _RESPONSE_TIME)
                self._answer(request, info.pack())
            case Method.GET, Attribute.PATH_RECORD:
                self._find_path(request, pathrecord.query_untrusted(request.data), timeout_ms)
            case Method.SET, Attribute.MC_MEMBER_RECORD:
                self._join(request, mcmember.request_untrusted(request.data, request.mask))
            case Method.GET, Attribute.MC_MEMBER_RECORD:
                self._look_up(request, mcmember.request_untrusted(request.data, request.mask))
            case Method.DELETE, Attribute.MC_MEMBER_RECORD:
                self._leave(request, mcmember.request_untrusted(request.data, request.mask))
            case _:
                self._refuse(request, Status.BAD_METHOD)

    def _join(self, request: SaMad, record: McMemberRecord) -> None:
        group, state = record.mgid, record.join_state
        if group is None or state not in (JoinState.FULL_MEMBER, _SEND_ONLY):
            self._refuse(request, Status.BAD_VALUE)
            return
        self._become(request, (group, state), is_send_only=state == _SEND_ONLY)

    def _become(
        self,
        request: SaMad,
        key: _Membership,
        *,
        is_send_only: bool = False,
        is_look_up: bool = False,
    ) -> None:
        member = self._members.get(key)
        if member is not None and member.record is not None:
            self._answer(request, member.record.pack())
            return
        if member is not None:
            member.waiting = [request]  # a retry
            return
        interface = self._interface(mgid.parse_untrusted(key[0]).pkey)
        address = None if interface is None else _address_of(interface.name)
        if address is None:
            name = interface.name if interface is not None else "its own interface"
            self._complain(
                f"the kernel joins groups for us only while {name} is up, with an IP address, in "
                "this network namespace"
            )
            self._refuse(request, Status.NO_RECORDS)
            return
        try:
            cm_id = self._channel.create(PORT_SPACE_IPOIB)
        except OSError as error:
            self._fail(request, error)
            return
        member = _Member(cm_id, None, [request], is_send_only, is_look_up)
        self._members[key] = member
        try:
            cm_id.bind(address)
            self._ask(key, member)
        except OSError as error:
            del self._members[key]
            cm_id.close()
            self._fail(request, error)

    def _ask(self, key: _Membership, member: _Member) -> None:
        group = PortAddress(key[0], mgid.parse_untrusted(key[0]).pkey)
        member.id.join(group, to_send_only=member.is_send_only)

    def _look_up(self, request: SaMad, record: McMemberRecord) -> None:
        """Answer for the groups that we are in. For the broadcast group become a member for a moment."""
        group = record.mgid
        for (held, _), member in self._members.items():
            if held == group and member.record is not None:
                self._answer(request, member.record.pack())
                return
        if group is None or record.port_gid is not None or not is_broadcast(group):
            self._refuse(request, Status.NO_RECORDS)
            return
        self._become(request, (group, JoinState.NON_MEMBER), is_look_up=True)

    def _leave(self, request: SaMad, record: McMemberRecord) -> None:
        state = record.join_state or JoinState.FULL_MEMBER
        member = None if record.mgid is None else self._members.pop((record.mgid, state), None)
        if member is None:
            self._refuse(request, Status.REQUEST_INVALID)
            return
        member.id.close()
        self._answer(request, request.data)

    def _find_path(self, request: SaMad, query: PathQuery, timeout_ms: int) -> None:
        try:
            cm_id = self._channel.create(PORT_SPACE_IB)
        except OSError as error:
            self._fail(request, error)
            return
        route = self._routes[cm_id] = _Route(cm_id, request, max(timeout_ms, 1))
        try:
            cm_id.bind(PortAddress(query.sgid, query.pkey))
            cm_id.resolve_address(PortAddress(query.dgid, query.pkey, 0), route.timeout_ms)
        except OSError as error:
            self._end_route(cm_id)
            self._fail(request, error)

    # ---- events

    def _take_events(self) -> None:
        try:
            while (event := self._channel.event()) is not None:
                self._take(event)
        except OSError as error:
            self._complain(f"rdma_cm: {error.strerror}")

    def _take(self, event: CmEvent) -> None:
        route = self._routes.get(event.id)
        if route is not None:
            self._take_route(event, route)
            return
        for key, member in self._members.items():
            if member.id is event.id:
                self._take_membership(event, key, member)
                return

    def _take_route(self, event: CmEvent, route: _Route) -> None:
        match event.type:
            case CmEventType.ADDR_RESOLVED:
                try:
                    route.id.resolve_route(route.timeout_ms)
                except OSError as error:
                    self._end_route(route.id)
                    self._fail(route.request, error)
                return
            case CmEventType.ROUTE_RESOLVED:
                path = route.id.path()
                if path is None:
                    self._refuse(route.request, Status.NO_RECORDS)
                else:
                    self._answer(route.request, path.pack())
            case CmEventType.ADDR_ERROR | CmEventType.ROUTE_ERROR if event.status not in _NO_TIME:
                self._refuse(route.request, Status.NO_RECORDS)
        self._end_route(route.id)

    def _take_membership(self, event: CmEvent, key: _Membership, member: _Member) -> None:
        if event.type is CmEventType.MULTICAST_JOIN and event.group is not None:
            member.record = self._record(key, event)
            for request in member.waiting:
                self._answer(request, member.record.pack())
            member.waiting.clear()
            if member.is_look_up:
                del self._members[key]
                member.id.close()
            return
        if member.is_send_only and member.record is None and event.status not in _NO_TIME:
            # The SA lets no port send only: be a full member, as ib_ipoib is then.
            member.is_send_only = False
            try:
                self._ask(key, member)
                return
            except OSError as error:
                self._complain(f"join {key[0]}: {error.strerror}")
        del self._members[key]
        member.id.close()
        if event.status not in _NO_TIME:
            for request in member.waiting:
                self._refuse(request, Status.REQUEST_INVALID)
        elif member.record is not None:
            self._complain(f"the kernel lost the membership of {key[0]}")

    def _record(self, key: _Membership, event: CmEvent) -> McMemberRecord:
        assert event.group is not None, "the event of a join has a group"
        group, state = key
        to, parts = event.group.destination, mgid.parse_untrusted(group)
        return McMemberRecord(
            mgid=group,
            port_gid=self._info.gid,
            qkey=event.group.qkey,
            mlid=to.dlid,
            mtu_bytes=self._link_mtu_bytes(parts.pkey),
            traffic_class=to.traffic_class,
            pkey=parts.pkey,
            rate=to.static_rate,
            lifetime=0,
            sl=to.sl,
            flow_label=to.flow_label,
            hop_limit=to.hop_limit,
            scope=parts.scope,
            join_state=state,
            proxy=False,
        )

    # ---- the kernel's interface

    def _interface(self, pkey: PKey) -> KernelIpoib | None:
        return next((it for it in self._interfaces() if it.pkey == pkey.full), None)

    def _link_mtu_bytes(self, pkey: PKey) -> int:
        """Return the link's InfiniBand MTU, which rdma_cm does not tell: the one that the MTU of the
        kernel's interface fits in. In connected mode that MTU says nothing about the link."""
        interface = self._interface(pkey)
        if interface is None or interface.is_connected:
            return _LINK_MTU_BYTES
        wanted = interface.mtu_bytes + ENCAP_LEN
        return next((mtu for mtu in IB_MTUS if mtu >= wanted), _LINK_MTU_BYTES)

    # ---- answers

    def _answer(self, request: SaMad, data: bytes, status: int = Status.OK) -> None:
        method = _ANSWERS.get(Method(request.method), Method.GET_RESPONSE)
        answer = replace(request, method=method, status=status, data=data[: sa.DATA_LEN])
        self._answers.append(MadIn(answer.pack(), self._info.sa_lid, mad.GSI_QPN))
        os.eventfd_write(self._ready, 1)

    def _refuse(self, request: SaMad, status: Status) -> None:
        self._answer(request, request.data, status)

    def _fail(self, request: SaMad, error: OSError) -> None:
        self._complain(f"rdma_cm: {error.strerror}")
        self._refuse(request, Status.REQUEST_INVALID)

    def _complain(self, text: str) -> None:
        if self._complaints.add():
            _log.warning("%s/%s: %s", self._device, self._port, text)

    def _end_route(self, cm_id: CmId) -> None:
        del self._routes[cm_id]
        cm_id.close()

    def _text(self, name: str) -> str:
        try:
            return (self._directory / name).read_text("ascii").strip()
        except OSError as error:
            raise NoSuchDevice(f"{self._device}/{self._port}: {name}: {error.strerror}") from error

    def _number(self, name: str) -> int:
        return int(self._text(name), 0)


def _address_of(netdev: str) -> SocketAddress | None:
    """Return an IP address of the net device, IPv6 first; None if it has none."""
    try:
        index = socket.if_nametoindex(netdev)
    except OSError:
        return None
    for ifindex, gid in sorted(local_addresses(), key=lambda it: it[1].raw):
        if ifindex == index:
            return SocketAddress(gid.ip, scope=index)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        try:
            raw = fcntl.ioctl(opened, _SIOCGIFADDR, _IFREQ.pack(netdev.encode(), b""))
        except OSError:
            return None
    return SocketAddress(IPv4Address(_IFREQ.unpack(raw[: _IFREQ.size])[1]))
