# SPDX-License-Identifier: BSD-2-Clause
"""Datagrams of communication management: class 7, version 2 (InfiniBand volume 1, §12.6; X1).

A datagram is the MAD header and a message of 232 bytes. REQ and REP are in `cm_setup`; the others
(widths in bytes, with `b` in bits; "local" is the sender of the message):

    MRA    local id 4 | remote id 4 | about 2b | service time-out 5b | private data 222
    REJ    local id 4 | remote id 4 | about 2b | length 7b | reason 2 | information 72 | private data 148
    RTU    local id 4 | remote id 4 | private data 224
    DREQ   local id 4 | remote id 4 | QPN 24b, - 8b | private data 220
    DREP   local id 4 | remote id 4 | private data 224

Parsed private data is as long as its field; `pack` pads shorter data.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar, Final

from ipoibu.base.addr import Qpn
from ipoibu.base.errors import BadFrame
from ipoibu.wire import Octets, cm_setup, mad
from ipoibu.wire.bits import join
from ipoibu.wire.cm_code import (
    CLASS,
    CLASS_VERSION,
    DREQ_PRIVATE_LEN,
    INFO_LEN,
    MRA_PRIVATE_LEN,
    PAIR_PRIVATE_LEN,
    REJ_PRIVATE_LEN,
    SEND,
    Attribute,
)
from ipoibu.wire.cm_setup import Rep, Req, padded

REASONS: Final = mad.REASONS | {"cm_short", "cm_class", "cm_method", "cm_rej_length"}

_MRA: Final = struct.Struct("!IIBB222s")
_REJ: Final = struct.Struct("!IIBBH72s148s")
_PAIR: Final = struct.Struct("!II224s")
_DREQ: Final = struct.Struct("!III220s")


@dataclass(frozen=True, slots=True)
class Mra:
    """ "Message received": the answer may take the time of the code `service_timeout`."""

    ATTRIBUTE: ClassVar[Attribute] = Attribute.MRA

    local_id: int
    remote_id: int
    about: int
    service_timeout: int
    private: bytes = b""

    def pack(self) -> bytes:
        """232 bytes."""
        return _MRA.pack(
            self.local_id,
            self.remote_id,
            join((self.about, 2), (0, 6)),
            join((self.service_timeout, 5), (0, 3)),
            padded(self.private, MRA_PRIVATE_LEN),
        )


@dataclass(frozen=True, slots=True)
class Rej:
    """A refusal, or the end of a connection attempt; `info` has up to 72 bytes about the reason."""

    ATTRIBUTE: ClassVar[Attribute] = Attribute.REJ

    local_id: int
    remote_id: int
    about: int
    reason: int
    info: bytes = b""
    private: bytes = b""

    def pack(self) -> bytes:
        """232 bytes."""
        return _REJ.pack(
            self.local_id,
            self.remote_id,
            join((self.about, 2), (0, 6)),
            join((len(self.info), 7), (0, 1)),
            self.reason,
            padded(self.info, INFO_LEN),
            padded(self.private, REJ_PRIVATE_LEN),
        )


@dataclass(frozen=True, slots=True)
class Rtu:
    """Ready to use: the REP arrived, and both ends are ready."""

    ATTRIBUTE: ClassVar[Attribute] = Attribute.RTU

    local_id: int
    remote_id: int
    private: bytes = b""

    def pack(self) -> bytes:
        """232 bytes."""
        return _PAIR.pack(self.local_id, self.remote_id, padded(self.private, PAIR_PRIVATE_LEN))


@dataclass(frozen=True, slots=True)
class Dreq:
    """The end of a connection; `qpn` is the receiver's queue pair."""

    ATTRIBUTE: ClassVar[Attribute] = Attribute.DREQ

    local_id: int
    remote_id: int
    qpn: Qpn
    private: bytes = b""

    def pack(self) -> bytes:
        """232 bytes."""
        private = padded(self.private, DREQ_PRIVATE_LEN)
        return _DREQ.pack(self.local_id, self.remote_id, join((self.qpn, 24), (0, 8)), private)


@dataclass(frozen=True, slots=True)
class Drep:
    """The answer to a DREQ."""

    ATTRIBUTE: ClassVar[Attribute] = Attribute.DREP

    local_id: int
    remote_id: int
    private: bytes = b""

    def pack(self) -> bytes:
        """232 bytes."""
        return _PAIR.pack(self.local_id, self.remote_id, padded(self.private, PAIR_PRIVATE_LEN))


@dataclass(frozen=True, slots=True)
class Other:
    """A message that this program does not use: service ID resolution, alternate paths."""

    attribute: int


Spoken = Req | Mra | Rej | Rep | Rtu | Dreq | Drep
Message = Spoken | Other


def pack(tid: int, message: Spoken) -> bytes:
    """Return a whole datagram of 256 bytes; `ValueError` or `struct.error` for a value that does
    not fit its field."""
    header = mad.Header(CLASS, CLASS_VERSION, SEND, message.ATTRIBUTE, tid)
    return header.pack() + message.pack()


def parse_untrusted(raw: Octets) -> tuple[int, Message]:
    """Return the transaction id and the message of a datagram of this class."""
    header = mad.parse_untrusted(raw)
    if header.management_class != CLASS or header.class_version != CLASS_VERSION:
        raise BadFrame("cm_class")
    if header.method != SEND:
        raise BadFrame("cm_method")
    if len(raw) < mad.MAD_LEN:
        raise BadFrame("cm_short")
    return header.tid, _message_untrusted(
        header.attribute, bytes(raw[mad.HEADER_LEN : mad.MAD_LEN])
    )


def _message_untrusted(attribute: int, body: bytes) -> Message:
    match attribute:
        case Attribute.REQ:
            return cm_setup.req(body)
        case Attribute.REP:
            return cm_setup.rep(body)
        case Attribute.MRA:
            local, remote, about, timeout, private = _MRA.unpack(body)
            return Mra(local, remote, about >> 6, timeout >> 3, private)
        case Attribute.REJ:
            local, remote, about, length, reason, info, private = _REJ.unpack(body)
            if length >> 1 > INFO_LEN:
                raise BadFrame("cm_rej_length")
            return Rej(local, remote, about >> 6, reason, info[: length >> 1], private)
        case Attribute.RTU:
            return Rtu(*_PAIR.unpack(body))
        case Attribute.DREQ:
            local, remote, qpn, private = _DREQ.unpack(body)
            return Dreq(local, remote, Qpn(qpn >> 8), private)
        case Attribute.DREP:
            return Drep(*_PAIR.unpack(body))
        case _:
            return Other(attribute)
