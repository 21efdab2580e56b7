# SPDX-License-Identifier: BSD-2-Clause
"""Configuration of the kernel's TUN interface: MTU, addresses and routes."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ipoibu.base.addr import IpAddress, IpInterface, IpNetwork, link_local
from ipoibu.base.errors import IpoibuError, LinkError, NoSuchDevice, UsageError
from ipoibu.base.limits import (
    ADDRESSES_MAX,
    IP_PACKET_MAX_BYTES,
    IPV6_MIN_MTU,
    KERNEL_FRAME_BYTES,
    TX_RING_BYTES,
    TX_RING_MAX_PACKETS,
    TX_RING_MIN_PACKETS,
)
from ipoibu.base.trains import tcp_frames
from ipoibu.host.namespace import HERE, Namespace
from ipoibu.host.netlink import (
    IFA_F_STABLE_PRIVACY,
    IN6_ADDR_GEN_MODE_RANDOM,
    IN6_ADDR_GEN_MODE_STABLE_PRIVACY,
    Link,
    Netlink,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RouteSpec:
    """A route that the user asked for; with `via` None the network is on the link."""

    network: IpNetwork
    via: IpAddress | None = None

    def __str__(self) -> str:
        return f"{self.network}" + (f",via={self.via}" if self.via else "")


@dataclass(frozen=True, slots=True)
class InterfaceSpec:
    """The configuration of an interface. `mtu_bytes` is the IP MTU that the link carries,
    `datagram_mtu_bytes` that of its datagrams if it is another one: in connected mode. `train_bytes` bounds
    what leaves as one train (`PortInfo.train_bytes`)."""

    name: str
    mtu_bytes: int
    guid: bytes
    addresses: Sequence[IpInterface] = ()
    routes: Sequence[RouteSpec] = ()
    datagram_mtu_bytes: int | None = None
    takes_superframes: bool = True
    train_bytes: int = 0

    @property
    def frame_bytes(self) -> tuple[int, int]:
        """The longest frames of IPv4 and of IPv6 that the kernel shall make."""
        frames = tcp_frames(self.mtu_bytes, self.train_bytes) if self.takes_superframes else None
        if frames is None:
            return KERNEL_FRAME_BYTES, KERNEL_FRAME_BYTES
        return frames.ipv4_bytes, frames.ipv6_bytes

    @property
    def ring_packets(self) -> int:
        """How many packets may wait in the TUN: as many of the longest ones as `TX_RING_BYTES` hold, within
        bounds."""
        longest = IP_PACKET_MAX_BYTES if self.takes_superframes else self.mtu_bytes
        return min(max(TX_RING_BYTES // longest, TX_RING_MIN_PACKETS), TX_RING_MAX_PACKETS)

    @property
    def ipv6(self) -> bool:
        """Return whether the link carries IPv6, which needs an MTU of at least 1280 bytes: RFC 8200 §5 (T3).

        Groups and first packets go by datagram in connected mode, too.
        """
        return self.least_mtu_bytes >= IPV6_MIN_MTU

    @property
    def least_mtu_bytes(self) -> int:
        return self.mtu_bytes if self.datagram_mtu_bytes is None else self.datagram_mtu_bytes

    @property
    def mtu_kind(self) -> str:
        """The name in messages of the thing whose MTU `least_mtu_bytes` is."""
        return "the link" if self.datagram_mtu_bytes is None else "the link's datagrams"

    def check(self) -> None:
        """Raise `LinkError` if the user asked for an IPv6 address or route and the link cannot carry
        IPv6."""
        if self.ipv6:
            return
        ipv6: list[object] = [a for a in self.addresses if a.version == 6]
        ipv6 += [r for r in self.routes if r.network.version == 6]
        if ipv6:
            raise LinkError(
                f"{self.name}: IPv6 needs an MTU of {IPV6_MIN_MTU} and that of {self.mtu_kind} is"
                f" {self.least_mtu_bytes}, so {ipv6[0]} cannot be set; raise the MTU of the device"
                " (soft: needs 1356 on the network device, rxe 2128) or leave IPv6 out"
            )


@dataclass(frozen=True, slots=True)
class Leased:
    """An address and routes by DHCP; `preferred_s` and `valid_s` are when the address's lifetimes end, in
    seconds of the monotonic clock."""

    address: IpInterface
    routes: tuple[RouteSpec, ...] = ()
    preferred_s: float = math.inf
    valid_s: float = math.inf


# Of the routes of a lease, as systemd-networkd has it: the routes of an administrator come first.
LEASE_METRIC: Final = 1024

# I3: addr_gen_mode with identifiers of RFC 7217, by stable_secret or by a random secret
_CHOSEN_MODES: Final = (IN6_ADDR_GEN_MODE_STABLE_PRIVACY, IN6_ADDR_GEN_MODE_RANDOM)


class KernelInterface:
    """Keeps one existing interface in the state of its spec. Belongs to one thread."""

    duplicate_action = "the interface removes it"

    def __init__(self, spec: InterfaceSpec, netlink: Netlink) -> None:
        link = netlink.link(spec.name)
        if link is None:
            raise NoSuchDevice(f"interface {spec.name} is gone: another program removed it")
        self.spec = spec
        self.index = link.index
        self._netlink = netlink
        self._unwanted: dict[IpAddress, None] = {}  # that another host has, too; the oldest first
        self._leased: dict[int, Leased] = {}  # by IP version
        self._addr_gen_mode: int | None = None
        if not link.up or link.addr_gen_mode == IN6_ADDR_GEN_MODE_STABLE_PRIVACY:
            self.note_mode(link)  # else mode 3 may be the kernel's own

    def configure(self) -> None:
        """Set MTU, queue length and the longest frames, then the state up, then addresses and routes; raise
        the kernel's errors."""
        self.spec.check()
        netlink, index = self._netlink, self.index
        netlink.set_link(index, mtu_bytes=self.spec.mtu_bytes, txqueuelen=self.spec.ring_packets)
        self._limit_frames()
        if self.spec.ipv6:
            try:
                self._settle_mode()
            except LinkError:
                if any(address.version == 6 for address in self.spec.addresses):
                    raise
                _log.info("%s: this kernel has no IPv6", self.spec.name)
        else:
            disable_ipv6(self.spec.name, self._netlink.namespace)
            _log.warning(
                "%s: IPv6 is off: the MTU of %s is %d and IPv6 needs %d",
                self.spec.name,
                self.spec.mtu_kind,
                self.spec.least_mtu_bytes,
                IPV6_MIN_MTU,
            )
        netlink.set_link(index, up=True)
        if self.spec.ipv6:
            self._add_link_local()
        for address in self.spec.addresses:
            netlink.add_address(index, address)
        for route in self.spec.routes:
            netlink.add_route(index, route.network, route.via)

    def _limit_frames(self) -> None:
        """Have the kernel make frames of TCP that leave as one train each, where it can."""
        wanted = self.spec.frame_bytes
        try:
            self._netlink.set_link(self.index, frame_bytes=wanted)
            link = self._netlink.link(self.index)
        except LinkError as error:
            _log.debug("%s: the kernel does not limit its frames: %s", self.spec.name, error)
            return
        if link is not None and link.frame_bytes != wanted[1]:
            _log.debug(
                "%s: the kernel's frames have %s bytes, not %d: it does not limit them",
                self.spec.name,
                link.frame_bytes,
                wanted[1],
            )

    def note_mode(self, link: Link) -> None:
        """Note the administrator's addr_gen_mode: the link has had IPv6 since ipoibu set it up.

        The kernel gives a TUN mode 3 when it comes up as it was made, in mode 0, or with a new IPv6.
        """
        is_chosen = link.addr_gen_mode in _CHOSEN_MODES
        self._addr_gen_mode = link.addr_gen_mode if is_chosen else None

    def _settle_mode(self) -> bool:
        """Have the kernel generate no link-local address, because ours is that of the port, unless the
        administrator chose RFC 7217; return whether they did."""
        link = self._netlink.link(self.index) if self._addr_gen_mode is not None else None
        if link is not None and link.addr_gen_mode == self._addr_gen_mode:
            return True
        self._addr_gen_mode = None
        self._netlink.set_link(self.index, kernel_link_local=False)
        return False

    def change(self, spec: InterfaceSpec) -> None:
        """Take over the addresses and routes of another spec; the kernel's errors leave the old spec."""
        spec.check()
        before = self.spec
        for address in spec.addresses:
            if address not in before.addresses:
                self._netlink.add_address(self.index, address)
        for route in spec.routes:
            if route not in before.routes:
                self._netlink.add_route(self.index, route.network, route.via)
        self.spec = spec
        self.remove_stale(before.addresses, before.routes)

    def remove_stale(self, addresses: Sequence[IpInterface], routes: Sequence[RouteSpec]) -> None:
        """Remove of these, which an earlier configuration set, those that the spec does not have."""
        stale = [each for each in addresses if each not in self.spec.addresses]
        stale_routes = [each for each in routes if each not in self.spec.routes]
        for route in stale_routes:
            self._netlink.remove_route(self.index, route.network, route.via)
        for address in stale:
            self._netlink.remove_address(self.index, address)
        if stale:
            self._add_lost()

    def _add_lost(self) -> None:
        """Set the addresses and routes of the spec that went with others: the secondary addresses of an
        IPv4 subnet whose first one was removed, and routes from it."""
        for address in set(self.spec.addresses) - self._netlink.addresses(self.index):
            if address.ip not in self._unwanted:
                self._netlink.add_address(self.index, address)
        for route in self.spec.routes:
            self._netlink.add_route(self.index, route.network, route.via)

    def restore(self) -> None:
        """Set the addresses and routes that the kernel dropped while the interface was down; log
        failures."""
        leased = self._leased.values()
        try:
            present = self._netlink.addresses(self.index)
            missing = set(self.spec.addresses) - present
            if self.spec.ipv6:
                if not self._settle_mode():
                    self._remove_generated()
                self._add_link_local()
            for address in missing:
                if address.ip not in self._unwanted:
                    self._netlink.add_address(self.index, address)
            for route in self.spec.routes:
                self._netlink.add_route(self.index, route.network, route.via)
            for lease in leased:
                if lease.address not in present and lease.address not in self.spec.addresses:
                    self._add_leased(lease)
                self._add_lease_routes(lease.routes)
        except IpoibuError as error:
            _log.error("%s: %s", self.spec.name, error)

    def leased(self) -> tuple[Leased, ...]:
        """Return the addresses and routes by DHCP."""
        return tuple(self._leased.values())

    def adopt_leases(self, leases: Sequence[Leased], versions: Collection[int]) -> None:
        """Take over what an earlier process had by DHCP, in these IP versions, until `take_lease` or
        `drop_lease`; remove the rest. Raise the kernel's errors."""
        for lease in leases:
            version = lease.address.version
            self._leased[version] = Leased(lease.address, lease.routes)
            if version not in versions:
                self.drop_lease(version)

    def take_lease(
        self,
        address: IpInterface,
        routes: tuple[RouteSpec, ...] = (),
        lifetimes_s: tuple[float, float] = (math.inf, math.inf),
    ) -> None:
        """Have this address and these routes by DHCP, and those of the last lease of this IP version no
        longer; `lifetimes_s` are the preferred and the valid lifetime from now on. Raise the kernel's
        errors."""
        now, version = time.monotonic(), address.version
        before = self._leased.get(version)
        lease = Leased(address, routes, now + lifetimes_s[0], now + lifetimes_s[1])
        self._leased[version] = lease
        if before is None:
            self._add_leased(lease)
            self._add_lease_routes(routes)
            return
        is_new = before.address != address
        if is_new or min(lease.preferred_s, before.preferred_s) < math.inf:
            self._add_leased(lease)
        self._remove_lease_routes([route for route in before.routes if route not in routes])
        if is_new and before.address not in self.spec.addresses:
            self._netlink.remove_address(self.index, before.address)
        self._add_lease_routes(routes)

    def drop_lease(self, version: int = 4) -> None:
        """Remove the address and the routes of DHCP, or with 6 of DHCPv6; raise the kernel's errors."""
        before = self._leased.pop(version, None)
        if before is None:
            return
        self._remove_lease_routes(before.routes)
        if before.address not in self.spec.addresses:
            self._netlink.remove_address(self.index, before.address)

    def _add_leased(self, lease: Leased) -> None:
        """Set the address, for ever if the configuration names it, too."""
        lifetimes_s = None
        if lease.preferred_s < math.inf and lease.address not in self.spec.addresses:
            now = time.monotonic()
            if lease.valid_s <= now:
                return
            lifetimes_s = max(0.0, lease.preferred_s - now), lease.valid_s - now
        self._netlink.add_address(self.index, lease.address, lifetimes_s=lifetimes_s)

    def _add_lease_routes(self, routes: Sequence[RouteSpec]) -> None:
        """A router outside of the address's subnet is on the link (RFC 3442)."""
        for route in routes:
            self._netlink.add_lease_route(self.index, route.network, route.via, LEASE_METRIC)

    def _remove_lease_routes(self, routes: Sequence[RouteSpec]) -> None:
        for route in routes:
            self._netlink.remove_lease_route(self.index, route.network, route.via, LEASE_METRIC)

    def hold_mtu(self, link: Link) -> None:
        """Undo an MTU above the link's: the port cannot send packets of that size."""
        if link.mtu_bytes > self.spec.mtu_bytes:
            _log.warning(
                "%s: the link does not carry MTU %d: setting it back to %d",
                self.spec.name,
                link.mtu_bytes,
                self.spec.mtu_bytes,
            )
            self._netlink.set_link(self.index, mtu_bytes=self.spec.mtu_bytes)

    def set_mtu(self, mtu_bytes: int) -> None:
        """Give the kernel's interface another MTU; `UsageError` if link or addresses do not allow it."""
        if mtu_bytes > self.spec.mtu_bytes:
            raise UsageError(f"MTU {mtu_bytes}: the link carries at most {self.spec.mtu_bytes}")
        if mtu_bytes < IPV6_MIN_MTU and self.spec.ipv6:
            raise UsageError(
                f"MTU {mtu_bytes}: the interface carries IPv6, which needs {IPV6_MIN_MTU}"
            )
        self._netlink.set_link(self.index, mtu_bytes=mtu_bytes)

    def follow_mtu(self, mtu_bytes: int, link: Link) -> None:
        """Take over the new MTU of the link, unless a program has set a smaller one."""
        had_bytes = self.spec.mtu_bytes
        _log.warning("%s: the link's MTU is %d now, not %d", self.spec.name, mtu_bytes, had_bytes)
        had_packets = self.spec.ring_packets
        had_frames = self.spec.frame_bytes
        self.spec = replace(self.spec, mtu_bytes=mtu_bytes)
        if self.spec.frame_bytes != had_frames:
            self._limit_frames()
        if self.spec.ring_packets != had_packets:
            self._netlink.set_link(self.index, txqueuelen=self.spec.ring_packets)
        if link.mtu_bytes == had_bytes or link.mtu_bytes > mtu_bytes:
            self._netlink.set_link(self.index, mtu_bytes=mtu_bytes)

    def drop(self, address: IpAddress) -> bool:
        """Remove a duplicate address from the interface (RFC 4862 §5.4.5).

        Puts those back that the kernel removes with it: the secondary addresses of an IPv4 subnet whose
        first one it was. Returns whether `retry` may set it again: it is one of the spec's.
        """
        self._unwanted[address] = None
        if len(self._unwanted) > ADDRESSES_MAX:
            del self._unwanted[next(iter(self._unwanted))]
        before = self._netlink.addresses(self.index)
        for entry in before:
            if entry.ip == address:
                self._netlink.remove_address(self.index, entry)
        after = self._netlink.addresses(self.index)
        for entry in sorted(before - after, key=str):
            if entry.ip not in self._unwanted:
                self._netlink.add_address(self.index, entry)
        return any(entry.ip == address for entry in self._own())

    def retry(self, address: IpAddress) -> None:
        """Set a duplicate address of the spec again, to have it checked."""
        self.keep(address)
        for entry in self._own():
            if entry.ip == address:
                self._netlink.add_address(self.index, entry)

    def keep(self, address: IpAddress) -> None:
        """Note that no other host has the address: the interface may have it."""
        self._unwanted.pop(address, None)

    def _own(self) -> list[IpInterface]:
        """The addresses that the interface has by its spec."""
        own = list(self.spec.addresses)
        return [*own, link_local(self.spec.guid)] if self.spec.ipv6 else own

    def _remove_generated(self) -> None:
        # Below 1280 bytes the kernel also forgets the address generation mode that we set. Once the MTU
        # is large enough again, the kernel generates an address of its own.
        for address, flags in self._netlink.flagged_addresses(self.index).items():
            if address.ip.is_link_local and flags & IFA_F_STABLE_PRIVACY:
                self._netlink.remove_address(self.index, address)

    def _add_link_local(self) -> None:
        address = link_local(self.spec.guid)
        if address.ip in self._unwanted:
            return
        try:
            self._netlink.add_address(self.index, address)
        except LinkError as error:
            # IPv4 needs no such address. If the user gave IPv6 addresses, adding them raises the error.
            _log.warning("%s: the interface works without IPv6: %s", self.spec.name, error)


def disable_ipv6(name: str, namespace: Namespace = HERE) -> None:
    """Keep the kernel from using IPv6 on the interface.

    Below 1280 bytes the kernel holds no IPv6 state for the interface, and the file does not exist.
    """
    path = f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6"
    try:
        fd = namespace.open(path, os.O_WRONLY)
        try:
            os.write(fd, b"1")
        finally:
            os.close(fd)
    except FileNotFoundError:
        return
    except OSError as error:
        _log.warning("%s: %s", path, os.strerror(error.errno or 0))
