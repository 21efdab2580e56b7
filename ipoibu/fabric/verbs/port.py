# SPDX-License-Identifier: BSD-2-Clause
"""A RoCE or InfiniBand port of an RDMA device as a fabric: `rxe0`, `mlx5_0/2`. See docs/use/verbs.md.

Device, protection domain, completion queues and queue pair are pyverbs objects (`objects.py`). The C
code (ext/verbs) posts and polls packets on the libibverbs queue pair inside the pyverbs object.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from ipoibu.base.addr import Gid, Qpn
from ipoibu.base.errors import IpoibuError, LinkError, NotPermitted, UsageError
from ipoibu.base.ib import PartitionParams, PortInfo
from ipoibu.base.privilege import may_control
from ipoibu.fabric.base import Capabilities
from ipoibu.fabric.cm.gsi import GsiPort
from ipoibu.fabric.cm.service import CmService
from ipoibu.fabric.flush import Flush
from ipoibu.fabric.plain import PlainFabric, PlainPort
from ipoibu.fabric.sa.client import SaClient
from ipoibu.fabric.verbs.link_layer import NoMembership, open_link_layer
from ipoibu.fabric.verbs.native import native
from ipoibu.fabric.verbs.objects import PortState, VerbsDevice
from ipoibu.fabric.verbs.rc_queues import VerbsConnections, VerbsRc
from ipoibu.fabric.verbs.roce_gid import GidEntry, netdev_mtu_for
from ipoibu.fabric.verbs.ud_queue import NO_RECEIVES, RECV_DEPTH, UdQueue

if TYPE_CHECKING:  # the compiled module may be missing
    from ipoibu._verbs import Membership

_log = logging.getLogger(__name__)

HANDLES_SHARE: Final = 0.75  # of the device's address handles; other programs need the rest


class VerbsPort(PlainPort):
    """A port of an RDMA device, opened by name or on objects that the application has opened.

    `context` is a pyverbs `Context`, `pd` a `PD` of it. The application owns both and closes them after
    the port. It also reads the asynchronous events of its context; the port then detects a change of
    state or GID by polling once a second. A port whose link layer is InfiniBand has an SA client, `sa`,
    which supplies the parameters of links, groups and paths.

    `NoSuchDevice` lists the devices that exist; `LinkError`: the port cannot carry IP over InfiniBand.
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
            self.link = open_link_layer(self._device, port, state)
            undo.callback(self.link.close)
            self._info = self._describe(state)
            undo.pop_all()

    @property
    def info(self) -> PortInfo:
        return self._info

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(rc=True, tx_queues=True, rails=True)

    @property
    def place(self) -> str:
        return f"{self._device.name}/{self._port}"

    @property
    def sa(self) -> SaClient | None:
        return self.link.sa

    def _describe(self, state: PortState) -> PortInfo:
        link = self.link
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
        """Return whether the port carries traffic; keeps `info.gid` up to date.

        A port that was down between two calls counts as down once. `LinkError`: the device is gone for
        good.
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

    def speed_mbps(self) -> int | None:
        return self._device.port_state(self._port).speed_mbps

    def _notify_sa_client(self, events: int) -> None:
        """Flush as the kernel's ipoib_event does after the same events (docs/use/sa.md)."""
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
        """Take the port's new GID if ours has gone. Return the reason if there is none, else None."""
        try:
            if self.link.has_gid():
                return None
            self.link.choose(state)
            self._info = self._describe(state)
        except LinkError as error:
            return str(error)
        _log.warning("%s: the port's GID is %s now", self.place, self.info.gid)
        for ud in list(self._open):
            ud.rebind(self.link.entry)
        return None

    def open_ud(self, params: PartitionParams) -> VerbsUd:
        return self._open_fabric(params, has_connections=False)

    def open_connected(self, params: PartitionParams) -> VerbsUd:
        return self._open_fabric(params, has_connections=True)

    def _open_fabric(self, params: PartitionParams, *, has_connections: bool) -> VerbsUd:
        ud = VerbsUd.open(self, self._device, params, has_connections=has_connections)
        self._open.add(ud)
        return ud

    def may_control(self) -> bool:
        """Return whether we have CAP_NET_RAW, which the kernel requires (B3)."""
        return may_control()

    def cm(self) -> CmService:
        if self._cm is None:
            self._cm = self.link.cm()
        return self._cm

    def open_gsi(self) -> GsiPort:
        return self.link.open_gsi()

    def forget(self, ud: VerbsUd) -> None:
        self._open.discard(ud)

    def close(self) -> None:
        if self._cm is not None:
            self._cm.close()
            self._cm = None
        for ud in list(self._open):
            ud.close()
        try:
            self.link.close()
        finally:
            self._device.close()


