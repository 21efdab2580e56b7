# SPDX-License-Identifier: BSD-2-Clause
"""A result of the checkup, and the check of a net device's MTU, which all kinds of devices share."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from ipoibu.host.netlink import Link
from ipoibu.limits import IB_MTUS, IPV6_MIN_MTU, ROCE_OVERHEAD_BYTES

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


def device_mtu(link: Link) -> Finding:
    room = link.mtu_bytes - ROCE_OVERHEAD_BYTES
    fitting = [mtu for mtu in IB_MTUS if mtu <= room]
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
