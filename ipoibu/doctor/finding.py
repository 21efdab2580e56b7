# SPDX-License-Identifier: BSD-2-Clause
"""A result of the checkup, and the check of a net device's MTU, which all kinds of devices share."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from ipoibu.base.limits import (
    DEFAULT_IB_MTU,
    ENCAP_LEN,
    IB_MTUS,
    IPV6_MIN_MTU,
    ROCE_OVERHEAD_BYTES,
    SOFT_DATAGRAM_MAX_BYTES,
    SOFT_IPV4_OVERHEAD_BYTES,
    SOFT_OVERHEAD_BYTES,
)
from ipoibu.host.netlink import Link

Status = Literal["ok", "info", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, with the command that repairs it as `remedy`, or None.

    `fail` prevents an interface, `warn` costs speed or a feature, `info` does neither.
    """

    check: str
    status: Status
    detail: str
    remedy: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _fitting(link: Link) -> list[int]:
    """The InfiniBand MTUs that the net device carries, as rxe computes them."""
    return [mtu for mtu in IB_MTUS if mtu + ROCE_OVERHEAD_BYTES <= link.mtu_bytes]


def datagram_mtu(link: Link, *, over_ipv4: bool = False) -> Finding:
    """Check the MTU of a net device below the built-in HCA, whose datagrams may have any length."""
    overhead = SOFT_IPV4_OVERHEAD_BYTES if over_ipv4 else SOFT_OVERHEAD_BYTES
    if not _fitting(link):
        return device_mtu(link)
    room = min(link.mtu_bytes - overhead, SOFT_DATAGRAM_MAX_BYTES) & ~3
    ip_mtu = room - ENCAP_LEN
    detail = f"MTU {link.mtu_bytes} of {link.name} carries an IP MTU of {ip_mtu}"
    if ip_mtu < IPV6_MIN_MTU:
        remedy = f"ip link set {link.name} mtu 1500"
        return Finding("mtu", "warn", f"{detail}: no IPv6, which needs {IPV6_MIN_MTU}", remedy)
    if room < DEFAULT_IB_MTU:
        if over_ipv4:
            return Finding("mtu", "ok", detail)
        beside_rxe = _fitting(link)[-1] - ENCAP_LEN
        return Finding("mtu", "ok", f"{detail}; beside rxe, use --mtu {beside_rxe} on every host")
    return Finding("mtu", "ok", f"{detail}; the default is {DEFAULT_IB_MTU - ENCAP_LEN}")


def device_mtu(link: Link) -> Finding:
    fitting = _fitting(link)
    if not fitting:
        return Finding(
            "mtu",
            "fail",
            f"MTU {link.mtu_bytes} of {link.name} is below {IB_MTUS[0] + ROCE_OVERHEAD_BYTES}",
            f"ip link set {link.name} mtu {4096 + ROCE_OVERHEAD_BYTES}",
        )
    ip_mtu = fitting[-1] - 4
    detail = f"MTU {link.mtu_bytes} of {link.name} carries an IP MTU of {ip_mtu}"
    if ip_mtu < IPV6_MIN_MTU:
        remedy = f"ip link set {link.name} mtu {2048 + ROCE_OVERHEAD_BYTES}"
        return Finding("mtu", "warn", detail + f": no IPv6, which needs {IPV6_MIN_MTU}", remedy)
    return Finding("mtu", "ok", detail)
