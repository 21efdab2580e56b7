# SPDX-License-Identifier: BSD-2-Clause
"""The built-in HCA as a port and a fabric: `soft:NETDEV[,ipv4|,ipv6|,ADDRESS]`."""

from __future__ import annotations

import errno
import logging
import time
from typing import Final, Protocol

from ipoibu._core import SoftConnection, SoftFabric, SoftHca, SoftTxQueue
from ipoibu.base.addr import Gid, IpAddress, Qpn
from ipoibu.base.device_name import PREFIX, GidKind, SoftName, parse_soft
from ipoibu.base.errors import IpoibuError, LinkError, NoSuchDevice, NotPermitted, NotReady
from ipoibu.base.ib import PartitionParams, PortInfo, RcAttributes
from ipoibu.base.limits import (
    CONNECTED_FRAMES,
    SOFT_ACK_TIMEOUT_CODE,
    SOFT_MOVED_S,
    SOFT_RETRIES,
    SOFT_RNR_RETRIES,
    SOFT_ROUTES_S,
)
from ipoibu.fabric.base import Capabilities, KeptPort, RcQueuePair
from ipoibu.fabric.cm.gsi import SoftGsiPort
from ipoibu.fabric.cm.gsi_cm import GsiCm
from ipoibu.fabric.cm.service import CmService
from ipoibu.fabric.link_speed import speed_mbps
from ipoibu.fabric.plain import PlainFabric, PlainPort
from ipoibu.fabric.soft.own_routes import OwnRoutes
from ipoibu.proto.cm.cm import CmConfig

_log = logging.getLogger(__name__)

_WHY: dict[int, tuple[type[IpoibuError], str]] = {
    errno.ENODEV: (NoSuchDevice, "no such network device; `ip link` lists them"),
    errno.ENETDOWN: (NotReady, "the device is down; bring it up: ip link set {netdev} up"),
    errno.EAGAIN: (
        NotReady,
        "the kernel still checks the device's IPv6 address for duplicates: wait longer",
    ),
    errno.EMSGSIZE: (
        LinkError,
        "the device's MTU is too small for InfiniBand's smallest (336); raise it: "
        "ip link set {netdev} mtu 4200",
    ),
    errno.EADDRINUSE: (
        LinkError,
        "UDP port 4791 is taken, by another HCA or by rxe; `ss -lunp sport = 4791` names it;"
        " `ipoibu child add` gives a running interface another partition",
    ),
    errno.EPERM: (NotPermitted, "not permitted; run as root or with CAP_NET_ADMIN"),
    errno.EACCES: (NotPermitted, "not permitted; run as root or with CAP_NET_ADMIN"),
}


_NO_ADDRESS: Final = {
    GidKind.ANY: "the device has no IP address; enable IPv6, for a link-local one: "
    "sysctl net.ipv6.conf.{netdev}.disable_ipv6=0",
    GidKind.IPV4: "the device has no IPv4 address; give it one: ip address add ADDRESS/LENGTH dev {netdev}",
    GidKind.IPV6: "the device has no IPv6 address beside the link-local one; give it one: "
    "ip address add ADDRESS/LENGTH dev {netdev}",
}

_WHY_DOWN: dict[int, str] = {
    errno.ENETDOWN: "{netdev} is down or has no carrier",
    errno.EADDRNOTAVAIL: "{netdev} has lost its address {gid}: ip address add {gid}/{length} dev {netdev}",
    errno.EAGAIN: "{netdev} still checks its address {gid} for duplicates",
    errno.EBUSY: "{netdev} is being renamed",
}


def _translate(error: OSError, netdev: str) -> IpoibuError:
    kind, text = _WHY.get(error.errno or 0, (LinkError, error.strerror or "unknown error"))
    return kind(f"{PREFIX}{netdev}: {text.format(netdev=netdev)}")


def _no_address(name: SoftName) -> NotReady:
    if name.gid is None:
        text = _NO_ADDRESS[name.kind].format(netdev=name.netdev)
    else:
        text = (
            f"the device has no address {name.gid.ip}; `ip address show {name.netdev}` lists them"
        )
    return NotReady(f"{PREFIX}{name.netdev}: {text}")


class Choice(Protocol):
    """An address for the GID, and the way to a peer that made the choice."""

    @property
    def address(self) -> IpAddress: ...
    @property
    def peer(self) -> IpAddress: ...
    @property
    def router(self) -> IpAddress | None: ...


class Underlay(Protocol):
    """Chooses an address of the net device; None where any will do."""

    def choose(self) -> Choice | None: ...


