# SPDX-License-Identifier: BSD-2-Clause
"""OpenSM's partitions.conf, read as OpenSM 3.3 reads it: opensm(8), "PARTITION CONFIGURATION" (B4).

    [NAME][=P_KEY][,FLAG[=VALUE]]... : [MEMBER[=full|limited|both]]..., [mgid=GID[,FLAG=VALUE]...] ;

A definition begins with a line that holds its colon, and goes on over lines up to its semicolon, which must
not stand alone on one; an `mgid=` takes the rest of its line. A file may abbreviate words: OpenSM compares
only the given letters. Definitions of the same P_Key are one partition; of groups with one MGID the first
counts.

This parser skips the parts that OpenSM skips, with a warning (`Partitions.warnings`), because both have to
arrive at the same parameters. `UsageError`: OpenSM would reject the whole file and use the default
partition alone, or make no group, or truncate a number. In one point the parser follows the manual and not
the code: `scope=` of a definition sets that of the broadcast group, though OpenSM 3.3.23 always makes that
group with scope 2 (`partition_line` writes a line that works with both).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ipoibu.addr import Gid, PKey
from ipoibu.errors import NotPermitted, UsageError
from ipoibu.fabric.partition.model import (
    DEFAULT_RATE,
    IP_SIGNATURES,
    Group,
    Member,
    MemberType,
    Partition,
    Partitions,
    Ports,
)
from ipoibu.limits import DEFAULT_QKEY, DEFAULT_SCOPE
from ipoibu.proto.partition_line import DEFAULT_MTU, DEFAULT_NAME, DEFAULT_PARTITION, FULL_BIT
from ipoibu.wire.mgid import broadcast
from ipoibu.wire.sa import MTU_BYTES

_log = logging.getLogger(__name__)


def read(path: str | Path) -> Partitions:
    """Read a file and log its warnings; `UsageError` if it does not exist or is wrong."""
    partitions = load(path)
    for warning in partitions.warnings:
        _log.warning("%s", warning)
    return partitions


def load(path: str | Path) -> Partitions:
    """As `read`, without a word in the log."""
    try:
        text = Path(path).read_text("utf-8", "surrogateescape")
    except PermissionError as error:
        raise NotPermitted(f"{path}: not readable for this user") from error
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    return parse(text, str(path))


def parse(text: str, name: str = "partitions.conf") -> Partitions:
    """Parse the text of a file called `name`; `UsageError` names the line that is wrong."""
    return _Parser(name).parse(text)


@dataclass(slots=True)
class _Flags:
    """The group parameters of a definition so far; a Q_Key of 0 is not given."""

    mtu: int = DEFAULT_MTU
    rate: int = DEFAULT_RATE
    sl: int = 0
    scopes: set[int] = field(default_factory=set)
    qkey: int = 0
    traffic_class: int = 0
    flow_label: int = 0

    def copy(self) -> _Flags:
        """Copy the flags that an `mgid=` line inherits: all but the traffic class, as in OpenSM."""
        return _Flags(self.mtu, self.rate, self.sl, set(self.scopes), self.qkey, 0, self.flow_label)


# Flag: attribute and largest value. OpenSM's order decides the meaning of an abbreviation.
_GROUP_FLAGS: Final = {
    "mtu": ("mtu", max(MTU_BYTES)),
    "rate": ("rate", 0x3F),
    "scope": ("scopes", 0xF),
    "Q_Key": ("qkey", 0xFFFFFFFF),
    "TClass": ("traffic_class", 0xFF),
    "sl": ("sl", 0xF),
    "FlowLabel": ("flow_label", 0xFFFFF),
}


class _Parser:
    def __init__(self, name: str) -> None:
        self._name = name
        self._line = 0
        self._warnings: list[str] = []
        self._partitions: dict[int, Partition] = {}
        self._generated = 0
        default = Partition(DEFAULT_NAME, PKey(DEFAULT_PARTITION), place=name)
        default.members += [
            Member(Ports.ALL, MemberType.LIMITED),
            Member(Ports.SELF, MemberType.FULL),
        ]
        self._partitions[DEFAULT_PARTITION] = default
        self._open: Partition | None = None
        self._flags = _Flags()
        self._default = MemberType.LIMITED

    def parse(self, text: str) -> Partitions:
        for number, whole in enumerate(text.splitlines(), 1):
            self._line = number
            *ended, rest = whole.partition("#")[0].split(";")
            for part in ended:
                if not part.strip():
                    raise self._error("a semicolon needs text before it on its line")
                self._part(part)
                self._open = None
            self._part(rest)
        return Partitions(tuple(self._partitions.values()), tuple(self._warnings), self._name)

    def _part(self, part: str) -> None:
        """Parse the part of a definition that one line has."""
        if not part.strip():
            return
        if self._open is None:
            head, colon, part = part.partition(":")
            if not colon:
                raise self._error("a definition begins with its partition and a colon, on one line")
            self._open = self._define(head)
        while part.strip():
            token, _, rest = part.partition(",")
            word, value = _pair(token)
            if word == "mgid":
                self._group(self._open, value or "", rest)
                return
            self._member(self._open, word, value)
            part = rest

    def _define(self, head: str) -> Partition:
        first, *flags = head.split(",")
        name, key = _pair(first)
        if key is None and name[:1].isdigit():
            name, key = "", name
        pkey = self._pkey(name, key)
        self._flags, self._default = _Flags(), MemberType.LIMITED
        is_ipoib = is_first = False
        for flag in flags:
            word, value = _pair(flag)
            if not word or self._group_flag(self._flags, word, value):
                continue
            if "ipoib".startswith(word):
                is_ipoib = True
            elif "indx0".startswith(word):
                is_first = True
            elif "defmember".startswith(word):
                self._default = self._membership(value) or self._default
            else:
                self._warn(f"unknown flag {word!r} passed over")
        known = self._partitions.get(pkey)
        if known is None:
            known = Partition(name or f"{pkey:04x}", PKey(pkey))
            self._partitions[pkey] = known
        if not known.groups:  # the definition that made the group, or the last one without a group
            known.place = self._place()
        known.is_first |= is_first
        for scope in (sorted(self._flags.scopes) or [DEFAULT_SCOPE]) if is_ipoib else ():
            qkey = self._flags.qkey or DEFAULT_QKEY
            self._create(known, broadcast(known.pkey, scope), self._flags, qkey)
        return known

    def _pkey(self, name: str, key: str | None) -> int:
        if key is not None:
            number = self._number(key, 0xFFFF, "P_Key")
            if number & ~FULL_BIT:
                return number & ~FULL_BIT
        for known in self._partitions.values():
            if name and known.name == name:
                return int(known.pkey)
        while True:  # OpenSM takes the next free one, in the order of the file
            self._generated += 1
            if self._generated not in self._partitions:
                self._warn(
                    f"partition {name!r} has no P_Key: OpenSM gives it 0x{self._generated:04x}"
                )
                return self._generated

    def _group_flag(self, flags: _Flags, word: str, value: str | None) -> bool:
        """Return whether `word` is a group's flag, and put its value into `flags` if it is valid."""
        full = next((name for name in _GROUP_FLAGS if name.startswith(word)), None)
        if full is None:
            return False
        attribute, largest = _GROUP_FLAGS[full]
        try:
            number = self._number(value or "", largest, full)
            if number == 0 and full in ("mtu", "rate", "scope"):
                raise self._error(f"{full}=0 is reserved")
        except UsageError as error:
            if full in ("mtu", "rate"):
                raise  # OpenSM makes no group in this case
            self._warnings.append(f"{error}; passed over")
            if full in ("Q_Key", "TClass"):
                setattr(flags, attribute, 0)
            return True
        if full == "scope":
            flags.scopes.add(number)
        else:
            setattr(flags, attribute, number)
        return True

    def _group(self, partition: Partition, text: str, rest: str) -> None:
        flags = self._flags.copy()
        for flag in rest.split(","):
            word, value = _pair(flag)
            if word and not self._group_flag(flags, word, value):
                self._warn(f"unknown group flag {word!r} passed over")
        try:
            mgid = Gid.parse(text)
        except UsageError as error:
            self._warn(f"group left out: {error}")
            return
        if not mgid.is_multicast:
            self._warn(f"group left out: {mgid} is not a multicast GID")
            return
        scopes = sorted(flags.scopes) or [DEFAULT_SCOPE]
        if scopes != [mgid.raw[1] & 0xF] and not flags.scopes:
            self._warn(f"group {mgid} gets scope {DEFAULT_SCOPE}: OpenSM reads scope= only")
        is_ip = mgid.raw[2:4] in IP_SIGNATURES
        if is_ip:
            wrong = self._unfit(partition, mgid, flags)
            if wrong:
                self._warn(f"IP group {mgid} left out: {wrong}")
                return
            mgid = Gid(mgid.raw[:4] + partition.pkey.full.to_bytes(2, "big") + mgid.raw[6:])
        for scope in scopes:
            made = Gid(bytes((0xFF, mgid.raw[1] & 0xF0 | scope)) + mgid.raw[2:])
            link = broadcast(partition.pkey, scope)
            if is_ip and made != link and all(group.mgid != link for group in partition.groups):
                self._warn(f"IP group {made} left out: there is no broadcast group {link}")
            else:
                self._create(partition, made, flags, flags.qkey or (DEFAULT_QKEY if is_ip else 0))

    def _unfit(self, partition: Partition, mgid: Gid, flags: _Flags) -> str:
        """Return how an IP group differs from its broadcast group in P_Key, rate or MTU, or ""."""
        key = int.from_bytes(mgid.raw[4:6], "big")
        if key not in (0, partition.pkey):
            return f"its P_Key 0x{key:04x} is not the partition's {partition.pkey}"
        if flags.rate != self._flags.rate:
            return f"its rate {flags.rate} is not the broadcast group's {self._flags.rate}"
        if flags.mtu != self._flags.mtu:
            return f"its MTU {flags.mtu} is not the broadcast group's {self._flags.mtu}"
        return ""

    def _create(self, partition: Partition, mgid: Gid, flags: _Flags, qkey: int) -> None:
        if any(group.mgid == mgid for group in partition.groups):
            return
        size = MTU_BYTES[flags.mtu]
        made = Group(
            mgid,
            qkey,
            size,
            flags.rate,
            flags.sl,
            flags.traffic_class,
            flags.flow_label,
            self._place(),
        )
        partition.groups.append(made)

    def _member(self, partition: Partition, word: str, value: str | None) -> None:
        if not word or "NONE".startswith(word):
            return
        membership = self._default
        if value is not None:
            membership = self._membership(value) or MemberType.LIMITED
        known = next((ports for ports in Ports if ports.value.startswith(word)), None)
        if known is None:
            guid = self._number(word, 0xFFFFFFFFFFFFFFFF, "port GUID")
            if guid == 0:
                raise self._error("port GUID 0 is none")
            partition.members.append(Member(guid, membership))
        else:
            partition.members.append(Member(known, membership))

    def _membership(self, value: str | None) -> MemberType | None:
        """Compare in OpenSM's order; an empty word would match the first."""
        for known in (MemberType.FULL, MemberType.BOTH, MemberType.LIMITED):
            if value and known.value.startswith(value):
                return known
        self._warn(f"membership {value!r} is none of full, limited, both")
        return None

    def _number(self, text: str, largest: int, what: str) -> int:
        try:
            number = _integer(text)
        except ValueError:
            raise self._error(f"{text!r} is not a {what}") from None
        if not 0 <= number <= largest:
            raise self._error(f"{what} {text} is out of range: at most {largest:#x}")
        return number

    def _error(self, text: str) -> UsageError:
        return UsageError(f"{self._place()}: {text}")

    def _warn(self, text: str) -> None:
        self._warnings.append(f"{self._place()}: {text}")

    def _place(self) -> str:
        return f"{self._name}:{self._line}"


def _pair(token: str) -> tuple[str, str | None]:
    """Split `word[=value]` and strip both."""
    word, equals, value = token.partition("=")
    return word.strip(), value.strip() if equals else None


def _integer(text: str) -> int:
    """Read a number as C's strtoul with base 0: hexadecimal after 0x, octal after 0, or decimal."""
    if text[:1] == "0" and text[1:].isdigit():
        return int(text, 8)
    if not text.isascii() or "_" in text:
        raise ValueError(text)
    return int(text, 0)
