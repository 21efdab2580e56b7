# SPDX-License-Identifier: BSD-2-Clause
"""Values that every layer speaks of: destinations, connection attributes, ports and partitions."""

from __future__ import annotations

from dataclasses import dataclass

from ipoibu.addr import Gid, PKey, Qpn


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a datagram goes on the fabric: the address vector and the queue pair. Units as in a path record.

    `dlid` is 0 where the fabric routes by GID (RoCE, soft); `qpn` is 0xFFFFFF for a multicast `gid` (E5).
    """

    gid: Gid
    qpn: Qpn
    dlid: int = 0
    sl: int = 0
    static_rate: int = 0
    hop_limit: int = 64
    traffic_class: int = 0
    flow_label: int = 0

    @property
    def needs_grh(self) -> bool:
        """Only what stays on an InfiniBand subnet and is for one port goes without (E4, B6)."""
        return self.dlid == 0 or self.hop_limit > 1 or self.gid.is_multicast


@dataclass(frozen=True, slots=True)
class RcAttributes:
    """What takes a connected queue pair from INIT to RTR (ready to receive) and RTS (to send).

    `destination` is the address vector with the peer's queue pair. `receive_psn` is what the peer sends
    first, `send_psn` what we do. `ack_timeout` is a code, 4.096 µs times 2 to its power; so is
    `rnr_timer`, by a table of its own (0 is the longest, 655 ms).
    """

    destination: Destination
    path_mtu_bytes: int
    receive_psn: int
    send_psn: int
    ack_timeout: int
    retries: int = 0
    rnr_retries: int = 0
    rnr_timer: int = 12  # 640 µs


@dataclass(frozen=True, slots=True)
class GroupParams:
    """What an administrator gave one multicast group apart from the broadcast group's parameters."""

    mgid: Gid
    sl: int
    traffic_class: int
    flow_label: int


@dataclass(frozen=True, slots=True)
class PartitionParams:
    """What every member of the IPoIB link agrees on; from the broadcast group or from configuration (B1).

    `mtu_bytes` is the InfiniBand MTU (256..4096): the IP MTU of datagram mode is 4 less. `pkey` is
    the link's and always full (E7); `is_limited` is this port's own membership.
    """

    pkey: PKey
    qkey: int
    mtu_bytes: int
    scope: int = 2
    sl: int = 0
    hop_limit: int = 64
    traffic_class: int = 0
    flow_label: int = 0
    rate: int = 0
    is_limited: bool = False
    groups: tuple[GroupParams, ...] = ()

    @property
    def own_pkey(self) -> PKey:
        """The key of this port's table that the queue pair uses: limited for a limited member."""
        return PKey(self.pkey & 0x7FFF) if self.is_limited else self.pkey


IWARP = "iWARP"  # a link layer


@dataclass(frozen=True, slots=True)
class PortInfo:
    """A port as found when it was opened. `active_mtu_bytes` is its InfiniBand MTU (256..4096).

    `guid` is the port GUID as it stands in the GID's low 64 bits (A3); `link_layer` is "InfiniBand"
    or "Ethernet", as `rdma link` has it, or "iWARP", whose MTU is that of the mesh (docs/mesh.md);
    `netdev` is the net device below, where there is one.
    """

    device: str
    port: int
    gid: Gid
    guid: bytes
    active_mtu_bytes: int
    link_layer: str
    netdev: str | None
