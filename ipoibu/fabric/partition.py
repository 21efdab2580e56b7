# SPDX-License-Identifier: BSD-2-Clause
"""Partitions as a subnet manager has them: who is a member, which groups it makes, what they are like."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from ipoibu.addr import Gid, PKey
from ipoibu.errors import LinkError
from ipoibu.fabric.base import PartitionParams, PortInfo
from ipoibu.limits import DEFAULT_SCOPE
from ipoibu.proto.partition import partition_params
from ipoibu.wire.mgid import broadcast
from ipoibu.wire.sa import MTU_CODES

DEFAULT_NAME: Final = "Default"
DEFAULT_PARTITION: Final = 0x7FFF
DEFAULT_MTU: Final = 4  # 2048 bytes
DEFAULT_RATE: Final = 3  # 10 Gb/s
FULL_BIT: Final = 0x8000


class Membership(enum.Enum):
    """How a port is in a partition; limited members do not hear each other."""

    LIMITED = "limited"
    FULL = "full"
    BOTH = "both"  # full, unless OpenSM runs with --allow_both_pkeys


class Ports(enum.Enum):
    """Words for many ports at once."""

    ALL = "ALL"
    ALL_CAS = "ALL_CAS"
    ALL_SWITCHES = "ALL_SWITCHES"
    ALL_ROUTERS = "ALL_ROUTERS"
    SELF = "SELF"  # the subnet manager's own


@dataclass(frozen=True, slots=True)
class Member:
    """A rule: `ports` by port GUID or by a word; a later one overrides those before it."""

    ports: int | Ports
    membership: Membership


@dataclass(frozen=True, slots=True)
class Group:
    """A multicast group that OpenSM creates by itself; parameters as the broadcast group's (B1)."""

    mgid: Gid
    qkey: int
    mtu_bytes: int
    rate: int
    sl: int
    traffic_class: int
    flow_label: int

    @property
    def scope(self) -> int:
        return self.mgid.raw[1] & 0xF


@dataclass(slots=True)
class Partition:
    """All definitions of one P_Key, whose membership bit is not looked at."""

    name: str
    pkey: PKey
    members: list[Member] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    is_first: bool = False  # `indx0`: the key stands first in the ports' tables

    def membership(self, guid: int, *, is_sm: bool = False) -> Membership | None:
        """How the port of a channel adapter is in the partition; None: not at all."""
        words = {Ports.ALL, Ports.ALL_CAS, guid} | ({Ports.SELF} if is_sm else set())
        rules = [member.membership for member in self.members if member.ports in words]
        return rules[-1] if rules else None

    def broadcast_groups(self) -> list[Group]:
        """What makes the partition one for IPoIB, one per scope; empty without the `ipoib` flag."""
        full = self.pkey.full
        return [group for group in self.groups if group.mgid == broadcast(full, group.scope)]

    def params(self, port: PortInfo, scope: int | None = None) -> PartitionParams:
        """The parameters of the link on `port`, where no subnet administrator tells them.

        Of several scopes link-local comes first, then the narrowest. `LinkError` if the partition is
        not for IPoIB, lacks the scope, or has an MTU that the port cannot carry (B2).
        """
        groups = sorted(self.broadcast_groups(), key=lambda g: (g.scope != DEFAULT_SCOPE, g.scope))
        group = next((g for g in groups if scope in (None, g.scope)), None)
        if group is None:
            wanted = "" if scope is None else f" of scope {scope:#x}"
            raise LinkError(
                f"partition {self.name} ({self.pkey.full}) has no broadcast group{wanted}: put into "
                f"partitions.conf: {line(self.pkey, scope=scope)}"
            )
        return partition_params(
            port,
            pkey=self.pkey,
            qkey=group.qkey,
            mtu_bytes=group.mtu_bytes,
            scope=group.scope,
            sl=group.sl,
            traffic_class=group.traffic_class,
            flow_label=group.flow_label,
            rate=group.rate,
        )


@dataclass(frozen=True, slots=True)
class Partitions:
    """A whole file; `warnings` are whole sentences, each with its line."""

    partitions: tuple[Partition, ...]
    warnings: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Partition]:
        return iter(self.partitions)

    def partition(self, pkey: PKey) -> Partition:
        """The partition of `pkey`, full or limited; `LinkError` with the line to add if there is none."""
        for found in self.partitions:
            if found.pkey.full == pkey.full:
                return found
        raise LinkError(f"partitions.conf has no partition {pkey.full}: add the line: {line(pkey)}")


def line(
    pkey: PKey, *, guid: int | None = None, mtu_bytes: int | None = None, scope: int | None = None
) -> str:
    """The definition that makes a partition one for IPoIB, ready to be put into partitions.conf."""
    low = pkey & ~FULL_BIT
    name = DEFAULT_NAME if low == DEFAULT_PARTITION else f"ib{pkey.full:04x}"
    flags = "ipoib"
    if mtu_bytes is not None and MTU_CODES[mtu_bytes] != DEFAULT_MTU:
        flags += f", mtu={MTU_CODES[mtu_bytes]}"
    ports = "ALL" if guid is None or low == DEFAULT_PARTITION else f"0x{guid:016x}"
    added = f"{name}=0x{low:04x}, {flags} : {ports}=full"
    if scope not in (None, DEFAULT_SCOPE):
        # OpenSM 3.3.23 makes the broadcast group of `ipoib` with scope 2, whatever scope= says
        added += f", mgid=ff1{scope:x}:401b::ffff:ffff, scope={scope}"
    return f"{added};"
