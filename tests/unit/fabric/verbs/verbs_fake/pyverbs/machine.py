# SPDX-License-Identifier: BSD-2-Clause
"""The machine as the test describes it, and a log of the calls."""

from __future__ import annotations

from dataclasses import dataclass, field

IB, IWARP = 0, 1  # transports


@dataclass
class Machine:
    devices: dict[str, int] = field(default_factory=lambda: {"rxe0": IB})  # name: transport
    state: int = 4
    active_mtu: int = 5
    link_layer: int = 2
    active_width: int = 2  # 4 lanes
    active_speed: int = 32  # EDR
    gids: list[tuple[int, str, int, int, int]] = field(  # index, GID, type, ifindex, port
        default_factory=lambda: [(0, "fe80::ff:fe00:101", 2, 1, 1)]
    )
    pkeys: list[int] = field(default_factory=lambda: [0xFFFF])
    max_ah: int = 32767
    max_qp_wr: int = 1 << 20
    max_cqe: int = 32767
    max_inline: int = 400
    max_srq: int = 1000
    vendor_id: int = 0xFFFFFF  # Soft-RoCE
    errors: dict[str, int] = field(default_factory=dict)  # call that fails: errno
    log: list[str] = field(default_factory=list)


machine = Machine()


def begin(what: str) -> None:
    """Log the call, and fail if the test wants that."""
    from pyverbs.pyverbs_error import PyverbsRDMAError  # type: ignore[import-not-found,unused-ignore]

    machine.log.append(what)
    if what in machine.errors:
        raise PyverbsRDMAError(f"Failed to {what}", machine.errors[what])
