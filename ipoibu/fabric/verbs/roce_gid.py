# SPDX-License-Identifier: BSD-2-Clause
"""The RoCE profile: the choice of a port's GID, and the MTU."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from ipoibu.base.addr import Gid
from ipoibu.base.errors import LinkError, NotReady
from ipoibu.base.limits import IB_MTUS, ROCE_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class GidEntry:
    """One entry of a port's GID table; `ifindex` is that of the net device with the address."""

    index: int
    gid: Gid
    is_roce_v2: bool
    ifindex: int


def choose_gid(
    entries: Iterable[GidEntry], addresses: Collection[tuple[int, Gid]], place: str
) -> GidEntry:
    """Choose the entry for our address: RoCE v2, of IPv6, link-local before routable.

    IPv6, because a packet has the network type of its source GID, and an MGID is an IPv6 group; link-local,
    because every port of the link has one without configuration. The default GID is in the table even if
    the net device lacks the address, and then no peer can answer us. So `addresses` lists the existing
    pairs of ifindex and address. `LinkError`, or `NotReady` if the GID may still come, describes the GIDs
    that `place` has instead.
    """
    entries = list(entries)
    of_ipv6 = [entry for entry in entries if entry.is_roce_v2 and not _is_mapped(entry.gid)]
    suitable = [entry for entry in of_ipv6 if (entry.ifindex, entry.gid) in addresses]
    if suitable:
        return min(suitable, key=lambda entry: (not is_link_local(entry.gid), entry.index))
    kind: type[LinkError] = NotReady  # the addresses may still come
    if of_ipv6:
        have = (
            f"only GIDs whose address its net device does not have ({of_ipv6[0].gid}); enable IPv6 there, "
            "with addrgenmode eui64"
        )
    elif any(entry.is_roce_v2 for entry in entries):
        have = "only IPv4 GIDs; enable IPv6 on its net device"
    elif entries:
        kind = LinkError
        have = "only RoCE v1 GIDs; the device or its driver has no RoCE v2"
    else:
        have = "none at all; bring its net device up"
    raise kind(f"{place}: a RoCE v2 GID of an IPv6 address is needed, and there are {have}")


def local_addresses(table: Path = Path("/proc/thread-self/net/if_inet6")) -> set[tuple[int, Gid]]:
    """Return every IPv6 address of this network namespace with its ifindex; empty without IPv6."""
    try:
        lines = table.read_text().splitlines()
    except OSError:
        return set()
    words = [line.split() for line in lines]
    return {(int(word[1], 16), Gid(bytes.fromhex(word[0]))) for word in words}


def is_link_local(gid: Gid) -> bool:
    return ipaddress.IPv6Address(gid.raw).is_link_local


def _is_mapped(gid: Gid) -> bool:
    return gid.ip.version == 4


def mtu_from_code(code: int, place: str) -> int:
    """Return the InfiniBand MTU in bytes of a verbs code 1..5."""
    if not 1 <= code <= len(IB_MTUS):
        raise LinkError(f"{place} reports an MTU code of {code}: no InfiniBand MTU")
    return IB_MTUS[code - 1]


def mtu_code(mtu_bytes: int) -> int:
    """Return the verbs code of an InfiniBand MTU."""
    return IB_MTUS.index(mtu_bytes) + 1


def netdev_mtu_for(ib_mtu_bytes: int) -> int:
    """Return the smallest MTU of the net device that allows this InfiniBand MTU."""
    return ib_mtu_bytes + ROCE_OVERHEAD_BYTES
