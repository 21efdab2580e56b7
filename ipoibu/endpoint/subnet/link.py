# SPDX-License-Identifier: BSD-2-Clause
"""The parameters of an interface's link: from the subnet administrator, or else from the configuration."""

from __future__ import annotations

from ipoibu.base.addr import PKey
from ipoibu.base.errors import UsageError
from ipoibu.base.ib import PartitionParams
from ipoibu.endpoint.config import EndpointConfig
from ipoibu.fabric.partition import provision
from ipoibu.fabric.shared_port import SharedPort
from ipoibu.proto.groups.link_params import permit


def params_of(port: SharedPort, config: EndpointConfig) -> PartitionParams:
    """Return the parameters of the link that `config` names; where there is an SA, join the link, and
    wait."""
    if port.sa is None:
        if config.allmulticast:
            raise UsageError(
                f"{port.info.device}: allmulticast needs a subnet administrator: "
                "nothing else knows which groups there are"
            )
        return static_params(port, config)
    if config.partitions is not None:
        raise UsageError(
            f"{port.info.device}: the subnet administrator sets the link's parameters, "
            f"not {config.partitions}"
        )
    from ipoibu.endpoint.subnet.sa_link import join_link  # few links have an SA

    return join_link(
        port.sa,
        port.info,
        pkey=config.pkey,
        qkey=config.qkey,
        mtu_bytes=config.datagram_mtu,
        may_control=port.may_control,
    )


def static_params(port: SharedPort, config: EndpointConfig) -> PartitionParams:
    """Return the parameters of a link that nobody administers."""
    params = provision.link_params(
        port.info,
        pkey=config.pkey,
        qkey=config.qkey,
        mtu_bytes=config.datagram_mtu,
        partitions=config.partitions,
    )
    permit(params, f"{port.info.device}/{port.info.port}", port.may_control)
    return params


def leave_link(port: SharedPort, pkey: PKey) -> None:
    """Undo `params_of`, for an interface that did not come up."""
    if port.sa is not None:
        from ipoibu.endpoint.subnet.sa_link import leave_link

        leave_link(port.sa, pkey)
