# SPDX-License-Identifier: BSD-2-Clause
"""The link's parameters without a subnet administrator: from options, or from partitions.conf.

Every member of the link reads the same file. An option may ask for less than the file allows (a smaller
IP MTU), but must not contradict it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ipoibu.base.addr import PKey
from ipoibu.base.errors import LinkError, UsageError
from ipoibu.base.ib import IWARP, PartitionParams, PortInfo
from ipoibu.base.limits import (
    DEFAULT_IB_MTU,
    DEFAULT_QKEY,
    ENCAP_LEN,
    IB_MTUS,
    SOFT_DATAGRAM_MAX_BYTES,
)
from ipoibu.proto.groups.link_params import partition_params

if TYPE_CHECKING:
    from ipoibu.fabric.partition.model import Group, Partition, Partitions


def link_params(
    port: PortInfo,
    *,
    pkey: PKey,
    qkey: int | None = None,
    mtu_bytes: int | None = None,
    partitions: Path | None = None,
) -> PartitionParams:
    """Return the parameters of the link on `port`; None stands for the value of the file, or the default.

    `mtu_bytes` is the IP MTU. `UsageError`: an option is wrong or contradicts the file. `LinkError`: the
    port is no member of the partition or cannot carry the link. Both name the file and the line.
    """
    if partitions is None:
        return partition_params(
            port,
            pkey=pkey,
            qkey=DEFAULT_QKEY if qkey is None else qkey,
            mtu_bytes=_ib_mtu_for(port, mtu_bytes),
        )
    from ipoibu.fabric.partition.conf import read  # few links have a file
    from ipoibu.fabric.partition.model import MemberType

    partition, _ = link_group(read(partitions), pkey, qkey, mtu_bytes)
    guid = int.from_bytes(port.guid, "big")
    membership = partition.membership(guid)  # no port is SELF: there is no subnet manager
    if membership is None:
        raise LinkError(
            f"{partition.place}: {port.device}/{port.port} is no member of partition {partition.name} "
            f"({pkey.full}): add 0x{guid:016x}=full to its members"
        )
    params = partition.params(port)
    return replace(params, is_limited=membership is MemberType.LIMITED)


def link_group(
    partitions: Partitions, pkey: PKey, qkey: int | None, mtu_bytes: int | None
) -> tuple[Partition, Group]:
    """Return the partition of `pkey` and its link's broadcast group, which the options must not contradict;
    every check that needs no port. `UsageError` and `LinkError` as `link_params`."""
    partition = partitions.partition(PKey.parse(str(pkey)))
    group = partition.broadcast_group()
    partition.own_params(group)
    if qkey not in (None, group.qkey):
        raise UsageError(f"{group.place}: the link's Q_Key is {group.qkey:#x}, not {qkey:#x}")
    largest = group.mtu_bytes - ENCAP_LEN
    if mtu_bytes is not None and mtu_bytes > largest:
        raise UsageError(f"{group.place}: the link carries an MTU of {largest}, not {mtu_bytes}")
    return partition, group


def _ib_mtu_for(port: PortInfo, ip_mtu_bytes: int | None) -> int | None:
    """Return the InfiniBand MTU that carries this IP MTU; None if the default does (T1)."""
    if port.link_layer == IWARP:
        return None if ip_mtu_bytes is None else ip_mtu_bytes + ENCAP_LEN
    needed = 0 if ip_mtu_bytes is None else ip_mtu_bytes + ENCAP_LEN
    if needed <= DEFAULT_IB_MTU:
        return None
    largest = IB_MTUS[-1] if port.datagram_bytes is None else SOFT_DATAGRAM_MAX_BYTES
    if needed > largest:
        raise UsageError(
            f"MTU {ip_mtu_bytes} is too large for datagram mode: choose at most {largest - ENCAP_LEN}"
        )
    fitting = [mtu for mtu in IB_MTUS if mtu >= needed]
    if port.datagram_bytes is not None and (not fitting or fitting[0] > port.active_mtu_bytes):
        return needed
    return fitting[0]
