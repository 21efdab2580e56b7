# SPDX-License-Identifier: BSD-2-Clause
"""The parts of an engine that few configurations ask for: None where the configuration does not.

The first engine that needs a part loads its modules, so that the others start sooner and take less memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipoibu.proto.context import EngineContext
from ipoibu.proto.groups.groups import Groups
from ipoibu.proto.neigh.dad import Addresses
from ipoibu.proto.neigh.held_addresses import HeldAddresses

if TYPE_CHECKING:
    from ipoibu.proto.dhcp.client import DhcpClient
    from ipoibu.proto.dhcp.client6 import Dhcp6Client
    from ipoibu.proto.ethernet.host import EthernetHost


def dhcp_client(context: EngineContext, addresses: Addresses) -> DhcpClient | None:
    """Return our DHCP client."""
    identity = context.config.dhcp
    if identity is None:
        return None
    from ipoibu.proto.dhcp.client import DhcpClient

    return DhcpClient(context, addresses, identity)


def dhcp6_client(
    context: EngineContext, addresses: Addresses, held: HeldAddresses
) -> Dhcp6Client | None:
    """Return our DHCPv6 client."""
    identity = context.config.dhcp6
    if identity is None:
        return None
    from ipoibu.proto.dhcp.client6 import Dhcp6Client

    return Dhcp6Client(context, addresses, identity, held.hold, held.leave)


def ethernet_host(context: EngineContext, groups: Groups) -> EthernetHost | None:
    """Return the host side of a TAP with guests."""
    config = context.config.ethernet
    if config is None:
        return None
    from ipoibu.proto.ethernet.host import EthernetHost

    return EthernetHost(context, groups, config)
