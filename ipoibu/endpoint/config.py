# SPDX-License-Identifier: BSD-2-Clause
"""What an IPoIB endpoint is to be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ipoibu.addr import DEFAULT_PKEY, PKey
from ipoibu.errors import UsageError
from ipoibu.fabric.base import MeshOptions
from ipoibu.fabric.faults import FaultSpec
from ipoibu.limits import (
    BUSY_POLL_MAX_US,
    CONNECTION_IDLE_MAX_S,
    CONNECTION_IDLE_MIN_S,
    CONNECTION_IDLE_S,
    QUEUES_MAX,
)


@dataclass(frozen=True, slots=True)
class EndpointConfig:
    """What an endpoint is to be. `mtu` is the IP MTU; None: 2044, or what a smaller port carries.

    `mode` "connected" reaches stations that do likewise by reliable connections (RFC 4755), others by
    datagram; `mtu` is 65520 then, and what a neighbour does not take is told by ICMP. `cm_profile`:
    "linux" has a connection for each direction, "rfc" one for both (C6); all of a link had better agree.
    `connection_idle_s`: a connection that carries nothing for so long ends (C10).

    `partitions` is OpenSM's partitions.conf, which then says what the link of `pkey` is like; what is
    given here too must not contradict it. `qkey` None: the file's, or OpenSM's default. `parent`
    names the interface of which this one is a child. `busy_poll_us`: after the last packet the data path
    looks for the next for so long before it sleeps; costs CPU time, saves a wake-up. None: for 300 us after
    a short word (8 packets, 16 KiB) whose like were answered that soon. `mesh` says where the
    peers of an iWARP device are (docs/mesh.md). `allmulticast` is for multicast routers: every group of the
    link is received, as far as a subnet administrator tells which there are (M7). `queues`: the TUN has so
    many, each served by a thread of its own; datagram mode only, and not without a TUN.
    """

    name: str
    device: str
    port: int = 1
    pkey: PKey = DEFAULT_PKEY
    qkey: int | None = None
    mtu: int | None = None
    mode: str = "datagram"
    cm_profile: str = "linux"
    connection_idle_s: float = CONNECTION_IDLE_S
    faults: FaultSpec | None = None
    partitions: Path | None = None
    parent: str | None = None
    busy_poll_us: int | None = None
    mesh: MeshOptions | None = None
    allmulticast: bool = False
    queues: int = 1

    def __post_init__(self) -> None:
        if self.busy_poll_us is not None and not 0 <= self.busy_poll_us <= BUSY_POLL_MAX_US:
            raise UsageError(f"busy_poll_us {self.busy_poll_us}: expected 0 to {BUSY_POLL_MAX_US}")
        if not 1 <= self.queues <= QUEUES_MAX:
            raise UsageError(f"queues {self.queues}: expected 1 to {QUEUES_MAX}")
        if self.queues > 1 and self.mode == "connected":
            raise UsageError("one queue only in connected mode: a connection is one thread's")
        if not CONNECTION_IDLE_MIN_S <= self.connection_idle_s <= CONNECTION_IDLE_MAX_S:
            raise UsageError(
                f"connection_idle_s {self.connection_idle_s:g}: expected "
                f"{CONNECTION_IDLE_MIN_S:g} to {CONNECTION_IDLE_MAX_S:g}"
            )
