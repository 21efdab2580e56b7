# SPDX-License-Identifier: BSD-2-Clause
"""Values that all layers share: destinations, connection attributes, ports and partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ipoibu.base.addr import Gid, PKey, Qpn


@dataclass(frozen=True, slots=True)
class Destination:
    """A datagram's address vector and queue pair; units as in a path record.

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
        """Return whether a packet needs a GRH: all do but unicast inside one InfiniBand subnet (E4, B6)."""
        return self.dlid == 0 or self.hop_limit > 1 or self.gid.is_multicast


@dataclass(frozen=True, slots=True)
class RcAttributes:
    """The attributes that take a connected queue pair from INIT to RTR (ready to receive) and RTS (to send).

    `destination` is the address vector with the peer's queue pair. `receive_psn` is the peer's
    first PSN, `send_psn` ours. `ack_timeout` is a code: 4.096 µs times 2 to the power of the code.
    `rnr_timer` is a code with a table of its own (0 is the longest, 655 ms).
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
    """A multicast group's own parameters, where partitions.conf gives others than those of the
    broadcast group."""

    mgid: Gid
    sl: int
    traffic_class: int
    flow_label: int


@dataclass(frozen=True, slots=True)
class PartitionParams:
    """The parameters that all hosts of a link share; from the broadcast group or the configuration (B1).

    `mtu_bytes` is the InfiniBand MTU (256..4096): the IP MTU of datagram mode is 4 less. `pkey` is
    that of the link and always full (E7); `is_limited` says whether this port is a limited member.
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

    def destination(self, gid: Gid, qpn: Qpn) -> Destination:
        """Return the address vector of a host or group of a link that nobody administers."""
        return Destination(
            gid,
            qpn,
            sl=self.sl,
            static_rate=self.rate,
            hop_limit=self.hop_limit,
            traffic_class=self.traffic_class,
            flow_label=self.flow_label,
        )

    @property
    def own_pkey(self) -> PKey:
        """Return the P_Key of the queue pair, as in the port's table: limited for a limited member."""
        return PKey(self.pkey & 0x7FFF) if self.is_limited else self.pkey


IWARP = "iWARP"  # a link layer
ETHERNET = "Ethernet"  # the link layer of RoCE


@dataclass(frozen=True, slots=True)
class PortInfo:
    """A port at the time of its opening; `active_mtu_bytes` is its InfiniBand MTU (256..4096).

    `datagram_bytes` is the longest UD message, where it may have any length; None: an InfiniBand MTU.

    `train_bytes` bounds a train, by which datagrams of one size leave together; 0: each leaves by itself.

    `guid` is the port GUID in the form of the GID's low 64 bits (A3); `link_layer` is "InfiniBand" or
    "Ethernet", as in `rdma link`, or "iWARP", whose MTU is that of the mesh (docs/use/mesh.md); `netdev` is
    the net device below, if there is one; `gid_by` says why the GID is this address, if the routes to the
    peers have chosen it.
    """

    device: str
    port: int
    gid: Gid
    guid: bytes
    active_mtu_bytes: int
    link_layer: str
    netdev: str | None
    datagram_bytes: int | None = None
    train_bytes: int = 0
    gid_by: str | None = None

    @property
    def longest_datagram_bytes(self) -> int:
        return self.datagram_bytes or self.active_mtu_bytes


# Codes of PortInfo (IBA 14.2.5.6): lanes, and Mb/s of a lane as the kernel's ib_ipoib reports them
# (ipoib_ethtool.c).
_LANES: Final = {1: 1, 2: 4, 4: 8, 8: 12, 16: 2}
_LANE_MBPS: Final = {
    1: 2500,
    2: 5000,
    4: 10_000,
    8: 10_000,
    16: 14_000,
    32: 25_000,
    64: 50_000,
    128: 100_000,
    256: 200_000,
}


def port_speed_mbps(width_code: int, speed_code: int) -> int | None:
    """Return a port's speed in Mb/s by its active width and speed; None for codes that we do not know."""
    lanes, lane_mbps = _LANES.get(width_code), _LANE_MBPS.get(speed_code)
    return lanes * lane_mbps if lanes and lane_mbps else None
