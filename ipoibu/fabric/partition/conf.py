# SPDX-License-Identifier: BSD-2-Clause
"""OpenSM's partitions.conf, read as OpenSM 3.3 reads it: opensm(8), "PARTITION CONFIGURATION" (B4).

    [NAME][=P_KEY][,FLAG[=VALUE]]... : [MEMBER[=full|limited|both]]..., [mgid=GID[,FLAG=VALUE]...] ;

A definition begins with a line that holds its colon, and goes on over lines up to its semicolon, which must
not stand alone on one; an `mgid=` takes the rest of its line. A file may abbreviate words: OpenSM compares
only the given letters. Definitions of the same P_Key are one partition; of groups with one MGID the first
counts. Blanks are space and tab, so a CR or a no-break space is part of a word; a line ends after 4094 bytes
even without its end; and numbers are C's.

This parser skips the parts that OpenSM skips, with a warning (`Partitions.warnings`), because both have to
arrive at the same parameters. `UsageError`: OpenSM would reject the whole file and use the default
partition alone, or make no group, or truncate a number. In one point the parser follows the manual and not
the code: `scope=` of a definition sets that of the broadcast group, though OpenSM 3.3.23 always makes that
group with scope 2 (`partition_line` writes a line that works with both).
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.errors import NotPermitted, UsageError
from ipoibu.base.limits import DEFAULT_QKEY, DEFAULT_SCOPE
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
from ipoibu.proto.sa.partition_line import DEFAULT_MTU, DEFAULT_NAME, DEFAULT_PARTITION, FULL_BIT
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
    """Read a file and log nothing; `UsageError` if it does not exist or is wrong."""
    try:
        text = Path(path).read_bytes().decode("utf-8", "surrogateescape")
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


@dataclass(frozen=True, slots=True)
class _Flag:
    """The attribute of a group's flag, its least and largest value, and what the numbers mean."""

    attribute: str
    least: int
    largest: int
    meaning: str

    def covers(self, number: int) -> bool:
        return self.least <= number <= self.largest


# OpenSM's order decides the meaning of an abbreviation. Without a valid mtu or rate it makes no group.
_GROUP_FLAGS: Final = {
    "mtu": _Flag(
        "mtu", min(MTU_BYTES), max(MTU_BYTES), "a code: 4 is 2048 bytes, 5 is 4096; 1 to 5"
    ),
    "rate": _Flag(
        "rate",
        2,
        22,
        "a code: 3 is 10 Gb/s, 7 is 40, 12 is 56, 16 is 100, 17 is 200, 21 is 400; 2 to 22",
    ),
    "scope": _Flag(
        "scopes", 1, 0xF, "a code: 2 is link-local, 5 is site-local, 14 is global; 1 to 15"
    ),
    "Q_Key": _Flag("qkey", 0, 0xFFFFFFFF, "a number of 32 bits, at most 0xffffffff"),
    "TClass": _Flag("traffic_class", 0, 0xFF, "a traffic class, 0 to 255"),
    "sl": _Flag("sl", 0, 0xF, "a service level, 0 to 15"),
    "FlowLabel": _Flag("flow_label", 0, 0xFFFFF, "a number of 20 bits, at most 0xfffff"),
}
_NEEDED: Final = ("mtu", "rate")
_TRUNCATED: Final = ("Q_Key", "TClass", "FlowLabel")

