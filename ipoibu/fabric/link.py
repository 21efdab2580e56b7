# SPDX-License-Identifier: BSD-2-Clause
"""The parameters of a link: from the subnet administrator, or else as given."""

from __future__ import annotations

from pathlib import Path

from ipoibu.base.addr import PKey
from ipoibu.base.errors import UsageError
from ipoibu.base.ib import PartitionParams
from ipoibu.fabric.base import Port
from ipoibu.fabric.partition import provision
from ipoibu.proto.groups.link_params import permit


def joined_params(
    port: Port,
    *,
    pkey: PKey,
    qkey: int | None = None,
    mtu_bytes: int | None = None,
    partitions: Path | None = None,
) -> PartitionParams:
    """Return the parameters of the link in partition `pkey`; where there is an SA, join the link, and wait.

    `mtu_bytes` is the IP MTU, `partitions` a partitions.conf. `UsageError`, `LinkError`, `NotPermitted`.
    """
    if port.sa is None:
        return static_params(port, pkey=pkey, qkey=qkey, mtu_bytes=mtu_bytes, partitions=partitions)
    if partitions is not None:
        raise UsageError(
            f"{port.info.device}: the subnet administrator sets the link's parameters, not {partitions}"
        )
    from ipoibu.fabric.sa.link import join_link  # few links have an SA

    return join_link(
        port.sa,
        port.info,
        pkey=pkey,
        qkey=qkey,
        mtu_bytes=mtu_bytes,
        may_control=port.may_control,
    )


def static_params(
    port: Port,
    *,
    pkey: PKey,
    qkey: int | None = None,
    mtu_bytes: int | None = None,
    partitions: Path | None = None,
) -> PartitionParams:
    """Return the parameters of a link that nobody administers."""
    params = provision.link_params(
        port.info, pkey=pkey, qkey=qkey, mtu_bytes=mtu_bytes, partitions=partitions
    )
    permit(params, f"{port.info.device}/{port.info.port}", port.may_control)
    return params


def leave_link(port: Port, pkey: PKey) -> None:
    """Undo `joined_params`, for an interface that did not come up."""
    if port.sa is not None:
        from ipoibu.fabric.sa.link import leave_link

        leave_link(port.sa, pkey)
