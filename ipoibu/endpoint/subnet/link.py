# SPDX-License-Identifier: BSD-2-Clause
"""The parameters of an interface's link, as its configuration asks for them."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from ipoibu.base.addr import PKey
from ipoibu.base.errors import UsageError
from ipoibu.base.ib import PartitionParams
from ipoibu.endpoint.config import EndpointConfig
from ipoibu.fabric import link
from ipoibu.fabric.shared_port import SharedPort


class Wishes(TypedDict):
    pkey: PKey
    qkey: int | None
    mtu_bytes: int | None
    partitions: Path | None


def wishes(config: EndpointConfig) -> Wishes:
    return {
        "pkey": config.pkey,
        "qkey": config.qkey,
        "mtu_bytes": config.datagram_mtu,
        "partitions": config.partitions,
    }


def params_of(port: SharedPort, config: EndpointConfig) -> PartitionParams:
    """Return the parameters of the link that `config` names; where there is an SA, join the link, and
    wait."""
    if port.sa is None and config.allmulticast:
        raise UsageError(
            f"{port.info.device}: allmulticast needs a subnet administrator: "
            "nothing else knows which groups there are"
        )
    return link.joined_params(port, **wishes(config))
