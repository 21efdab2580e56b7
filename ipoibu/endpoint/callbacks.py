# SPDX-License-Identifier: BSD-2-Clause
"""The functions that an interface calls on its own thread to report to its owner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipoibu.base.addr import IpAddress

if TYPE_CHECKING:
    from ipoibu.wire.dhcp6_lease import Lease6
    from ipoibu.wire.dhcp_lease import Lease

OnAddress = Callable[[IpAddress, bool], None]
OnFailure = Callable[[str], None]
OnMtu = Callable[[int], None]
OnLink = Callable[[bool, int | None], None]
OnLease = Callable[["Lease | None"], None]
OnLease6 = Callable[["Lease6 | None"], None]


def _ignore(*_: object) -> None:
    """Ignore what happened."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The functions of one interface. Its thread calls them, so none of them may block.

    `on_address(address, duplicate)`: an address's duplicate detection ended. `on_failure(reason)`: the
    data path ended. `on_mtu(bytes)`: a subnet administrator gave the link another MTU.
    `on_link(is_up, speed_mbps)`: the link, which is down in the beginning, came up or went down; the
    port's speed in Mb/s, None where it is unknown. `on_lease(lease)`: DHCP granted or prolonged a lease,
    whose address is no duplicate; None: it is gone. `on_lease6(lease)`: the same for DHCPv6, with times that
    count from the call.
    """

    on_address: OnAddress = _ignore
    on_failure: OnFailure = _ignore
    on_mtu: OnMtu = _ignore
    on_link: OnLink = _ignore
    on_lease: OnLease = _ignore
    on_lease6: OnLease6 = _ignore
