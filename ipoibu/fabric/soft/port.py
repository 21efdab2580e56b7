# SPDX-License-Identifier: BSD-2-Clause
"""The built-in HCA as a port and a fabric: `soft:NETDEV[,ipv4|,ipv6|,ADDRESS]`."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipoibu._core import SoftConnection, SoftFabric, SoftTxQueue
from ipoibu.base.addr import Gid, IpAddress, Qpn
from ipoibu.base.device_name import PREFIX, GidKind, SoftName, parse_soft
from ipoibu.base.errors import LinkError, NotReady
from ipoibu.base.ib import PartitionParams, PortInfo, RcAttributes
from ipoibu.base.limits import CONNECTED_FRAMES, SOFT_MOVED_S, SOFT_ROUTES_S, SOFT_TRAIN_BYTES
from ipoibu.fabric.base import Capabilities, KeptPort, PeersUnderlay, RcQueuePair, UnderlayChoice
from ipoibu.fabric.link_speed import speed_mbps
from ipoibu.fabric.plain import PlainFabric, PlainPort
from ipoibu.fabric.soft.adapter import Adapter, no_address, translate
from ipoibu.fabric.soft.carrier_check import CarrierCheck
from ipoibu.fabric.soft.own_routes import OwnRoutes
from ipoibu.proto.machine.ratelimit import should_log

if TYPE_CHECKING:
    from ipoibu.fabric.cm.gsi import GsiPort
    from ipoibu.fabric.cm.service import CmService

_log = logging.getLogger(__name__)

_WHY_DOWN: dict[int, str] = {
    errno.ENETDOWN: "{netdev} is down or has no carrier",
    errno.EADDRNOTAVAIL: "{netdev} has lost its address {gid}: ip address add {gid}/{length} dev {netdev}",
    errno.EAGAIN: "{netdev} still checks its address {gid} for duplicates",
    errno.EBUSY: "{netdev} is being renamed",
}


@dataclass(frozen=True, slots=True)
class _Successor:
    """The address that the net device has in place of `former`."""

    address: IpAddress
    former: IpAddress

    def __str__(self) -> str:
        return f"the loss of the address {self.former}"


def _chosen(name: SoftName, choice: UnderlayChoice | None) -> SoftName:
    """Return the name with the chosen address; `NotReady` if the peer is out of reach."""
    if choice is None:
        return name
    if choice.address.is_link_local and choice.router is not None:
        raise _out_of_reach(name, choice)
    gid = Gid.of_ip(choice.address)
    return SoftName(name.netdev, GidKind.of(gid), gid)


def _out_of_reach(name: SoftName, choice: UnderlayChoice) -> NotReady:
    return NotReady(
        f"{PREFIX}{name.netdev}: the router {choice.router} is on the way to the peer {choice.peer}, and the"
        f" device has no address of IPv{choice.peer.version} that crosses it: ip address add ADDRESS/LENGTH"
        f" dev {name.netdev}"
    )


class SoftPort(PlainPort):
    """The one port of the built-in HCA of a net device in this network namespace."""

    def __init__(
        self, device: str, kept: KeptPort | None = None, underlay: PeersUnderlay | None = None
    ) -> None:
        """`underlay` chooses the address; without it, the device's name does."""
        self._device = device
        named = parse_soft(device)
        netdev = named.netdev
        choice = underlay.choose() if underlay is not None else None
        name = _chosen(named, choice)
        self._qpns = {} if kept is None else dict(kept.qpns)  # each for the first queue pair only
        try:
            self._adapter = _open(name, kept)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise translate(error, netdev) from error
            if choice is not None:  # an address of another device
                raise _out_of_reach(name, choice) from error
            raise no_address(name) from error
        if choice is not None:
            _log.info("%s: the underlay is %s, by %s", device, choice.address, choice)
        self._underlay = underlay
        self._named = named
        self._info = self._describe(choice)
        self._asked_s = time.monotonic()
        self._wanted: IpAddress | None = None  # the address that is to become the GID
        self._wanted_since_s = 0.0
        self._refusals = 0  # of that address
        self._used_bytes = 0  # the longest datagram of our fabrics
        self._has_fragments = False
        self._own_routes = OwnRoutes(self._adapter.hca, device)
        self._carrier_check = CarrierCheck()

    def _describe(self, by: UnderlayChoice | _Successor | None) -> PortInfo:
        hca = self._adapter.hca
        return PortInfo(
            device=self._device,
            port=1,
            gid=self._adapter.gid,
            guid=hca.guid,
            active_mtu_bytes=hca.active_mtu_bytes,
            link_layer="Ethernet",
            netdev=self._named.netdev,
            datagram_bytes=hca.datagram_bytes,
            train_bytes=SOFT_TRAIN_BYTES,
            gid_by=str(by) if by is not None else None,
        )

    @property
    def info(self) -> PortInfo:
        return self._info

    @property
    def capabilities(self) -> Capabilities:
        has_multicast = self.info.gid.ip.version == 6
        return Capabilities(rc=True, tx_queues=True, rails=True, multicast=has_multicast)

    @property
    def socket_fd(self) -> int:
        return self._adapter.hca.socket_fd

    @property
    def underlay(self) -> PeersUnderlay | None:
        return self._underlay

    def active(self) -> bool:
        """The fabrics are stale once the net device has lost the GID and has another address, or the routes
        to the peers have asked for another address, for a while."""
        now, counters = time.monotonic(), self._adapter.hca.counters()
        self._report_fragments(counters)
        error = self._check(now)
        if error == errno.ENODEV:  # a new device of the same name would be another HCA
            raise LinkError(f"{self.info.device}: the network device was removed")
        if self._review(now, is_gone=error == errno.EADDRNOTAVAIL):
            error, counters = self._adapter.hca.check(), self._adapter.hca.counters()
        if error == 0:
            self._own_routes.look(now, counters)
        return error == 0

    def _check(self, now: float) -> int:
        """Return 0 while the port is active, else an errno of `SoftHca.check`."""
        error = self._adapter.hca.check(self._used_bytes)
        is_running = error != errno.ENETDOWN
        netdev = self._adapter.hca.netdev
        is_lost = self._carrier_check.is_lost(now, netdev, is_running=is_running)
        return error or (errno.ENETDOWN if is_lost else 0)

    def _review(self, now: float, *, is_gone: bool) -> bool:
        """Ask which address is to be the GID, and take one that has been the answer for a while; return
        whether the GID has changed."""
        if not is_gone and self._wanted is None and now - self._asked_s < SOFT_ROUTES_S:
            return False
        self._asked_s = now
        choice = self._choose(is_gone=is_gone)
        if choice is None or choice.address == self.info.gid.ip:
            self._wanted = None
        elif choice.address != self._wanted:
            self._wanted, self._wanted_since_s, self._refusals = choice.address, now, 0
        elif now - self._wanted_since_s >= SOFT_MOVED_S:
            return self._take(choice)
        return False

    def _choose(self, *, is_gone: bool) -> UnderlayChoice | _Successor | None:
        """Return the address that is to be the GID, by the routes to the peers, or, if `is_gone`, that of the
        same kind which the net device has instead. None: the GID stays."""
        present = self.info.gid.ip
        if self._underlay is not None:
            choice = self._underlay.choose(present)
            if choice is not None and not choice.address.is_link_local:
                return choice
        # A GID that the user named is the very address that the user wants.
        gid = self._adapter.hca.next_gid() if is_gone and self._named.gid is None else None
        return _Successor(Gid(gid).ip, present) if gid is not None else None

    def _take(self, choice: UnderlayChoice | _Successor) -> bool:
        """Make this address the GID; return whether that is possible now."""
        gid, before = Gid.of_ip(choice.address), self._adapter
        try:
            self._adapter = before.replaced(SoftName(self._named.netdev, GidKind.of(gid), gid))
        except OSError as error:
            self._refusals += 1
            if should_log(self._refusals):
                why = translate(error, self._named.netdev)
                _log.warning("%s: %s does not become the GID yet: %s", self._device, gid.ip, why)
            return False
        self._info = self._describe(choice)
        self._wanted, self._has_fragments, self._used_bytes = None, False, 0
        self._own_routes = OwnRoutes(self._adapter.hca, self._device)
        text = "%s: the underlay is %s now, not %s, by %s"
        _log.warning(text, self._device, choice.address, before.gid.ip, choice)
        before.leave()
        return True

    def _report_fragments(self, counters: Mapping[str, int]) -> None:
        """Log once that datagrams go in fragments: that costs speed, and some networks drop fragments."""
        if self._has_fragments or not counters["tx_fragments"]:
            return
        self._has_fragments = True
        _log.warning(
            "%s: the path to a host has a smaller MTU than %d, so longer datagrams go in fragments:"
            " choose a smaller --mtu on all hosts of the link",
            self.info.device,
            self._adapter.hca.netdev_mtu_bytes,
        )

    def why_down(self) -> str:
        hca = self._adapter.hca
        netdev, error = hca.netdev, self._check(time.monotonic())
        now, needed = hca.netdev_mtu_now(), hca.needed_mtu(self._used_bytes)
        if 0 < now < needed:  # below 1280 the address is gone, too
            return (
                f"the MTU of {netdev} is {now} now, not {hca.netdev_mtu_bytes}, and the link"
                f" needs {needed}: ip link set {netdev} mtu {needed}, or start all interfaces of the"
                " link with a smaller --mtu"
            )
        ip = self.info.gid.ip
        length = 64 if ip.version == 6 else 24
        return _WHY_DOWN.get(error, "").format(netdev=netdev, gid=ip, length=length)

    def speed_mbps(self) -> int | None:
        """The net device's, as `ethtool` shows it."""
        return speed_mbps(self._adapter.hca.netdev)

    def open_ud(self, params: PartitionParams, *, needs_lid: bool = False) -> SoftUd:
        return self._open(params, needs_lid=needs_lid)

    def open_connected(self, params: PartitionParams, *, needs_lid: bool = False) -> SoftUd:
        return self._open(params, has_connections=True, needs_lid=needs_lid)

    def _open(self, params: PartitionParams, **options: bool) -> SoftUd:
        self._used_bytes = max(self._used_bytes, params.mtu_bytes)
        qpn = self._qpns.pop(params.pkey.full, None)
        return SoftUd(self._adapter, params, qpn=qpn, **options)

    def cm(self) -> CmService:
        return self._adapter.cm()

    def open_gsi(self) -> GsiPort:
        return self._adapter.open_gsi()

    def close(self) -> None:
        """Release the UDP port. The caller has closed the fabrics."""
        self._carrier_check.close()
        self._adapter.leave()


