# SPDX-License-Identifier: BSD-2-Clause
"""One built-in HCA of a port, with its communication manager: its GID never changes.

A port that gets another GID opens another adapter, and the former one ends with its last queue pair.
"""

from __future__ import annotations

import errno
import threading
from collections import Counter
from typing import TYPE_CHECKING, Final, Self

from ipoibu._core import SoftHca
from ipoibu.base.addr import Gid
from ipoibu.base.device_name import PREFIX, GidKind, SoftName
from ipoibu.base.errors import IpoibuError, LinkError, NoSuchDevice, NotPermitted, NotReady
from ipoibu.base.limits import SOFT_ACK_TIMEOUT_CODE, SOFT_RETRIES, SOFT_RNR_RETRIES

if TYPE_CHECKING:
    from ipoibu.fabric.cm.gsi import SoftGsiPort
    from ipoibu.fabric.cm.service import CmService

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


def translate(error: OSError, netdev: str) -> IpoibuError:
    kind, text = _WHY.get(error.errno or 0, (LinkError, error.strerror or "unknown error"))
    return kind(f"{PREFIX}{netdev}: {text.format(netdev=netdev)}")


def no_address(name: SoftName) -> NotReady:
    if name.gid is None:
        text = _NO_ADDRESS[name.kind].format(netdev=name.netdev)
    else:
        text = (
            f"the device has no address {name.gid.ip}; `ip address show {name.netdev}` lists them"
        )
    return NotReady(f"{PREFIX}{name.netdev}: {text}")


class Adapter:
    """Any thread may call `enter` and `part`; the port's other callers are one at a time."""

    def __init__(self, hca: SoftHca, before: Adapter | None = None) -> None:
        """`before` is the adapter whose place this one takes."""
        self.hca: Final = hca
        self.gid: Final = Gid(hca.gid)
        self._before = before
        self._users: set[object] = set()
        self._is_current = True
        self._last: Counter[str] | None = None  # the counters at the end
        self._cm: CmService | None = None
        self._lock = threading.Lock()

    @classmethod
    def open(
        cls, name: SoftName, socket_fd: int | None = None, before: Adapter | None = None
    ) -> Self:
        """Open the HCA, with the socket of an earlier one if that fits; `OSError`, ESTALE if it does not."""
        gid = name.gid.raw if name.gid else None
        return cls(SoftHca(name.netdev, kind=name.kind, gid=gid, socket_fd=socket_fd or 0), before)

    def replaced(self, name: SoftName) -> Adapter:
        """Open the adapter that takes the place of this one; `OSError`. The UDP socket stays unless the new
        GID has another IP version."""
        try:
            return Adapter.open(name, self.hca.socket_fd, self)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
        return Adapter.open(name, None, self)

    @property
    def is_current(self) -> bool:
        """False once another adapter has taken this one's place."""
        return self._is_current

    def enter(self, user: object) -> None:
        """The adapter has this queue pair until `part`."""
        with self._lock:
            self._users.add(user)

    def part(self, user: object) -> None:
        """This queue pair has ended."""
        with self._lock:
            self._users.discard(user)
            self._close_unused()

    def leave(self) -> None:
        """End with the last queue pair: no new ones come."""
        with self._lock:
            self._is_current = False
            self._close_unused()

    def _close_unused(self) -> None:
        if self._is_current or self._users or self._last is not None:
            return
        self._last = self._counted()
        self._before = None
        if self._cm is not None:
            self._cm.close()
            self._cm = None
        self.hca.close()

    def counters(self) -> Counter[str]:
        """The counters of this adapter and of those before it."""
        with self._lock:
            return self._counted() if self._last is None else self._last.copy()

    def drop_sources(self) -> dict[str, Gid]:
        """The sender of the last packet that the HCA dropped, by counter; nothing after the end."""
        with self._lock:
            if self._last is not None:
                return {}
            return {name: Gid(source) for name, source in self.hca.drop_sources().items()}

    def _counted(self) -> Counter[str]:
        counts = Counter(self.hca.counters())
        if self._before is not None:
            counts.update(self._before.counters())
        return counts

    def cm(self) -> CmService:
        """The communication manager of all queue pairs; `LinkError`."""
        if self._cm is None:
            # Only connected mode has a communication manager.
            from ipoibu.fabric.cm.gsi_cm import GsiCm
            from ipoibu.proto.cm.cm import CmConfig

            config = CmConfig(
                gid=self.gid,
                ca_guid=int.from_bytes(self.hca.guid, "big"),
                path_mtu_bytes=self.hca.active_mtu_bytes,
                ack_timeout=SOFT_ACK_TIMEOUT_CODE,
                connection_retries=SOFT_RETRIES,
                rnr_retries=SOFT_RNR_RETRIES,
            )
            self._cm = GsiCm(self.open_gsi(), config)
        return self._cm

    def open_gsi(self) -> SoftGsiPort:
        """Open queue pair 1; `LinkError`: the communication manager has it."""
        from ipoibu.fabric.cm.gsi import SoftGsiPort  # see `cm`

        try:
            return SoftGsiPort(self.hca)
        except OSError as error:
            raise translate(error, self.hca.netdev) from error
