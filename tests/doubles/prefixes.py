# SPDX-License-Identifier: BSD-2-Clause
"""The networks of a route's prefixes."""

from __future__ import annotations

import ipaddress

from ipoibu.base.addr import IpNetwork
from ipoibu.base.route import address_of


def network_of(prefix: bytes) -> IpNetwork:
    """The inverse of `ipoibu.base.route.prefix_of`."""
    address = address_of(prefix[1:])
    bits = prefix[0] - (96 if address.version == 4 else 0)
    return ipaddress.ip_network((address, bits))
