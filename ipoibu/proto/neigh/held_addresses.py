# SPDX-License-Identifier: BSD-2-Clause
"""The addresses of an interface, those of IPv6 with their solicited-node groups."""

from __future__ import annotations

from ipaddress import IPv6Address

from ipoibu.base.addr import IpInterface
from ipoibu.proto.context import Dad
from ipoibu.proto.groups.groups import Groups
from ipoibu.proto.neigh.dad import Addresses
from ipoibu.wire.mgid import solicited_node


class HeldAddresses:
    """Takes addresses for the host and for our DHCP clients alike."""

    def __init__(self, addresses: Addresses, groups: Groups) -> None:
        self._addresses = addresses
        self._groups = groups

    def hold(
        self,
        now: float,
        interface: IpInterface,
        policy: Dad | None,
        *,
        is_checked: bool = True,
        is_optimistic: bool = False,
    ) -> bool:
        """Take an address, of IPv6 with its group (RFC 4862 §5.4.2); False if there is no room."""
        address = interface.ip
        is_new = all(known != address for known, _ in self._addresses.snapshot())
        if not isinstance(address, IPv6Address) or not is_new:
            return self._addresses.add(now, interface, is_checked=is_checked, policy=policy)
        group = solicited_node(address)
        if not self._groups.join(now, group):
            return False
        if not self._addresses.add(
            now, interface, is_checked=is_checked, is_optimistic=is_optimistic, policy=policy
        ):
            self._groups.leave(now, group)
            return False
        return True

    def leave(self, now: float, interface: IpInterface) -> None:
        """End `hold`."""
        if self._addresses.remove(interface) and isinstance(interface.ip, IPv6Address):
            self._groups.leave(now, solicited_node(interface.ip))
