# SPDX-License-Identifier: BSD-2-Clause
"""Partitions as a subnet manager has them: who is a member, which groups it makes, what they are like."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from ipoibu.addr import Gid, PKey
from ipoibu.errors import LinkError, UsageError
from ipoibu.ib import GroupParams, PartitionParams, PortInfo
from ipoibu.limits import DEFAULT_SCOPE
from ipoibu.proto.link_params import partition_params
from ipoibu.proto.partition_line import (
    partition_line,
)
from ipoibu.wire.mgid import broadcast

DEFAULT_RATE: Final = 3  # 10 Gb/s
IP_SIGNATURES: Final = (b"\x40\x1b", b"\x60\x1b")  # RFC 4391 §4


class MemberType(enum.Enum):
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
    membership: MemberType


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
    place: str = field(default="", compare=False)  # file and line of its definition

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
    place: str = field(default="partitions.conf", compare=False)  # file and line of the first

    def membership(self, guid: int, *, is_sm: bool = False) -> MemberType | None:
        """How the port of a channel adapter is in the partition; None: not at all."""
        words = {Ports.ALL, Ports.ALL_CAS, guid} | ({Ports.SELF} if is_sm else set())
        rules = [member.membership for member in self.members if member.ports in words]
        return rules[-1] if rules else None

    def broadcast_groups(self) -> list[Group]:
        """What makes the partition one for IPoIB, one per scope; empty without the `ipoib` flag."""
        full = self.pkey.full
        return [group for group in self.groups if group.mgid == broadcast(full, group.scope)]

    def broadcast_group(self, scope: int | None = None) -> Group:
        """The group of the link: of several scopes link-local comes first, then the narrowest.

        `LinkError` with the line to add if the partition is not for IPoIB or lacks the scope.
        """
        groups = sorted(self.broadcast_groups(), key=lambda g: (g.scope != DEFAULT_SCOPE, g.scope))
        group = next((g for g in groups if scope in (None, g.scope)), None)
        if group is None:
            wanted = "" if scope is None else f" of scope {scope:#x}"
            raise LinkError(
                f"{self.place}: partition {self.name} ({self.pkey.full}) has no broadcast "
                f"group{wanted}: put into partitions.conf: {partition_line(self.pkey, scope=scope)}"
            )
        return group

    def params(self, port: PortInfo, scope: int | None = None) -> PartitionParams:
        """The parameters of the link on `port`, where no subnet administrator tells them.

        `LinkError` as `broadcast_group`, or if the port cannot carry the link's MTU (B2); `UsageError`
        for an IP group with a Q_Key of its own: a queue pair has one (E6).
        """
        group = self.broadcast_group(scope)
        try:
            params = partition_params(
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
        except LinkError as error:
            raise LinkError(f"{group.place}: {error}") from error
        return replace(params, groups=tuple(self._own_params(group)))

    def _own_params(self, link: Group) -> Iterator[GroupParams]:
        """The IP groups of the link that differ from its broadcast group."""
        for group in self.groups:
            if group.mgid.raw[2:4] not in IP_SIGNATURES or group.scope != link.scope:
                continue
            if group.qkey != link.qkey:
                raise UsageError(
                    f"{group.place}: group {group.mgid} has Q_Key {group.qkey:#x} and the broadcast "
                    f"group {link.qkey:#x}: nobody could receive it; give both the same"
                )
            own = (group.sl, group.traffic_class, group.flow_label)
            if own != (link.sl, link.traffic_class, link.flow_label):
                yield GroupParams(group.mgid, *own)


@dataclass(frozen=True, slots=True)
class Partitions:
    """A whole file; `warnings` are whole sentences, each with its line."""

    partitions: tuple[Partition, ...]
    warnings: tuple[str, ...] = ()
    name: str = "partitions.conf"

    def __iter__(self) -> Iterator[Partition]:
        return iter(self.partitions)

    def partition(self, pkey: PKey) -> Partition:
        """The partition of `pkey`, full or limited; `LinkError` with the line to add if there is none."""
        for found in self.partitions:
            if found.pkey.full == pkey.full:
                return found
        raise LinkError(
            f"{self.name} has no partition {pkey.full}: add the line: {partition_line(pkey)}"
        )