def _chosen(name: SoftName, choice: Choice | None) -> SoftName:
    """Return the name with the chosen address; `NotReady` if the peer is out of reach."""
    if choice is None:
        return name
    if choice.address.is_link_local and choice.router is not None:
        raise _out_of_reach(name, choice)
    gid = Gid.of_ip(choice.address)
    return SoftName(name.netdev, GidKind.of(gid), gid)


def _out_of_reach(name: SoftName, choice: Choice) -> NotReady:
    return NotReady(
        f"{PREFIX}{name.netdev}: the router {choice.router} is on the way to the peer {choice.peer}, and the"
        f" device has no address of IPv{choice.peer.version} that crosses it: ip address add ADDRESS/LENGTH"
        f" dev {name.netdev}"
    )


def _open_hca(name: SoftName, kept: KeptPort | None) -> SoftHca:
    gid = name.gid.raw if name.gid else None
    if kept is not None:
        try:
            return SoftHca(name.netdev, kind=name.kind, gid=gid, socket_fd=kept.socket_fd)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            kept.forget()
    return SoftHca(name.netdev, kind=name.kind, gid=gid)


class SoftPort(PlainPort):
    """The one port of the built-in HCA of a net device in this network namespace."""

    def __init__(
        self, device: str, kept: KeptPort | None = None, underlay: Underlay | None = None
    ) -> None:
        """`underlay` chooses the address; without it, the device's name does."""
        named = parse_soft(device)
        netdev = named.netdev
        choice = underlay.choose() if underlay is not None else None
        name = _chosen(named, choice)
        self._qpns = {} if kept is None else dict(kept.qpns)  # each for the first queue pair only
        try:
            self._hca = _open_hca(name, kept)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise _translate(error, netdev) from error
            if choice is not None:  # an address of another device
                raise _out_of_reach(name, choice) from error
            raise _no_address(name) from error
        if choice is not None:
            _log.info("%s: the underlay is %s, by %s", device, choice.address, choice)
        self._underlay = underlay
        self._routes_at_s = self._other_since_s = time.monotonic()
        self._info = PortInfo(
            device=device,
            port=1,
            gid=Gid(self._hca.gid),
            guid=self._hca.guid,
            active_mtu_bytes=self._hca.active_mtu_bytes,
            link_layer="Ethernet",
            netdev=netdev,
            datagram_bytes=self._hca.datagram_bytes,
            gid_by=str(choice) if choice is not None else None,
        )
        self._is_named = named.gid is not None  # the GID is the very address that the user wants
        self._gone_since_s: float | None = None  # the GID, while the device has another address
        self._used_bytes = 0  # the longest datagram of our fabrics
        self._cm: CmService | None = None
        self._has_fragments = False
        self._own_routes = OwnRoutes(self._hca, device)

    @property
    def info(self) -> PortInfo:
        return self._info

    @property
    def capabilities(self) -> Capabilities:
        has_multicast = self.info.gid.ip.version == 6
        return Capabilities(rc=True, tx_queues=True, rails=True, multicast=has_multicast)

    @property
    def socket_fd(self) -> int:
        return self._hca.socket_fd

    def active(self) -> bool:
        self._report_fragments()
        error = self._hca.check(self._used_bytes)
        if error == errno.ENODEV:  # a new device of the same name would be another HCA
            raise LinkError(f"{self.info.device}: the network device was removed")
        if error != errno.EADDRNOTAVAIL:
            self._gone_since_s = None
        elif not self._is_named:
            self._review_address(time.monotonic())
        if self._underlay is not None:
            self._review_routes(self._underlay, time.monotonic())
        if error == 0:
            self._own_routes.look(time.monotonic())
        return error == 0

    def _review_routes(self, underlay: Underlay, now: float) -> None:
        """Raise `LinkError` once the routes to the peers have asked for another address for a while."""
        if now - self._routes_at_s < SOFT_ROUTES_S:
            return
        self._routes_at_s = now
        choice = underlay.choose()
        if choice is None or choice.address.is_link_local or choice.address == self.info.gid.ip:
            self._other_since_s = now
        elif now - self._other_since_s >= SOFT_ROUTES_S + SOFT_MOVED_S:
            raise LinkError(
                f"{self.info.device}: {choice} has the source {choice.address} now, and our hardware address"
                f" contains {self.info.gid.ip}: start the interface anew, and the other hosts meet it there"
            )

    def _review_address(self, now: float) -> None:
        """Raise `LinkError` once the device has had another address in place of our GID for a while."""
        gid = self._hca.next_gid()
        if gid is None:
            self._gone_since_s = None
        elif self._gone_since_s is None:
            self._gone_since_s = now
        elif now - self._gone_since_s >= SOFT_MOVED_S:
            raise LinkError(
                f"{self.info.device}: {self._hca.netdev} has the address {Gid(gid).ip} now and no longer"
                f" {self.info.gid.ip}, which our hardware address contains: start the interface anew, and"
                " the other hosts meet it there"
            )

    def _report_fragments(self) -> None:
        """Log once that datagrams go in fragments: that costs speed, and some networks drop fragments."""
        if self._has_fragments or not self._hca.counters()["tx_fragments"]:
            return
        self._has_fragments = True
        _log.warning(
            "%s: the path to a host has a smaller MTU than %d, so longer datagrams go in fragments:"
            " choose a smaller --mtu on all hosts of the link",
            self.info.device,
            self._hca.netdev_mtu_bytes,
        )

    def why_down(self) -> str:
        netdev, error = self._hca.netdev, self._hca.check(self._used_bytes)
        now, needed = self._hca.netdev_mtu_now(), self._hca.needed_mtu(self._used_bytes)
        if 0 < now < needed:  # below 1280 the address is gone, too
            return (
                f"the MTU of {netdev} is {now} now, not {self._hca.netdev_mtu_bytes}, and the link"
                f" needs {needed}: ip link set {netdev} mtu {needed}, or start all interfaces of the"
                " link with a smaller --mtu"
            )
        ip = self.info.gid.ip
        length = 64 if ip.version == 6 else 24
        return _WHY_DOWN.get(error, "").format(netdev=netdev, gid=ip, length=length)

    def speed_mbps(self) -> int | None:
        """The net device's, as `ethtool` shows it."""
        return speed_mbps(self._hca.netdev)

    def open_ud(self, params: PartitionParams, *, needs_lid: bool = False) -> SoftUd:
        return self._open(params, needs_lid=needs_lid)

    def open_connected(self, params: PartitionParams, *, needs_lid: bool = False) -> SoftUd:
        return self._open(params, has_connections=True, needs_lid=needs_lid)

    def _open(self, params: PartitionParams, **options: bool) -> SoftUd:
        self._used_bytes = max(self._used_bytes, params.mtu_bytes)
        qpn = self._qpns.pop(params.pkey.full, None)
        return SoftUd(self._hca, params, qpn=qpn, **options)

    def cm(self) -> CmService:
        if self._cm is None:
            try:
                services = SoftGsiPort(self._hca)
            except OSError as error:
                raise _translate(error, self._hca.netdev) from error
            config = CmConfig(
                gid=self.info.gid,
                ca_guid=int.from_bytes(self.info.guid, "big"),
                path_mtu_bytes=self.info.active_mtu_bytes,
                ack_timeout=SOFT_ACK_TIMEOUT_CODE,
                connection_retries=SOFT_RETRIES,
                rnr_retries=SOFT_RNR_RETRIES,
            )
            self._cm = GsiCm(services, config)
        return self._cm

    def close(self) -> None:
        """Release the UDP port. The caller has closed the fabrics."""
        if self._cm is not None:
            self._cm.close()
            self._cm = None
        self._hca.close()


