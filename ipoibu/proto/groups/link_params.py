# SPDX-License-Identifier: BSD-2-Clause
"""The parameters of a partition without a subnet administrator: from the configuration, checked.

The operator gives the parameters that the broadcast group would have (B1). They have to be the same on
every host of the link, so the code adjusts nothing silently: it refuses a value that does not fit, and the
error names the values that do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ipoibu.base.addr import DEFAULT_PKEY, PKey
from ipoibu.base.errors import LinkError, NotPermitted, UsageError
from ipoibu.base.ib import IWARP, PartitionParams, PortInfo
from ipoibu.base.limits import (
    DEFAULT_HOP_LIMIT,
    DEFAULT_IB_MTU,
    DEFAULT_QKEY,
    DEFAULT_SCOPE,
    ENCAP_LEN,
    IB_MTUS,
    IPV4_MIN_MTU,
    IPV6_MIN_MTU,
)

CONTROLLED_QKEY: Final = 0x80000000  # B3: only a process with CAP_NET_RAW may set such a key

_FIELDS: Final = {  # name: the largest value that fits
    "qkey": 0xFFFFFFFF,
    "sl": 0xF,
    "hop_limit": 0xFF,
    "traffic_class": 0xFF,
    "flow_label": 0xFFFFF,
    "rate": 0x3F,
}


def partition_params(
    port: PortInfo,
    *,
    pkey: int = DEFAULT_PKEY,
    qkey: int = DEFAULT_QKEY,
    mtu_bytes: int | None = None,
    scope: int = DEFAULT_SCOPE,
    sl: int = 0,
    hop_limit: int = DEFAULT_HOP_LIMIT,
    traffic_class: int = 0,
    flow_label: int = 0,
    rate: int = 0,
) -> PartitionParams:
    """Return the parameters of a link on `port`; `UsageError` or `LinkError` for values that do not fit.

    `mtu_bytes` is the link's MTU, by default 2048, or the longest datagram of the port if that is less
    (T1). It is an InfiniBand MTU, except on a port whose datagrams may have any length. The function always
    sets the full-membership bit of `pkey`, as Linux does for a child interface (E7).
    """
    given = {
        "qkey": qkey,
        "sl": sl,
        "hop_limit": hop_limit,
        "traffic_class": traffic_class,
        "flow_label": flow_label,
        "rate": rate,
    }
    for name, value in given.items():
        if not 0 <= value <= _FIELDS[name]:
            raise UsageError(f"{name} {value:#x} is out of range: choose 0..{_FIELDS[name]:#x}")
    if not 1 <= scope <= 0xE:
        raise UsageError(f"scope {scope:#x} is reserved: choose 0x1..0xe, as a rule 2 (link-local)")
    return PartitionParams(
        pkey=PKey.parse(str(pkey)).full,
        qkey=qkey,
        mtu_bytes=_ib_mtu(port, mtu_bytes),
        scope=scope,
        sl=sl,
        hop_limit=hop_limit,
        traffic_class=traffic_class,
        flow_label=flow_label,
        rate=rate,
    )


def ip_mtu(
    params: PartitionParams, requested_bytes: int | None = None, *, ipv6: bool = True
) -> int:
    """Return the IP MTU of an interface in datagram mode: that of the link, or a smaller requested one.

    `UsageError` if the MTU does not fit the link, or is less than 1280 and the interface carries `ipv6`
    (T3).
    """
    largest = params.mtu_bytes - ENCAP_LEN
    mtu_bytes = largest if requested_bytes is None else requested_bytes
    if not IPV4_MIN_MTU <= mtu_bytes <= largest:
        raise UsageError(f"MTU {mtu_bytes} does not fit: choose {IPV4_MIN_MTU}..{largest}")
    if ipv6 and mtu_bytes < IPV6_MIN_MTU:
        raise UsageError(
            f"MTU {mtu_bytes} is too small for IPv6, which needs {IPV6_MIN_MTU}: "
            "use IPv4 addresses only, or a port with a larger MTU"
        )
    return mtu_bytes


def _mesh_mtu(port: PortInfo, requested_bytes: int | None) -> int:
    """Return the MTU of a mesh, which is no InfiniBand MTU but any size up to the largest message."""
    if requested_bytes is None:
        return port.active_mtu_bytes
    if not IPV4_MIN_MTU + ENCAP_LEN <= requested_bytes <= port.active_mtu_bytes:
        largest = port.active_mtu_bytes - ENCAP_LEN
        raise UsageError(
            f"MTU {requested_bytes - ENCAP_LEN} does not fit: choose {IPV4_MIN_MTU}..{largest}"
        )
    return requested_bytes


def _ib_mtu(port: PortInfo, requested_bytes: int | None) -> int:
    """Return the InfiniBand MTU of the link, which must fit the port (B2)."""
    place = f"{port.device}/{port.port}"
    if port.link_layer == IWARP:
        return _mesh_mtu(port, requested_bytes)
    if port.active_mtu_bytes not in IB_MTUS:
        raise LinkError(f"{place} reports an MTU of {port.active_mtu_bytes}: no InfiniBand MTU")
    longest_bytes = port.longest_datagram_bytes
    if requested_bytes is None:
        return min(DEFAULT_IB_MTU, longest_bytes)
    if requested_bytes not in IB_MTUS and port.datagram_bytes is None:
        choices = ", ".join(map(str, IB_MTUS))
        raise UsageError(f"{requested_bytes} is not an InfiniBand MTU: choose one of {choices}")
    if requested_bytes > longest_bytes:
        kind = "a datagram" if port.datagram_bytes is not None else "an InfiniBand MTU"
        raise LinkError(
            f"{place} carries {kind} of {longest_bytes}, not {requested_bytes}: "
            "raise the MTU of its net device, or lower the link's"
        )
    return requested_bytes


def permit(params: PartitionParams, place: str, may_control: Callable[[], bool]) -> None:
    """Check B3 before the queue pair exists, so that the error can name the reason."""
    if params.qkey & CONTROLLED_QKEY and not may_control():
        raise NotPermitted(
            f"{place}: the link's Q_Key {params.qkey:#x} is a controlled one (bit 31), which "
            "needs CAP_NET_RAW; or give the partition another: Q_Key=0x0b1b"
        )
