# SPDX-License-Identifier: BSD-2-Clause
"""Effects: plain values that every input of the engine returns, in the order to carry them out.

The shell carries them out: `Publish`, `Withdraw`, `SendFrame`, `SendPacket`, `Forward`, `WatchDhcp`,
`Deliver`, `SetGuest`, `DropGuest`, `SetQueuePair`, `SetNeighbour` and `DropNeighbour` become commands to the
pump;
`Attach` and `Detach` go to the fabric and, under a subnet administrator (SA), join and leave the group;
`FindPath`, `JoinToSend` and `LeaveToSend` go to the SA client; the rest to the host side.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ipoibu.base.addr import Gid, HwAddr, IpAddress, Mac, Qpn
from ipoibu.base.ib import Destination
from ipoibu.wire.arp import Arp
from ipoibu.wire.ndisc import NeighbourSolicitation

if TYPE_CHECKING:
    from ipoibu.wire import dhcp6
    from ipoibu.wire.dhcp import Message
    from ipoibu.wire.dhcp6_lease import Lease6
    from ipoibu.wire.dhcp_lease import Lease


class NeighAction(enum.IntEnum):
    """The pump's action on a packet whose next hop has this table entry (`ext/pump/tables/neigh.h`)."""

    SEND = 0  # to `destination`
    NOTIFY = 1  # to `destination`, and report the first use to the engine (`Engine.note_used`)
    HOLD = 2  # a counted drop: resolution is under way and the pending queue is full
    UNREACHABLE = 3  # a counted drop, reported to the engine at a bounded rate


@dataclass(frozen=True, slots=True)
class Publish:
    """Write the pump's table entry of `next_hop` (unicast, group or 255.255.255.255).

    `mtu_bytes` bounds the IP packet towards it; `destination` is None for HOLD and UNREACHABLE. `hwaddr` is
    the hardware address that a unicast destination announced; connected mode needs it.
    """

    next_hop: IpAddress
    action: NeighAction
    destination: Destination | None
    mtu_bytes: int
    hwaddr: HwAddr | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Remove the pump's entry: the next packet to `next_hop` is a miss again."""

    next_hop: IpAddress


@dataclass(frozen=True, slots=True)
class OwnAddress:
    """We answer for `address`, or no longer: the pump filters ARP and ND by these addresses."""

    address: IpAddress
    is_ours: bool


@dataclass(frozen=True, slots=True)
class AskArp:
    """`Engine.note_arp_answer` has to follow, with what the kernel does with the asking host's packets to the
    address that it asks for."""

    request: Arp
    is_multicast: bool = False  # the request came to all hosts, not to us alone


@dataclass(frozen=True, slots=True)
class AskProxy:
    """`Engine.note_proxy_answer` has to follow, with the kernel's route for packets from `sender` to
    `target`."""

    request: Arp | NeighbourSolicitation
    asker: HwAddr | None  # None: the answer to an IPv6 probe goes to all nodes
    is_multicast: bool

    @property
    def sender(self) -> IpAddress:
        """The address that asks; unspecified in a probe."""
        return self.request.sender_ip if isinstance(self.request, Arp) else self.request.source

    @property
    def target(self) -> IpAddress:
        return self.request.target_ip if isinstance(self.request, Arp) else self.request.target


@dataclass(frozen=True, slots=True)
class SendFrame:
    """Send `frame` (encapsulation header and payload) as a UD datagram to `destination`, from our queue pair
    or from `source`, a guest's."""

    destination: Destination
    frame: bytes
    source: Qpn | None = None