_BLANKS: Final = " \t\n"
# OpenSM's buffer of 4096, less one for fgets and one that it leaves out.
_LINE_MAX_BYTES: Final = 4094
_ULONG_MAX: Final = 0xFFFFFFFFFFFFFFFF
_NUMBER: Final = re.compile(r"[ \t\n\v\f\r]*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", re.A)


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
        self._began = 0  # the line where the open definition begins
        self._text = ""  # what the parser reads now
        self._is_cut = False
        self._flags = _Flags()
        self._default = MemberType.LIMITED

    def parse(self, text: str) -> Partitions:
        try:
            lines = text.encode("utf-8", "surrogateescape").split(b"\n")
        except UnicodeEncodeError as error:
            raise UsageError(f"{self._name}: no file has this text: {error.reason}") from error
        for number, line in enumerate(lines, 1):
            self._line = number
            self._is_cut = len(line) > _LINE_MAX_BYTES
            for begin in range(0, len(line), _LINE_MAX_BYTES):
                piece = line[begin : begin + _LINE_MAX_BYTES].partition(b"\0")[0]
                self._piece(piece.decode("utf-8", "surrogateescape"))
            if self._is_cut:
                self._warn("OpenSM reads this line as several")
        return Partitions(tuple(self._partitions.values()), tuple(self._warnings), self._name)

    def _piece(self, piece: str) -> None:
        """Parse what OpenSM reads as a line."""
        *ended, rest = piece.partition("#")[0].split(";")
        for part in ended:
            self._text = part
            if not part.strip(_BLANKS):
                raise self._error("a semicolon needs text before it on its line")
            self._part(part)
            self._open = None
        self._text = rest
        self._part(rest)

    def _part(self, part: str) -> None:
        """Parse the part of a definition that one line has."""
        if not part.strip(_BLANKS):
            return
        if self._open is None:
            head, colon, part = part.partition(":")
            if not colon:
                raise self._error("a definition begins with its partition and a colon, on one line")
            self._began = self._line
            self._open = self._define(head)
        elif (reason := self._unended()) is not None:
            self._warn(reason)
        while part.strip(_BLANKS):
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
        if key is None and name[:1].isascii() and name[:1].isdigit():
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
            number = self._number(key, 0xFFFF, "P_Key")  # OpenSM would truncate a larger one
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
        """Return whether `word` is a group's flag, and put its value into `flags` as OpenSM does."""
        full = next((name for name in _GROUP_FLAGS if name.startswith(word)), None)
        if full is None:
            return False
        if value is None:
            self._warn(f"{full} has no value; passed over")
            return True
        flag = _GROUP_FLAGS[full]
        number, rest = _strtoul(value)
        fault = f"{full} {value} is out of range: {flag.meaning}"
        if number == 0 and (not value or rest):
            fault = f"{value!r} is not a {full}: {flag.meaning}"
        is_valid = flag.covers(number) and bool(value) and (full != "sl" or _ends(rest))
        if rest and is_valid and number:
            self._warn(f"{full}={value!r}: OpenSM reads {number:#x}, not the rest")
        if full in _NEEDED and not is_valid:
            raise self._error(fault)
        if full in _TRUNCATED:
            taken = min(number, _ULONG_MAX) & flag.largest
            if not is_valid or (number == 0 and rest):
                self._warn(f"{fault}; OpenSM takes {taken:#x}")
            number = taken
        elif not is_valid:
            self._warn(f"{fault}; passed over")
            return True
        if full == "scope":
            flags.scopes.add(number)
        else:
            setattr(flags, flag.attribute, number)
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
        """Compare in OpenSM's order; an empty word matches the first."""
        for known in (MemberType.FULL, MemberType.BOTH, MemberType.LIMITED):
            if value is not None and known.value.startswith(value):
                if not value:
                    self._warn("no membership after the equals sign: OpenSM takes full")
                return known
        self._warn(f"membership {value!r} is none of full, limited, both")
        return None

    def _number(self, text: str, largest: int, what: str) -> int:
        number, rest = _strtoul(text)
        if rest or not text:
            raise self._error(f"{text!r} is not a {what}")
        if not 0 <= number <= largest:
            raise self._error(f"{what} {text} is out of range: at most {largest:#x}")
        return number

    def _error(self, text: str) -> UsageError:
        unended = self._unended()
        texts = [text] if unended is None else [unended, text]
        return UsageError(self._sentence([*texts, *self._reasons()]))

    def _warn(self, text: str) -> None:
        self._warnings.append(self._sentence([text, *self._reasons()]))

    def _sentence(self, texts: Sequence[str]) -> str:
        return f"{self._place()}: {'; '.join(texts)}"

    def _unended(self) -> str | None:
        """Return what is wrong if another definition seems to begin inside of the open one."""
        members = self._text.partition("mgid")[0]
        if self._open is None or self._began == self._line or ":" not in members:
            return None
        return (
            f"a semicolon is missing: the definition that begins in line {self._began} goes on here"
        )

    def _reasons(self) -> list[str]:
        """What an editor does not show, and OpenSM minds."""
        reasons = []
        if self._is_cut:
            reasons.append(f"the line has more than {_LINE_MAX_BYTES} bytes: OpenSM cuts it there")
        if "\r" in self._text:
            reasons.append("the line has a CR, which is no blank to OpenSM: convert it (dos2unix)")
        unseen = {it for it in self._text if it not in _BLANKS + "\r" and _is_unseen(it)}
        for character in sorted(unseen):
            reasons.append(f"the line has a U+{ord(character):04X}, which is no blank to OpenSM")
        return reasons

    def _place(self) -> str:
        return f"{self._name}:{self._line}"


def _pair(token: str) -> tuple[str, str | None]:
    """Split `word[=value]` and strip both."""
    word, equals, value = token.partition("=")
    return word.strip(_BLANKS), value.strip(_BLANKS) if equals else None


def _strtoul(text: str) -> tuple[int, str]:
    """Read a number as C's strtoul with base 0, hexadecimal after 0x, octal after 0, or decimal, and return
    it with the rest of the text. Unlike strtoul, it returns a negative number as such."""
    found = _NUMBER.match(text)
    if found is None:
        return 0, text
    digits = found[2]
    if len(digits) > 40:
        number = _ULONG_MAX + 1  # more than Python reads, perhaps
    elif digits[1:2] in ("x", "X"):
        number = int(digits, 16)
    else:
        number = int(digits, 8 if digits[0] == "0" else 10)
    return -number if found[1] == "-" else number, text[found.end() :]


def _ends(rest: str) -> bool:
    """Return whether C's isspace, or the end, follows a number."""
    return rest[:1] in ("", *" \t\n\v\f\r")


def _is_unseen(character: str) -> bool:
    """Return whether an editor shows the character as a blank, or not at all."""
    return unicodedata.category(character) in ("Zs", "Zl", "Zp", "Cc", "Cf")
