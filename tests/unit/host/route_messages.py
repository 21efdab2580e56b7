# SPDX-License-Identifier: BSD-2-Clause
"""Route messages as the kernel sends them, for tests; pyroute2 encodes them."""

from __future__ import annotations

import ipaddress
import socket
import struct
from typing import Any

from pyroute2.netlink.rtnl.rtmsg import rtmsg

INDEX = 7
RTA_NH_ID = 30
OTHER = 8


def message(
    network: str,
    via: str | None = None,
    *,
    index: int = INDEX,
    kind: int = 1,
    table: int = 254,
    metric: int = 0,
    hops: list[tuple[int, str, int]] | None = None,
    proto: int = 4,
    pref: int | None = None,
    source: str | None = None,
    tos: int = 0,
    flags: int = 0,
    nexthop: int | None = None,
) -> bytes:
    """`hops` are (interface, gateway, weight); `kind` is an RTN_*."""
    parsed = ipaddress.ip_network(network)
    encoded = rtmsg()
    encoded["family"] = socket.AF_INET if parsed.version == 4 else socket.AF_INET6
    encoded["type"], encoded["dst_len"], encoded["proto"] = kind, parsed.prefixlen, proto
    encoded["table"], encoded["tos"], encoded["flags"] = min(table, 255), tos, flags
    attributes: list[list[Any]] = [["RTA_TABLE", table]]
    if parsed.prefixlen:
        attributes.append(["RTA_DST", str(parsed.network_address)])
    if metric:
        attributes.append(["RTA_PRIORITY", metric])
    if source:
        attributes.append(["RTA_PREFSRC", source])
    if hops:
        several = [
            {"oif": to, "hops": weight - 1, "attrs": [["RTA_GATEWAY", gateway]]}
            for to, gateway, weight in hops
        ]
        attributes.append(["RTA_MULTIPATH", several])
    elif nexthop is None:
        attributes += _gateway(parsed.version, via)
        attributes.append(["RTA_OIF", index])
    if pref is not None:
        attributes.append(["RTA_PREF", pref])
    encoded["attrs"] = attributes
    encoded.encode()
    data = bytes(encoded.data)
    if nexthop is not None:
        data += struct.pack("=HHI", 8, RTA_NH_ID, nexthop)
    return struct.pack("=I", len(data)) + data[4:]


def _gateway(version: int, via: str | None) -> list[list[Any]]:
    if via is None:
        return []
    if ipaddress.ip_address(via).version == version:
        return [["RTA_GATEWAY", via]]
    return [["RTA_VIA", {"family": socket.AF_INET6, "addr": via}]]
