# SPDX-License-Identifier: BSD-2-Clause
"""What a mesh has its connections do: the effects of `Mesh`, which `fabric.mesh` and `fabric.unicast` carry
out."""

from __future__ import annotations

from dataclasses import dataclass

from ipoibu.base.addr import Gid, HwAddr, IpAddress
from ipoibu.proto.effects import Count, Log
from ipoibu.wire.mesh import Greeting, Locator

Handle = int


@dataclass(frozen=True, slots=True)
class Dial:
    """Connect to the host that listens at `locator`; `note_opened` or `note_ended` answers.

    The greeting says whether a peer introduced us to this host (`is_introduced`).
    """

    handle: Handle
    locator: Locator
    is_introduced: bool = False


@dataclass(frozen=True, slots=True)
class Accept:
    """Accept the connection of `note_requested`; `note_established` or `note_ended` follows."""

    handle: Handle


@dataclass(frozen=True, slots=True)
class Refuse:
    """Refuse the connection of `note_requested`; the handle is dead."""

    handle: Handle


@dataclass(frozen=True, slots=True)
class Hangup:
    """End the connection in any state; the handle is dead."""

    handle: Handle


@dataclass(frozen=True, slots=True)
class Name:
    """Send packets for the greeting's hardware address by this connection.

    iWARP has the host that asked for a connection send first.
    """

    handle: Handle
    greeting: Greeting
    speaks_first: bool


@dataclass(frozen=True, slots=True)
class Met:
    """Both hosts know each other: accept the peer's packets before the messages that follow make it send
    some. `former` is the connection with the peer that this one replaces; its `Hangup` follows."""

    handle: Handle
    former: Handle | None = None


@dataclass(frozen=True, slots=True)
class SendControl:
    """Send a control message to a peer."""

    handle: Handle
    message: bytes


@dataclass(frozen=True, slots=True)
class InGroups:
    """All groups that a peer is in."""

    handle: Handle
    mgids: tuple[Gid, ...]


@dataclass(frozen=True, slots=True)
class InGroup:
    """A peer joined a group, or left it."""

    handle: Handle
    mgid: Gid
    is_in: bool


@dataclass(frozen=True, slots=True)
class Learned:
    """A peer announces its IP addresses."""

    hwaddr: HwAddr
    addresses: tuple[IpAddress, ...]


@dataclass(frozen=True, slots=True)
class Gone:
    """No connection with this host is left: it is no peer any more."""

    hwaddr: HwAddr


@dataclass(frozen=True, slots=True)
class OtherVersion:
    """We refuse a host, or it refuses us, because its GID has the other IP version."""

    gid: Gid


MeshEffect = (
    Dial
    | Accept
    | Refuse
    | Hangup
    | Name
    | Met
    | SendControl
    | InGroups
    | InGroup
    | Learned
    | Gone
    | OtherVersion
    | Count
    | Log
)
