# SPDX-License-Identifier: BSD-2-Clause
"""DHCP leases in the kernel: the interface's address, routes and MTU, and a file for resolvers.

ipoibu never writes /etc/resolv.conf. What the servers say about names is in
`/run/ipoibu/net-<inode>/NAME.resolv.conf`, beside the control socket, and in `ipoibu show`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Final

from ipoibu.base.addr import IpAddress
from ipoibu.base.errors import IpoibuError
from ipoibu.daemon.control.socket_paths import namespace_dir
from ipoibu.host.kernel_interface import KernelInterface, RouteSpec

if TYPE_CHECKING:
    from ipoibu.wire.dhcp6_lease import Lease6
    from ipoibu.wire.dhcp_lease import Lease

_log: Final = logging.getLogger(__name__)


class Leases:
    """The leases of one interface, on the event loop's thread.

    A lease may come before the kernel's interface is configured: it waits for `begin`.
    """

    def __init__(self, name: str, mtu: Callable[[], int], set_mtu: Callable[[int], None]) -> None:
        self.had_one = asyncio.Event()
        self.had_one6 = asyncio.Event()
        self._name = name
        self._mtu = mtu
        self._set_mtu = set_mtu
        self._holder: KernelInterface | None = None
        self._early: dict[int, Callable[[], None]] = {}  # by IP version
        self._lease: Lease | None = None
        self._lease6: Lease6 | None = None
        self._path = namespace_dir() / f"{name}.resolv.conf"

    def begin(self, holder: KernelInterface) -> None:
        """Give leases to `holder` from now on: the kernel's interface, or what follows it in another network
        namespace."""
        self._holder = holder
        early, self._early = self._early, {}
        for change in early.values():
            change()

    def note_lease(self, lease: Lease | None) -> None:
        """Give the kernel the lease, or take it away."""
        if (holder := self._holder) is None:
            self._early[4] = lambda: self.note_lease(lease)
            return
        before, self._lease = self._lease, lease
        if lease is not None and lease == before:
            return
        try:
            if lease is None:
                holder.drop_lease()
            else:
                routes = tuple(RouteSpec(network, via) for network, via in lease.routes)
                holder.take_lease(lease.address, routes)
        except IpoibuError as error:
            _log.error("%s: the lease of DHCP is not in the kernel: %s", self._name, error)
        if lease is not None:
            self._limit_mtu(lease)
            self.had_one.set()
        self._write()

    def changed6(self, lease: Lease6 | None) -> None:
        """Take what the DHCPv6 client has leased; each renewal gives the address another lifetime."""
        if (holder := self._holder) is None:
            came_s = monotonic()
            self._early[6] = lambda: self.changed6(lease and lease.aged(monotonic() - came_s))
            return
        self._lease6 = lease
        try:
            if lease is None:
                holder.drop_lease(6)
            else:
                lifetimes_s = lease.preferred_s, lease.lease_s
                holder.take_lease(lease.address, lifetimes_s=lifetimes_s)
        except IpoibuError as error:
            _log.error("%s: the lease of DHCPv6 is not in the kernel: %s", self._name, error)
        if lease is not None:
            self.had_one6.set()
        self._write()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _limit_mtu(self, lease: Lease) -> None:
        """The server may only lower the MTU: the link does not carry more."""
        mtu_bytes = lease.mtu_bytes
        if mtu_bytes is None or mtu_bytes >= self._mtu():
            return
        try:
            self._set_mtu(mtu_bytes)
        except IpoibuError as error:
            _log.warning("%s: the MTU of the DHCP server is not used: %s", self._name, error)

    def _write(self) -> None:
        text = resolv_conf(self._lease, self._lease6)
        draft = self._path.with_suffix(".new")
        try:
            if not text:
                self._path.unlink(missing_ok=True)
                return
            draft.write_text(text, encoding="ascii")
            draft.chmod(0o644)
            draft.rename(self._path)
        except OSError as error:
            with contextlib.suppress(OSError):  # the disk is full
                draft.unlink()
            reason = os.strerror(error.errno or 0)
            _log.warning("%s: cannot write %s: %s", self._name, self._path, reason)


def resolv_conf(lease: Lease | None, lease6: Lease6 | None = None) -> str:
    """Return what the servers say about names in the form of resolv.conf(5); empty without name servers.

    A name that is no domain of letters, digits, hyphens, underscores and dots is left out: it comes from
    the link.
    """
    origins: list[str] = []
    names: list[str] = []
    servers: list[IpAddress] = []
    if lease is not None and lease.dns:
        origins.append(f"# from the DHCP server {lease.server}")
        names += lease.search or (lease.domain,)
        servers += lease.dns
    if lease6 is not None and lease6.dns:
        origins.append(f"# from the DHCPv6 server {lease6.server.hex(':')}")
        names += lease6.search
        servers += lease6.dns
    if not servers:
        return ""
    domains = [name for name in dict.fromkeys(names) if _is_domain(name)]
    search = [f"search {' '.join(domains)}"] if domains else []
    return "\n".join([*origins, *search, *(f"nameserver {ip}" for ip in servers)]) + "\n"


def _is_domain(name: str) -> bool:
    return bool(name) and all(each.isalnum() or each in "-_." for each in name) and name.isascii()
