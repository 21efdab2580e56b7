# SPDX-License-Identifier: BSD-2-Clause
"""The link's parameters where no subnet administrator gives them: from options, or partitions.conf.

With a file it is the file that every member of the link reads: an option may ask for less than it
says (a smaller IP MTU), never for something else.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ipoibu.addr import PKey
from ipoibu.errors import LinkError, UsageError
from ipoibu.fabric.partition.conf import read
from ipoibu.fabric.partition.model import MemberType
from ipoibu.ib import IWARP, PartitionParams, PortInfo
from ipoibu.limits import DEFAULT_IB_MTU, DEFAULT_QKEY, ENCAP_LEN, IB_MTUS
from ipoibu.proto.link_params import partition_params


def link_params(
    port: PortInfo,
    *,
    pkey: PKey,
    qkey: int | None = None,
    mtu_bytes: int | None = None,
    partitions: Path | None = None,
) -> PartitionParams:
    """The parameters of the link on `port`; None stands for what the file, or the default, says.

    `mtu_bytes` is the IP MTU. `UsageError` for options that are wrong or contradict the file,
    `LinkError` if the partition does not have this port or the port cannot carry the link; both name
    the file and the line.
    """
    if partitions is None:
        return partition_params(
            port,
            pkey=pkey,
            qkey=DEFAULT_QKEY if qkey is None else qkey,
            mtu_bytes=_ib_mtu_for(port, mtu_bytes),
        )
    found = read(partitions).partition(PKey.parse(str(pkey)))
    guid = int.from_bytes(port.guid, "big")
    membership = found.membership(guid)  # nobody is SELF: there is no subnet manager
    if membership is None:
        raise LinkError(
            f"{found.place}: {port.device}/{port.port} is no member of partition {found.name} "
            f"({pkey.full}): add 0x{guid:016x}=full to its members"
        )
    params = found.params(port)
    place = found.broadcast_group().place
    if qkey not in (None, params.qkey):
        raise UsageError(f"{place}: the link's Q_Key is {params.qkey:#x}, not {qkey:#x}")
    largest = params.mtu_bytes - ENCAP_LEN
    if mtu_bytes is not None and mtu_bytes > largest:
        raise UsageError(f"{place}: the link carries an MTU of {largest}, not {mtu_bytes}")
    return replace(params, is_limited=membership is MemberType.LIMITED)


def _ib_mtu_for(port: PortInfo, ip_mtu_bytes: int | None) -> int | None:
    """The InfiniBand MTU that carries this IP MTU; None where the default does (T1)."""
    if port.link_layer == IWARP:
        return None if ip_mtu_bytes is None else ip_mtu_bytes + ENCAP_LEN
    needed = 0 if ip_mtu_bytes is None else ip_mtu_bytes + ENCAP_LEN
    if needed <= DEFAULT_IB_MTU:
        return None
    for mtu_bytes in IB_MTUS:
        if needed <= mtu_bytes:
            return mtu_bytes
    raise UsageError(
        f"MTU {ip_mtu_bytes} is too large for datagram mode: choose at most {IB_MTUS[-1] - ENCAP_LEN}"
    )