@dataclass(frozen=True, slots=True)
class SendPacket:
    """Send an IP packet that missed before and must hit now; with Ethernet hand-off a guest's frame,
    whose source the engine has checked.

    `next_hop` is the entry that it must hit, if the engine knows it.
    """

    packet: bytes
    next_hop: IpAddress | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Forward:
    """Send a packet of the local stack that the engine has looked at or kept, by its route; it may miss."""

    packet: bytes


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer the local stack's `packet`, whose next hop is dead, with the ICMP error `error`, unless the
    packet has another next hop by now."""

    packet: bytes
    next_hop: IpAddress
    error: bytes


@dataclass(frozen=True, slots=True)
class WatchDhcp:
    """From now on the engine gets DHCP requests to a single server, too, and replies of DHCP and DHCPv6."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand an IP packet to the local stack or application: router advertisements, ICMP errors, DHCP
    replies. With Ethernet hand-off it is a frame to the guests."""

    packet: bytes


@dataclass(frozen=True, slots=True)
class SetGuest:
    """Packets of the link for `ip` go to the guest `mac`, which `is_firm` about its address: then the
    pump drops packets of other guests from it (`ethernet_spoofed`), else it lets them pass."""

    ip: IpAddress
    mac: Mac
    is_firm: bool


@dataclass(frozen=True, slots=True)
class DropGuest:
    """No guest has `ip`: packets for it, and the first one from it, come up."""

    ip: IpAddress


@dataclass(frozen=True, slots=True)
class SetQueuePair:
    """Packets of the guest `mac` leave from the queue pair `qpn`, and what comes there is the guest's;
    None: it shares the interface's."""

    mac: Mac
    qpn: Qpn | None


@dataclass(frozen=True, slots=True)
class SetNeighbour:
    """Packets of the host `hwaddr` get the source `mac` towards the guests."""

    mac: Mac
    hwaddr: HwAddr


@dataclass(frozen=True, slots=True)
class DropNeighbour:
    """`mac` stands for no host: packets of its former host `hwaddr` have the interface's own MAC."""

    mac: Mac
    hwaddr: HwAddr


@dataclass(frozen=True, slots=True)
class LinkChanged:
    """The link came up (it has joined its broadcast group), or went down."""

    is_up: bool


@dataclass(frozen=True, slots=True)
class Attach:
    """Receive the group's datagrams; `Engine.note_attached` or `Engine.note_attach_failed` answers."""

    mgid: Gid


@dataclass(frozen=True, slots=True)
class Detach:
    """Stop receiving the group's datagrams; needs no answer."""

    mgid: Gid


@dataclass(frozen=True, slots=True)
class FindPath:
    """Ask the SA for the path to a port; `SaInputs.note_path_resolved` or
    `note_path_unresolved` follows (B6)."""

    gid: Gid


@dataclass(frozen=True, slots=True)
class JoinToSend:
    """Ask the SA for a membership that only sends; the answers are those of `FindPath` (M1).

    `detour` is the group of all routers, for packets beyond the link to a group that does not exist.
    """

    mgid: Gid
    detour: Gid | None = None


@dataclass(frozen=True, slots=True)
class LeaveToSend:
    """Give up the membership of `JoinToSend`; needs no answer."""

    mgid: Gid


@dataclass(frozen=True, slots=True)
class AddressVerdict:
    """Duplicate address detection ended; `duplicate` says whether another host has the address."""

    address: IpAddress
    duplicate: bool


@dataclass(frozen=True, slots=True)
class LeaseChanged:
    """The DHCP client has this lease since `since_s` by the acknowledgement `message`, or none."""

    lease: Lease | None
    since_s: float = 0.0
    message: Message | None = None


@dataclass(frozen=True, slots=True)
class Lease6Changed:
    """The DHCPv6 client has this lease since `since_s` by the reply `message`, or none."""

    lease: Lease6 | None
    since_s: float = 0.0
    message: dhcp6.Message | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """The host of `ip` answered while a ping waits for it; `hwaddr` is None if the answer has none."""

    ip: IpAddress
    hwaddr: HwAddr | None


@dataclass(frozen=True, slots=True)
class Count:
    """Add one to the named counter; `reason` is from a fixed set (docs/reference/counters.md)."""

    reason: str


@dataclass(frozen=True, slots=True)
class Log:
    """One line for the operator; `level` is a `logging` level."""

    level: int
    text: str


Effect = (
    Publish
    | Withdraw
    | OwnAddress
    | AskArp
    | AskProxy
    | SendFrame
    | SendPacket
    | Forward
    | Refuse
    | WatchDhcp
    | Deliver
    | SetGuest
    | DropGuest
    | SetQueuePair
    | SetNeighbour
    | DropNeighbour
    | Attach
    | Detach
    | FindPath
    | JoinToSend
    | LeaveToSend
    | LinkChanged
    | AddressVerdict
    | LeaseChanged
    | Lease6Changed
    | Answered
    | Count
    | Log
)
