# SPDX-License-Identifier: BSD-2-Clause
"""The interface of a persistent TUN, which the administrator configures and ipoibu only follows."""

from __future__ import annotations

import logging
import math
from dataclasses import replace

from ipoibu.base.addr import IpAddress, IpInterface
from ipoibu.base.errors import UsageError
from ipoibu.host.kernel_interface import KernelInterface, RouteSpec
from ipoibu.host.netlink import Link

_log = logging.getLogger(__name__)


class AttachedInterface(KernelInterface):
    """An interface whose MTU, state, addresses and routes ipoibu never changes: it needs no capability."""

    duplicate_action = "the administrator has to remove it"

    def configure(self) -> None:
        link = self._netlink.link(self.spec.name)
        if link is not None:
            self.hold_mtu(link)
            if not link.up:
                _log.warning(
                    "%s: the interface is down and carries no traffic until the administrator runs"
                    " `ip link set %s up`",
                    self.spec.name,
                    self.spec.name,
                )

    def restore(self) -> None:
        """Do nothing: the administrator sets the addresses again."""

    def hold_mtu(self, link: Link) -> None:
        """Log the remedy if the MTU is above the link's."""
        if link.mtu_bytes > self.spec.mtu_bytes:
            _log.warning(
                "%s: the link does not carry MTU %d: run `ip link set %s mtu %d`",
                self.spec.name,
                link.mtu_bytes,
                self.spec.name,
                self.spec.mtu_bytes,
            )

    def set_mtu(self, mtu_bytes: int) -> None:
        name = self.spec.name
        raise UsageError(
            "the administrator sets the MTU of an attached TUN: run"
            f" `ip link set {name} mtu {mtu_bytes}`"
        )

    def follow_mtu(self, mtu_bytes: int, link: Link) -> None:
        self.spec = replace(self.spec, mtu_bytes=mtu_bytes)
        self.hold_mtu(link)

    def drop(self, address: IpAddress) -> bool:
        """Leave the address on the interface: `duplicate_action` is the remedy."""
        return False

    def take_lease(
        self,
        address: IpInterface,
        routes: tuple[RouteSpec, ...] = (),
        lifetimes_s: tuple[float, float] = (math.inf, math.inf),
    ) -> None:
        """Do nothing: the configuration refuses DHCP for an attached TUN."""

    def drop_lease(self, version: int = 4) -> None:
        """Do nothing."""

    def retry(self, address: IpAddress) -> None:
        """Do nothing: no address is ours to set."""
