# SPDX-License-Identifier: BSD-2-Clause
"""Refusals of the subnet administrator (SA): each status becomes an error with the remedy (M6).

The SA gives only a number. The reason follows from the request, from the group as the SA has it, and from
the port's own P_Key table; `Asked` holds all three.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.errors import LinkError
from ipoibu.proto.sa.partition_line import partition_line
from ipoibu.proto.sa.transaction import Failure
from ipoibu.wire.mcmember import JoinState, McMemberRecord
from ipoibu.wire.mgid import broadcast
from ipoibu.wire.sa import MTU_CODES, Status


class SaError(LinkError):
    """The SA refused a request; `status` is the SA's number, 0 without an answer."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class NoAnswer(SaError):
    """No answer came, or an invalid one."""


class NoResources(SaError):
    """0x0100: the SA has no resources left, as a rule no multicast LIDs."""


class InvalidRequest(SaError):
    """0x0200: the request does not fit the group, the port or the rules."""


class NoRecords(SaError):
    """0x0300: no record matches, or none that this port may see."""


class TooManyRecords(SaError):
    """0x0400: several records match a request for one."""


class InvalidGid(SaError):
    """0x0500: the SA does not know the GID, or the GID is of the wrong kind."""


class InsufficientComponents(SaError):
    """0x0600: the request lacks components, as a rule those to create an absent group."""


class Denied(SaError):
    """0x0700: not allowed."""


class Unsupported(SaError):
    """0x0004..0x001c: the SA does not know the request."""


_ERRORS: Final[dict[int, type[SaError]]] = {
    Status.BAD_VERSION: Unsupported,
    Status.BAD_METHOD: Unsupported,
    Status.BAD_ATTRIBUTE: Unsupported,
    Status.BAD_VALUE: Unsupported,
    Status.NO_RESOURCES: NoResources,
    Status.REQUEST_INVALID: InvalidRequest,
    Status.NO_RECORDS: NoRecords,
    Status.TOO_MANY_RECORDS: TooManyRecords,
    Status.INVALID_GID: InvalidGid,
    Status.INSUFFICIENT_COMPONENTS: InsufficientComponents,
    Status.DENIED: Denied,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request in the operator's terms.

    `what` names the request ("join", "leave", "path"); `record` holds its components for a group, and
    `group` the group as the SA has it, if known. `guid` is that of the port; `is_member` says whether its
    P_Key table has the partition, None if unknown.
    """

    what: str
    gid: Gid | None = None
    pkey: PKey | None = None
    record: McMemberRecord | None = None
    group: McMemberRecord | None = None
    guid: int | None = None
    is_member: bool | None = None

    def __str__(self) -> str:
        parts = [f"{self.what} {self.gid}" if self.gid else self.what]
        if self.pkey is not None:
            parts.append(f"P_Key {self.pkey}")
        if self.record is not None and self.record.mtu_bytes is not None:
            parts.append(f"MTU {self.record.mtu_bytes}")
        return ", ".join(parts)


def refusal(status: int, asked: Asked) -> SaError:
    """Return the error for a status other than 0."""
    kind = _ERRORS.get(status & 0x7FFF, SaError)
    advice = _advice(kind, asked)
    return kind(f"{asked}: the subnet administrator says {status:#06x}: {advice}", status)


def no_answer(failure: Failure, asked: Asked, sa_lid: int) -> NoAnswer:
    """Return the error for a request that the client gave up."""
    if not sa_lid:
        text = "no subnet manager has configured this port; start one (opensm), or see `ibstat`"
    elif failure is Failure.TIMEOUT:
        text = f"no answer from the subnet administrator at LID {sa_lid}; is opensm running?"
    else:
        text = f"no usable answer from the subnet administrator at LID {sa_lid}: {failure.value}"
    return NoAnswer(f"{asked}: {text}")


def _advice(kind: type[SaError], asked: Asked) -> str:
    if asked.is_member is False and asked.pkey is not None:
        low, guid = asked.pkey & 0x7FFF, asked.guid or 0
        return (
            f"this port is not in the partition; add 0x{guid:016x}=full to the line of "
            f"0x{low:04x} in partitions.conf, or add the line: {partition_line(asked.pkey, guid=asked.guid)}"
        )
    return _ADVICE.get(kind, _unknown)(asked)


def _missing(asked: Asked) -> str:
    """Return the advice for a group that does not exist: the only reason left once the port is in the
    partition."""
    pkey = asked.pkey
    if pkey is None or asked.gid is None:
        return "there is no such record, or the port may not see it"
    if not asked.gid.is_multicast:
        return "no port with that GID shares the partition; see its line in partitions.conf"
    if asked.gid == broadcast(pkey, asked.gid.raw[1] & 0xF):
        scope = asked.gid.raw[1] & 0xF
        return (
            "the partition has no broadcast group; its line in partitions.conf needs the flag "
            f"`ipoib`: {partition_line(pkey, guid=asked.guid, scope=scope)}"
        )
    return "there is no such group, and the request does not say how to create it"


def _invalid(asked: Asked) -> str:
    record, group = asked.record, asked.group
    if record is None:
        return "the port is not a member of the group with that join state"
    if group is None:
        if record.join_state is not None and not record.join_state & JoinState.FULL_MEMBER:
            return "there is no such group, and this kind of join may not create one"
        return "the group cannot be created with these parameters: see mtu= and rate= in partitions.conf"
    if record.mtu_bytes not in (None, group.mtu_bytes):
        code = MTU_CODES[record.mtu_bytes or 0]
        return (
            f"the group has MTU {group.mtu_bytes}; ask for that MTU, or set mtu={code} in the "
            "partition's line of partitions.conf"
        )
    if record.rate not in (None, group.rate):
        return (
            f"the group has rate {group.rate}, not {record.rate}; ask for that rate, or set "
            f"rate={record.rate} in the partition's line of partitions.conf"
        )
    if record.pkey is not None and group.pkey is not None and record.pkey.full != group.pkey.full:
        return f"the group belongs to P_Key {group.pkey}"
    return (
        f"the port cannot carry the group's MTU {group.mtu_bytes} or rate {group.rate}; lower mtu= "
        "or rate= in the partition's line of partitions.conf"
    )


def _resources(_: Asked) -> str:
    return "it has no multicast LID or memory left; leave groups, or see opensm's log"


def _too_many(_: Asked) -> str:
    return "several records match"


def _gid(asked: Asked) -> str:
    return f"it does not know the port or group {asked.gid}"


def _denied(_: Asked) -> str:
    return (
        "it denies the request; see the membership of the port in partitions.conf and opensm's log"
    )


def _unsupported(_: Asked) -> str:
    return "this subnet administrator does not know the request"


def _unknown(_: Asked) -> str:
    return "see opensm's log"


_ADVICE: Final[dict[type[SaError], Callable[[Asked], str]]] = {
    NoResources: _resources,
    InvalidRequest: _invalid,
    NoRecords: _missing,
    TooManyRecords: _too_many,
    InvalidGid: _gid,
    InsufficientComponents: _missing,
    Denied: _denied,
    Unsupported: _unsupported,
}
