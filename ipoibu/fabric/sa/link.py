# SPDX-License-Identifier: BSD-2-Clause
"""The parameters of a link that a subnet administrator (SA) keeps: the interface joins the link, and reads
them in the record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ipoibu.base.addr import PKey
from ipoibu.base.errors import IpoibuError, LinkError, UsageError
from ipoibu.base.ib import PartitionParams, PortInfo
from ipoibu.base.limits import ENCAP_LEN
from ipoibu.fabric.sa.client import SaClient
from ipoibu.proto.groups.link_params import permit
from ipoibu.proto.sa.partition_line import partition_line
from ipoibu.proto.sa.records import link_params
from ipoibu.wire import mgid
from ipoibu.wire.mcmember import JoinState


def join_link(
    sa: SaClient,
    port: PortInfo,
    *,
    pkey: PKey,
    qkey: int | None,
    mtu_bytes: int | None,
    may_control: Callable[[], bool],
) -> PartitionParams:
    """Join the broadcast group of `pkey`'s link, whose record has all parameters of the link (B1), and wait
    for it.

    `LinkError` if the port is not in the partition, cannot carry the link's MTU (B2) or the SA
    refuses or is silent; `UsageError` for options that contradict the link; `NotPermitted` for a
    controlled Q_Key (B3) unless `may_control`.
    """
    return sa.submit(
        lambda: joined_link(
            sa, port, pkey=pkey, qkey=qkey, mtu_bytes=mtu_bytes, may_control=may_control
        )
    ).result()


async def joined_link(
    sa: SaClient,
    port: PortInfo,
    *,
    pkey: PKey,
    qkey: int | None,
    mtu_bytes: int | None,
    may_control: Callable[[], bool],
) -> PartitionParams:
    """Join the broadcast group as `join_link` does, but on the SA client's own loop."""
    place = f"{port.device}/{port.port}"
    sa.check_port()
    own = own_pkey(sa, pkey)
    if own is None:
        guid = int.from_bytes(port.guid, "big")
        raise LinkError(
            f"{place}: no P_Key {pkey.full}; it has: {sa.info.pkeys_text}; "
            f"the subnet manager gives it with: {partition_line(pkey, guid=guid)}"
        )
    group = mgid.broadcast(pkey.full)
    if (group, JoinState.FULL_MEMBER) in sa.held:
        # The SA counts a port's membership once: the first interface to leave would end the other's, too.
        raise UsageError(f"{place}: there is an interface in partition {pkey.full} already")
    record = await sa.join(group)
    try:
        params = link_params(record)
        _check(params, place, port, qkey=qkey, mtu_bytes=mtu_bytes)
        permit(params, place, may_control)
    except IpoibuError:
        await sa.leave(group)
        raise
    return replace(params, is_limited=not own & 0x8000)


def own_pkey(sa: SaClient, pkey: PKey) -> PKey | None:
    """Return the port's key for the partition, the full key if it has both; None if the port is not in the
    partition."""
    keys = [key for key in sa.info.pkeys if key.full == pkey.full and key & 0x7FFF]
    return max(keys, default=None)


def pkey_place(sa: SaClient, pkey: PKey) -> tuple[int, PKey] | None:
    """Return the index and the value of the port's key for the partition: a queue pair is bound to both."""
    own = own_pkey(sa, pkey)
    return None if own is None else (sa.info.pkeys.index(own), own)


def _check(
    params: PartitionParams,
    place: str,
    port: PortInfo,
    *,
    qkey: int | None,
    mtu_bytes: int | None,
) -> None:
    if params.mtu_bytes > port.active_mtu_bytes:
        raise LinkError(
            f"{place} carries an InfiniBand MTU of {port.active_mtu_bytes}, the link of "
            f"{params.pkey} has {params.mtu_bytes}: raise the port's, or lower mtu= of the partition"
        )
    if qkey not in (None, params.qkey):
        raise UsageError(f"{place}: the link's Q_Key is {params.qkey:#x}, not {qkey:#x}")
    largest = params.mtu_bytes - ENCAP_LEN
    if mtu_bytes is not None and mtu_bytes > largest:
        raise UsageError(f"{place}: the link carries an MTU of {largest}, not {mtu_bytes}")


def leave_link(sa: SaClient, pkey: PKey) -> None:
    """Leave the link, for an interface that did not come up."""
    group = mgid.broadcast(pkey.full)
    if (group, JoinState.FULL_MEMBER) in sa.held:
        sa.submit(lambda: sa.leave(group))