def _open(name: SoftName, kept: KeptPort | None) -> Adapter:
    if kept is not None:
        try:
            return Adapter.open(name, kept.socket_fd)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            kept.forget()
    return Adapter.open(name)


class SoftUd(PlainFabric):
    """A UD queue pair of the built-in HCA and, in connected mode, its connections."""

    def __init__(
        self,
        adapter: Adapter,
        params: PartitionParams,
        *,
        has_connections: bool = False,
        needs_lid: bool = False,
        qpn: Qpn | None = None,
    ) -> None:
        """The queue pair gets the number `qpn` if that is free."""
        self._adapter = adapter
        self._hca = hca = adapter.hca
        self._tx_queues: list[SoftTxQueue] = []
        try:
            self._ud = SoftFabric(
                hca,
                qkey=params.qkey,
                pkey=params.own_pkey,
                connected_depth=CONNECTED_FRAMES if has_connections else 0,
                needs_lid=needs_lid,
                qpn=qpn or 0,
            )
        except OSError as error:
            raise translate(error, hca.netdev) from error
        adapter.enter(self)

    @property
    def is_stale(self) -> bool:
        return not self._adapter.is_current

    @property
    def qpn(self) -> Qpn:
        return Qpn(self._ud.qpn)

    @property
    def native(self) -> object:
        return self._ud.native

    def attach(self, mgid: Gid, mlid: int = 0) -> None:
        try:
            self._ud.attach(mgid.raw)
        except OSError as error:
            raise LinkError(
                f"{PREFIX}{self._hca.netdev}: group {mgid}: {error.strerror}"
            ) from error

    def detach(self, mgid: Gid) -> None:
        """Leave the group; does nothing for a group that was never joined."""
        try:
            self._ud.detach(mgid.raw)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise LinkError(
                    f"{PREFIX}{self._hca.netdev}: group {mgid}: {error.strerror}"
                ) from error

    def open_tx_queues(self, count: int) -> list[SoftTxQueue]:
        """Each TX queue has UDP sockets of its own. Peers see one queue pair."""
        try:
            for _ in range(count):
                self._tx_queues.append(SoftTxQueue(self._ud))
        except OSError as error:
            self._close_tx_queues()
            raise translate(error, self._hca.netdev) from error
        return list(self._tx_queues)

    def open_guest_queue_pairs(self, count: int) -> list[Qpn]:
        """Their numbers are those behind the queue pair's own if they are free, so that a restart which goes
        on with that one has the same."""
        try:
            return [Qpn(number) for number in self._ud.add_numbers(count)]
        except OSError as error:
            raise translate(error, self._hca.netdev) from error

    def _close_tx_queues(self) -> None:
        while self._tx_queues:
            self._tx_queues.pop().close()

    def open_connection(self) -> SoftRc:
        return SoftRc(self._ud, self._hca.netdev)

    def counters(self) -> dict[str, int]:
        return dict(self._adapter.counters())

    def drop_sources(self) -> dict[str, Gid]:
        return self._adapter.drop_sources()

    def close(self) -> None:
        self._close_tx_queues()
        self._ud.close()
        self._adapter.part(self)


class SoftRc(RcQueuePair):
    """An RC queue pair of the built-in HCA."""

    def __init__(self, ud: SoftFabric, netdev: str) -> None:
        self._netdev = netdev
        try:
            self._rc = SoftConnection(ud)
        except OSError as error:
            raise translate(error, netdev) from error

    @property
    def qpn(self) -> Qpn:
        return Qpn(self._rc.qpn)

    @property
    def native(self) -> object:
        return self._rc.native

    @property
    def retries(self) -> int:
        return self._rc.retries

    def program(self, attributes: RcAttributes) -> None:
        try:
            self._rc.program(attributes)
        except OSError as error:
            raise LinkError(f"{PREFIX}{self._netdev}: connection: {error.strerror}") from error

    def stop(self) -> None:
        self._rc.stop()

    def close(self) -> None:
        self._rc.close()