class VerbsUd(PlainFabric):
    """A UD queue pair of a port and, in connected mode, its connections."""

    def __init__(
        self,
        port: VerbsPort,
        params: PartitionParams,
        queue: UdQueue,
        membership: Membership | NoMembership,
        connections: VerbsConnections | None,
        *,
        open_tx_queue: Callable[[int], UdQueue],
        max_groups: int,
        undo: ExitStack,
    ) -> None:
        self.mtu_bytes = params.mtu_bytes
        self._port = port
        self._queue, self._fabric = queue, queue.fabric
        self._membership = membership
        self._connections = connections
        self._open_tx_queue = open_tx_queue
        self._max_groups = max_groups
        self._undo = undo
        self._groups: dict[Gid, tuple[int, int]] = {}  # the membership's number, the group's LID
        self._tx_queues: list[UdQueue] = []

    @classmethod
    def open(
        cls, port: VerbsPort, device: VerbsDevice, params: PartitionParams, *, has_connections: bool
    ) -> Self:
        """Open the fabric, or leave nothing open if the device refuses (`LinkError`, `NotPermitted`)."""
        link, limits, module = port.link, device.limits(), native()
        pkey_index = _pkey_index(port, device, params)
        max_ah = int(limits.max_ah * HANDLES_SHARE)
        make = partial(
            module.VerbsFabric,
            cmd_fd=device.cmd_fd,
            gid=link.entry.gid.raw,
            sgid_index=link.entry.index,
            port=port.info.port,
            pkey_index=pkey_index,
            qkey=params.qkey,
            mtu_bytes=port.info.active_mtu_bytes,
            resolves=link.resolves,
        )

        def open_tx_queue(share: int) -> UdQueue:
            """Open a TX queue with one part in `share` of the address handles; the first queue pair reads
            the events."""
            only_sends = partial(
                make, max_ah=max_ah // share, owns_events=False, leader=queue.fabric
            )
            return UdQueue(device, limits, only_sends, NO_RECEIVES)

        with ExitStack() as undo, _translated(port.place, "queue pair"):
            membership = link.membership()
            undo.callback(membership.close)
            receives = partial(make, max_ah=max_ah, owns_events=not device.is_lent)
            queue = UdQueue(device, limits, receives, RECV_DEPTH)
            undo.callback(queue.close)
            connections: VerbsConnections | None = None
            if has_connections:
                connections = VerbsConnections(
                    device, module, queue.fabric, port=port.info.port, pkey_index=pkey_index
                )
                undo.callback(connections.close)
            return cls(
                port,
                params,
                queue,
                membership,
                connections,
                open_tx_queue=open_tx_queue,
                max_groups=limits.max_mcast_grp,
                undo=undo.pop_all(),
            )

    @property
    def qpn(self) -> Qpn:
        return Qpn(self._fabric.qpn)

    @property
    def native(self) -> object:
        return self._queue.native

    def attach(self, mgid: Gid, mlid: int = 0) -> None:
        """Join on the net device if the link layer needs that, then attach."""
        mlid = mlid if self._port.link.has_lids else 0
        if mgid in self._groups:
            if self._groups[mgid][1] == mlid:
                return
            self.detach(mgid)  # the subnet administrator moved the group to another LID
        with _translated(self._port.place, f"group {mgid}: IPv6 membership"):
            number = self._membership.join(mgid.raw)
        try:
            self._fabric.attach(mgid.raw, mlid)
        except OSError as error:
            self._membership.leave(mgid.raw, number)
            if error.errno in (errno.ENOMEM, errno.ENOSPC):
                raise LinkError(
                    f"{self._port.place}: group {mgid}: no room; the device takes at most "
                    f"{self._max_groups} groups"
                ) from error
            raise _translate(self._port.place, f"group {mgid}", error) from error
        self._groups[mgid] = number, mlid

    def detach(self, mgid: Gid) -> None:
        """Leave the group; does nothing for a group that was never joined."""
        if mgid not in self._groups:
            return
        number, mlid = self._groups.pop(mgid)
        self._membership.leave(mgid.raw, number)
        try:
            self._fabric.detach(mgid.raw, mlid)
        except OSError as error:  # the device is gone, and the attachment with it
            _log.warning("%s: cannot detach group %s: %s", self._port.place, mgid, error)

    def open_tx_queues(self, count: int) -> list[UdQueue]:
        """Each TX queue has a queue pair of its own, which receives nothing."""
        try:
            with _translated(self._port.place, "queue pair"):
                for _ in range(count):
                    self._tx_queues.append(self._open_tx_queue(count + 1))
        except BaseException:
            self._close_tx_queues()
            raise
        return list(self._tx_queues)

    def _close_tx_queues(self) -> None:
        while self._tx_queues:
            self._tx_queues.pop().close()

    def open_connection(self) -> VerbsRc:
        assert self._connections is not None, "open_connected made this fabric"
        return self._connections.open(self._port.link.entry.index)

    def rebind(self, entry: GidEntry) -> None:
        """Send from this GID from now on. The connections that exist fail and end."""
        for fabric in (self._fabric, *(tx_queue.fabric for tx_queue in self._tx_queues)):
            fabric.rebind(entry.gid.raw, entry.index)

    @property
    def event_fd(self) -> int | None:
        """Readable while the device has events, until the port's `active` takes them."""
        fd: int | None = self._fabric.event_fd
        return fd

    def events(self) -> int:
        """Return the device's asynchronous events since the last call, as bits of `ipoibu._verbs`."""
        return int(self._fabric.events())

    def break_queue_pair(self) -> None:
        """Put the queue pair in the error state, for a test; the pump recovers it."""
        self._fabric.break_queue_pair()

    def counters(self) -> dict[str, int]:
        """Add up the counters of all queue pairs."""
        total: Counter[str] = Counter(self._fabric.counters())
        for tx_queue in self._tx_queues:
            total.update(tx_queue.fabric.counters())
        return dict(total)

    def close(self) -> None:
        """Destroy the queue pair and all that belongs to it. Safe to repeat."""
        self._port.forget(self)
        for mgid in list(self._groups):
            self.detach(mgid)  # no device destroys a queue pair with groups
        self._close_tx_queues()
        self._undo.close()


def _pkey_index(port: VerbsPort, device: VerbsDevice, params: PartitionParams) -> int:
    """Return the index of the port's key: the full-membership key, or the limited one for a limited member
    (E7)."""
    count = device.port_state(port.info.port).pkey_count
    pkeys = device.pkeys(port.info.port, count)
    if params.own_pkey not in pkeys:
        there = ", ".join(str(pkey) for pkey in pkeys if pkey) or "none"
        limited = ", the limited member's" if params.is_limited else ""
        raise LinkError(f"{port.place}: no P_Key {params.own_pkey}{limited}; it has: {there}")
    return pkeys.index(params.own_pkey)


@contextmanager
def _translated(place: str, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _translate(place, what, error) from error
    except native().LayoutError as error:
        raise LinkError(
            f"{place}: this pyverbs keeps its queue pair elsewhere ({error}); "
            "versions 44 to 59 are known to work"
        ) from error


def _translate(place: str, what: str, error: OSError) -> IpoibuError:
    code = error.errno or 0
    if code in (errno.EPERM, errno.EACCES):
        return NotPermitted(f"{place}: {what}: not permitted; run as root")
    return LinkError(f"{place}: {what}: {os.strerror(code)}")
