# SPDX-License-Identifier: BSD-2-Clause
"""A RoCE or InfiniBand port of an RDMA device as a fabric: `rxe0`, `mlx5_0/2`. See docs/verbs.md.

Device, protection domain, completion queues and queue pair are pyverbs objects (verbs_objects);
packets are posted and polled in C (ext/verbs) on the queue pair that is inside of them.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import Counter
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

from ipoibu.addr import Gid, Qpn
from ipoibu.errors import IpoibuError, LinkError, NotPermitted, UsageError
from ipoibu.fabric.base import Capabilities, Fabric, Port
from ipoibu.fabric.cm.service import CmService
from ipoibu.fabric.privilege import may_control
from ipoibu.fabric.sa.client import SaClient
from ipoibu.fabric.sa.flush import Flush
from ipoibu.fabric.verbs.link_layer import LinkLayer, open_link_layer
from ipoibu.fabric.verbs.native import native
from ipoibu.fabric.verbs.objects import PortState, VerbsDevice
from ipoibu.fabric.verbs.rc_queues import VerbsConnections, VerbsRc
from ipoibu.fabric.verbs.roce_gid import GidEntry, netdev_mtu_for
from ipoibu.fabric.verbs.tx_queue import VerbsTxQueue
from ipoibu.ib import PartitionParams, PortInfo

_log = logging.getLogger(__name__)

SEND_DEPTH: Final = 512  # work requests; the pump has 256 frames to send
RECV_DEPTH: Final = 1024  # as many as the pump has frames to receive
INLINE_BYTES: Final = 128  # an ARP or ND frame, a TCP acknowledgement
HANDLES_SHARE: Final = 0.75  # of the device's address handles; the others are other programs'


class VerbsPort(Port):
    """A port of an RDMA device, opened by name or on what the application has open already.

    `context` is a pyverbs `Context`, `pd` a `PD` of it; both stay the application's, who closes
    them after the port. Asynchronous events of a lent context are the application's to read: the
    port then notices a change of state or GID by looking, once a second. A port whose link layer
    is InfiniBand has an `sa`: the parameters of its links, groups and paths are asked for.

    `NoSuchDevice` lists the devices that are there; `LinkError` says why the port cannot carry
    IP over InfiniBand.
    """

    def __init__(
        self, device: str | None = None, port: int = 1, *, context: Any = None, pd: Any = None
    ) -> None:
        if (device is None) == (context is None):
            raise UsageError("a verbs port needs a device's name or an open context, not both")
        if pd is not None and context is None:
            raise UsageError("a protection domain belongs to a context: hand in both")
        native()
        self._device = VerbsDevice(device, context=context, pd=pd)
        self._port = port
        self._open: set[VerbsUd] = set()
        self._cm: CmService | None = None
        self._why_down: str | None = None
        with ExitStack() as undo:
            undo.callback(self._device.close)
            state = self._device.port_state(port)
            self._link = open_link_layer(self._device, port, state)
            undo.callback(self._link.close)
            self._info = self._describe(state)
            undo.pop_all()

    @property
    def info(self) -> PortInfo:
        return self._info

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(rc=True, tx_queues=True)

    @property
    def place(self) -> str:
        return f"{self._device.name}/{self._port}"

    @property
    def sa(self) -> SaClient | None:
        return self._link.sa

    def _describe(self, state: PortState) -> PortInfo:
        link = self._link
        return PortInfo(
            device=self._device.name,
            port=self._port,
            gid=link.entry.gid,
            guid=link.entry.gid.interface_id,
            active_mtu_bytes=state.active_mtu_bytes,
            link_layer=state.link_layer,
            netdev=link.netdev,
        )

    def active(self) -> bool:
        """Whether the port carries traffic; keeps `info.gid` up to date.

        A port that was down between two calls is reported as down once. `LinkError`: the device is
        gone for good.
        """
        _verbs = native()
        events = 0
        for ud in list(self._open):  # several endpoints may share the port
            events |= ud.events()
        if events & _verbs.FATAL:
            raise LinkError(f"{self.place}: the device failed or was removed")
        self._notify_sa_client(events)
        state = self._device.port_state(self._port)
        why = self._why_inactive(state)
        if why is None:
            why = self._follow_gid(state)
        if why is not None and why != self._why_down:
            _log.warning("%s: %s", self.place, why)
        self._why_down = why
        return why is None and not events & _verbs.PORT_DOWN

    def _notify_sa_client(self, events: int) -> None:
        """What the kernel's ipoib_event makes of the same (docs/sa.md)."""
        if self.sa is None:
            return
        _verbs = native()
        meanings = {
            _verbs.PKEYS_CHANGED: Flush.HEAVY,
            _verbs.PORT_CHANGED: Flush.NORMAL,
            _verbs.SUBNET_CHANGED: Flush.LIGHT,
        }
        for event, flush in meanings.items():
            if events & event:
                self.sa.device_event(flush)

    def _why_inactive(self, state: PortState) -> str | None:
        if not state.active:
            return "the port is not active"
        needed = max((ud.mtu_bytes for ud in list(self._open)), default=0)
        if state.active_mtu_bytes < needed:
            why = f"the port's MTU fell to {state.active_mtu_bytes}, the link's is {needed}"
            if self.info.netdev is None:
                return why
            return f"{why}: ip link set {self.info.netdev} mtu {netdev_mtu_for(needed)}"
        return None

    def _follow_gid(self, state: PortState) -> str | None:
        """Take the port's new address when ours has gone; why there is none, or None."""
        try:
            if self._link.has_gid():
                return None
            self._link.choose(state)
            self._info = self._describe(state)
        except LinkError as error:
            return str(error)
        _log.warning("%s: the port's GID is %s now", self.place, self.info.gid)
        for ud in list(self._open):
            ud.rebind(self._link.entry)
        return None

    def open_ud(self, params: PartitionParams) -> VerbsUd:
        return self._open_fabric(params, has_connections=False)

    def open_connected(self, params: PartitionParams) -> VerbsUd:
        return self._open_fabric(params, has_connections=True)

    def _open_fabric(self, params: PartitionParams, *, has_connections: bool) -> VerbsUd:
        ud = VerbsUd(self, self._device, self._link, params, has_connections=has_connections)
        self._open.add(ud)
        return ud

    def may_control(self) -> bool:
        """B3: the kernel asks for CAP_NET_RAW."""
        return may_control()

    def cm(self) -> CmService:
        if self._cm is None:
            self._cm = self._link.cm()
        return self._cm

    def forget(self, ud: VerbsUd) -> None:
        self._open.discard(ud)

    def close(self) -> None:
        if self._cm is not None:
            self._cm.close()
            self._cm = None
        for ud in list(self._open):
            ud.close()
        try:
            self._link.close()
        finally:
            self._device.close()


