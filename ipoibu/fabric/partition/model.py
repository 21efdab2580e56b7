# SPDX-License-Identifier: BSD-2-Clause
"""Partitions as a subnet manager has them: their members, their groups, and the groups' parameters."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.errors import LinkError, UsageError
from ipoibu.base.ib import GroupParams, PartitionParams, PortInfo
from ipoibu.base.limits import DEFAULT_SCOPE
from ipoibu.proto.groups.link_params import partition_params
from ipoibu.proto.sa.partition_line import partition_line
from ipoibu.wire.mgid import broadcast

DEFAULT_RATE: Final = 3  # 10 Gb/s
_ANY_OTHER: Final = 0  # no port has this GUID
IP_SIGNATURES: Final = (b"\x40\x1b", b"\x60\x1b")  # RFC 4391 §4


class MemberType(enum.Enum):
    """The membership of a port; limited members cannot communicate with each other."""

    LIMITED = "limited"
    FULL = "full"
    BOTH = "both"  # full only, unless OpenSM runs with --allow_both_pkeys


class Ports(enum.Enum):
    """Words that stand for many ports."""

    ALL = "ALL"
    ALL_CAS = "ALL_CAS"
    ALL_SWITCHES = "ALL_SWITCHES"
    ALL_ROUTERS = "ALL_ROUTERS"
    SELF = "SELF"  # the port of the subnet manager


@dataclass(frozen=True, slots=True)
class Member:
    """A rule: `ports` names a port GUID, or many ports by a word; a later rule overrides earlier ones."""

    ports: int | Ports
    membership: MemberType


@dataclass(frozen=True, slots=True)
class Group:
    """A multicast group that OpenSM creates; it has the parameters of a broadcast group (B1)."""

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
    """All definitions of one P_Key, without regard to its membership bit."""

    name: str
    pkey: PKey
    members: list[Member] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    is_first: bool = False  # `indx0`: the key stands first in the ports' tables
    place: str = field(default="partitions.conf", compare=False)  # file and line of the first

    def membership(self, guid: int, *, is_sm: bool = False) -> MemberType | None:
        """Return the membership of a channel adapter's port; None if it is no member."""
        words = {Ports.ALL, Ports.ALL_CAS, guid} | ({Ports.SELF} if is_sm else set())
        rules = [member.membership for member in self.members if member.ports in words]
        return rules[-1] if rules else None

    def has_full_member(self) -> bool:
        """Return whether some port may be a full member, apart from the subnet manager's."""
        named = {member.ports for member in self.members if not isinstance(member.ports, Ports)}
        memberships = {self.membership(guid) for guid in {*named, _ANY_OTHER}}
        return not memberships <= {None, MemberType.LIMITED}

    def broadcast_groups(self) -> list[Group]:
        """Return the broadcast groups, one for each scope; there are none without the `ipoib` flag."""
        full = self.pkey.full
        return [group for group in self.groups if group.mgid == broadcast(full, group.scope)]

    def broadcast_group(self, scope: int | None = None) -> Group:
        """Return the link's group: of several scopes the link-local one, else the narrowest.

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
        """Return the parameters of the link on `port`, for a port without a subnet administrator.

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
        return replace(params, groups=self.own_params(group))

    def own_params(self, link: Group) -> tuple[GroupParams, ...]:
        """Return the IP groups of the link that differ from its broadcast group; `UsageError` as `params`."""
        return tuple(self._own_params(link))

    def _own_params(self, link: Group) -> Iterator[GroupParams]:
        for group in self.groups:
            if group.mgid.raw[2:4] not in IP_SIGNATURES or group.scope != link.scope:
                continue
            if group.qkey != link.qkey:
                raise UsageError(
                    f"{group.place}: group {group.mgid} has Q_Key {group.qkey:#x} and the broadcast "
                    f"group {link.qkey:#x}: no queue pair could receive both; give both the same"
                )
            own = (group.sl, group.traffic_class, group.flow_label)
            if own != (link.sl, link.traffic_class, link.flow_label):
                yield GroupParams(group.mgid, *own)


@dataclass(frozen=True, slots=True)
class Partitions:
    """The contents of a file; each of `warnings` is a sentence with its line."""

    partitions: tuple[Partition, ...]
    warnings: tuple[str, ...] = ()
    name: str = "partitions.conf"

    def __iter__(self) -> Iterator[Partition]:
        return iter(self.partitions)

    def partition(self, pkey: PKey) -> Partition:
        """Return the partition of `pkey`, full or limited; `LinkError` names the line to add."""
        for partition in self.partitions:
            if partition.pkey.full == pkey.full:
                return partition
        raise LinkError(
            f"{self.name} has no partition {pkey.full}: add the line: {partition_line(pkey)}"
        )