class SoftUd(PlainFabric):
    """A UD queue pair of the built-in HCA and, in connected mode, its connections."""

    def __init__(
        self,
        hca: SoftHca,
        params: PartitionParams,
        *,
        has_connections: bool = False,
        needs_lid: bool = False,
        qpn: Qpn | None = None,
    ) -> None:
        """With a `qpn` the queue pair gets that number if it is free."""
        self._hca = hca
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
            raise _translate(error, hca.netdev) from error

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
            raise _translate(error, self._hca.netdev) from error
        return list(self._tx_queues)

    def open_guest_queue_pairs(self, count: int) -> list[Qpn]:
        """Their numbers are those behind the queue pair's own if they are free, so that a restart which goes
        on with that one has the same."""
        try:
            return [Qpn(number) for number in self._ud.add_numbers(count)]
        except OSError as error:
            raise _translate(error, self._hca.netdev) from error

    def _close_tx_queues(self) -> None:
        while self._tx_queues:
            self._tx_queues.pop().close()

    def open_connection(self) -> SoftRc:
        return SoftRc(self._ud, self._hca.netdev)

    def counters(self) -> dict[str, int]:
        return self._hca.counters()

    def drop_sources(self) -> dict[str, Gid]:
        return {name: Gid(source) for name, source in self._hca.drop_sources().items()}

    def close(self) -> None:
        self._close_tx_queues()
        self._ud.close()


class SoftRc(RcQueuePair):
    """An RC queue pair of the built-in HCA."""

    def __init__(self, ud: SoftFabric, netdev: str) -> None:
        self._netdev = netdev
        try:
            self._rc = SoftConnection(ud)
        except OSError as error:
            raise _translate(error, netdev) from error

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