class VerbsUd(Fabric):
    """A UD queue pair of a port, with connections beside it if it is to have them."""

    def __init__(
        self,
        port: VerbsPort,
        device: VerbsDevice,
        link: LinkLayer,
        params: PartitionParams,
        *,
        has_connections: bool,
    ) -> None:
        self._port = port
        self._place = port.place
        self._has_lids = link.has_lids
        self._groups: dict[Gid, tuple[int, int]] = {}  # the membership's number, the group's LID
        self.mtu_bytes = params.mtu_bytes
        self._pkey_at = self._pkey_index(device, params)  # before anything is made
        limits = device.limits()
        self._max_groups = limits.max_mcast_grp
        self._max_ah = int(limits.max_ah * HANDLES_SHARE)
        self._device = device
        self._send_depth = min(SEND_DEPTH, limits.max_qp_wr, limits.max_cqe)
        self._objects = device.create_ud(
            self._send_depth,
            min(RECV_DEPTH, limits.max_qp_wr, limits.max_cqe),
            INLINE_BYTES,
        )
        entry = link.entry
        self._sgid_index = entry.index
        self._connections: VerbsConnections | None = None
        self._native: Any = None
        self._membership: Any = None
        self._tx_queues: list[VerbsTxQueue] = []
        _verbs = native()
        try:
            self._membership = link.membership()
            self._fabric_of = partial(
                _verbs.VerbsFabric,
                cmd_fd=device.cmd_fd,
                gid=entry.gid.raw,
                sgid_index=entry.index,
                port=port.info.port,
                pkey_index=self._pkey_at,
                qkey=params.qkey,
                mtu_bytes=port.info.active_mtu_bytes,
                resolves=link.resolves,
            )
            self._native = self._fabric_of(
                self._objects.qp, max_ah=self._max_ah, owns_events=not device.is_lent
            )
            if has_connections:
                self._connections = VerbsConnections(
                    device, _verbs, self._native, port=port.info.port
                )
        except BaseException as error:
            self._objects.close_queue_pair()
            if self._native is not None:
                self._native.close()
            self._objects.close_rest()
            if self._membership is not None:
                self._membership.close()
            if isinstance(error, _verbs.LayoutError):
                raise LinkError(
                    f"{self._place}: this pyverbs keeps its queue pair elsewhere ({error}); "
                    "versions 44 to 59 are known to work"
                ) from error
            if isinstance(error, OSError):
                raise self._translate("queue pair", error) from error
            raise

    def _pkey_index(self, device: VerbsDevice, params: PartitionParams) -> int:
        """E7: the full-membership key is the one that has to be there, but for a limited member."""
        count = device.port_state(self._port.info.port).pkey_count
        pkeys = device.pkeys(self._port.info.port, count)
        if params.own_pkey not in pkeys:
            there = ", ".join(str(pkey) for pkey in pkeys if pkey) or "none"
            limited = ", the limited member's" if params.is_limited else ""
            raise LinkError(f"{self._place}: no P_Key {params.own_pkey}{limited}; it has: {there}")
        return pkeys.index(params.own_pkey)

    def _translate(self, what: str, error: OSError) -> IpoibuError:
        code = error.errno or 0
        if code in (errno.EPERM, errno.EACCES):
            return NotPermitted(f"{self._place}: {what}: not permitted; run as root")
        return LinkError(f"{self._place}: {what}: {os.strerror(code)}")

    @property
    def qpn(self) -> Qpn:
        return Qpn(self._native.qpn)

    @property
    def native(self) -> object:
        return self._native.native

    def attach(self, mgid: Gid, mlid: int = 0) -> None:
        """Become a member on the net device where that is needed, then attach."""
        mlid = mlid if self._has_lids else 0
        if mgid in self._groups:
            if self._groups[mgid][1] == mlid:
                return
            self.detach(mgid)  # the administrator has moved it
        try:
            number = self._membership.join(mgid.raw)
        except OSError as error:
            raise self._translate(f"group {mgid}: IPv6 membership", error) from error
        try:
            self._native.attach(mgid.raw, mlid)
        except OSError as error:
            self._membership.leave(mgid.raw, number)
            if error.errno in (errno.ENOMEM, errno.ENOSPC):
                raise LinkError(
                    f"{self._place}: group {mgid}: no room; the device takes at most "
                    f"{self._max_groups} groups"
                ) from error
            raise self._translate(f"group {mgid}", error) from error
        self._groups[mgid] = number, mlid

    def detach(self, mgid: Gid) -> None:
        """Leave the group; one that was never joined is left as it is."""
        if mgid not in self._groups:
            return
        number, mlid = self._groups.pop(mgid)
        self._membership.leave(mgid.raw, number)
        try:
            self._native.detach(mgid.raw, mlid)
        except OSError as error:  # only when the device is gone, and the attachment with it
            _log.warning("%s: group %s: %s", self._place, mgid, error)

    def open_tx_queues(self, count: int) -> list[VerbsTxQueue]:
        """Each with a queue pair of its own, that gets nothing."""
        make = partial(
            self._fabric_of,
            max_ah=self._max_ah // (count + 1),
            owns_events=False,  # the first queue pair reads those of all
            leader=self._native,
        )
        try:
            for _ in range(count):
                self._tx_queues.append(
                    VerbsTxQueue(self._device, make, self._send_depth, INLINE_BYTES)
                )
        except BaseException as error:
            self._close_tx_queues()
            if isinstance(error, OSError):
                raise self._translate("queue pair", error) from error
            raise
        return list(self._tx_queues)

    def _close_tx_queues(self) -> None:
        while self._tx_queues:
            self._tx_queues.pop().close()

    def open_connection(self) -> VerbsRc:
        assert self._connections is not None, "the port was asked for them"
        return self._connections.open(self._pkey_at, self._sgid_index)

    def rebind(self, entry: GidEntry) -> None:
        """Send from this GID from now on; connections that are there end by themselves."""
        self._sgid_index = entry.index
        for fabric in (self._native, *(tx_queue.fabric for tx_queue in self._tx_queues)):
            fabric.rebind(entry.gid.raw, entry.index)

    @property
    def event_fd(self) -> int | None:
        """Readable while the device has something to say, which the port's `active` then takes."""
        fd: int | None = self._native.event_fd
        return fd

    def events(self) -> int:
        """What the device said unasked since the last call (`ipoibu._verbs`)."""
        return int(self._native.events())

    def break_queue_pair(self) -> None:
        """Fail as after a completion error; the pump brings it back."""
        self._native.break_queue_pair()

    def counters(self) -> dict[str, int]:
        """Of all its queue pairs."""
        total: Counter[str] = Counter(self._native.counters())
        for tx_queue in self._tx_queues:
            total.update(tx_queue.fabric.counters())
        return dict(total)

    def close(self) -> None:
        """Destroy the queue pair and all that belongs to it. Safe to repeat."""
        self._port.forget(self)
        self._close_tx_queues()
        if self._connections is not None:
            self._connections.close()
            self._connections = None
        self._objects.close_queue_pair()
        self._native.close()
        self._objects.close_rest()
        self._membership.close()
        self._groups.clear()
