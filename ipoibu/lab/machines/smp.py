# SPDX-License-Identifier: BSD-2-Clause
"""Subnet management packets as a switch sees them: fields, and the hops of a directed route."""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Final, Self

LID_ROUTED: Final = 0x01
DIRECTED: Final = 0x81
BAD_ATTRIBUTE: Final = 0x0C  # statuses
BAD_VALUE: Final = 0x1C
NO_PORT: Final = -1

_BYTES: Final = 256
_RETURNS: Final = 0x80  # in the status
_HOPS_MAX: Final = 63
_VALUE: Final = slice(64, 128)
_INITIAL_PATH: Final = 128
_RETURN_PATH: Final = 192
_PERMISSIVE: Final = b"\xff\xff"
_PRODUCER_SWITCH: Final = 2


class Method(IntEnum):
    GET = 0x01
    SET = 0x02
    TRAP = 0x05
    GET_RESPONSE = 0x81


class Attribute(IntEnum):
    NOTICE = 0x02
    NODE_DESCRIPTION = 0x10
    NODE_INFO = 0x11
    SWITCH_INFO = 0x12
    GUID_INFO = 0x14
    PORT_INFO = 0x15
    PKEY_TABLE = 0x16
    LINEAR_FORWARDING = 0x19
    MULTICAST_FORWARDING = 0x1B
    SM_INFO = 0x20


class PortState(IntEnum):
    NO_CHANGE = 0
    DOWN = 1
    INIT = 2
    ARMED = 3
    ACTIVE = 4


class Smp:
    """A packet, in `data`, 256 bytes."""

    def __init__(self, data: bytearray) -> None:
        self.data = data

    @classmethod
    def trap(cls, transaction: int, number: int, lid: int) -> Self:
        """Return a notice, urgent, that the switch with this LID is its own subject."""
        data = bytearray(_BYTES)
        struct.pack_into(">BBBB", data, 0, 1, LID_ROUTED, 1, Method.TRAP)
        struct.pack_into(">QH", data, 8, transaction, Attribute.NOTICE)
        notice = (0x81, _PRODUCER_SWITCH, number, lid, 0, lid)
        struct.pack_into(">B2xBHHHH", data, 64, *notice)
        return cls(data)

    @property
    def mad_class(self) -> int:
        return self.data[1]

    @property
    def method(self) -> int:
        return self.data[3]

    @property
    def is_set(self) -> bool:
        return self.method == Method.SET

    @property
    def attribute(self) -> int:
        return int.from_bytes(self.data[16:18])

    @property
    def modifier(self) -> int:
        return int.from_bytes(self.data[20:24])

    @property
    def value(self) -> bytes:
        """The attribute itself."""
        return bytes(self.data[_VALUE])

    def answer(self, answer: bytes | int) -> None:
        """Become the answer: a value, or a status that says why there is none."""
        if isinstance(answer, bytes):
            self.data[_VALUE] = answer.ljust(64, b"\0")
            answer = 0
        self.data[3] = Method.GET_RESPONSE
        self.data[4:6] = answer.to_bytes(2)
        if self.mad_class == DIRECTED:
            self.data[4] |= _RETURNS

    def hop_untrusted(self, port: int, answer: Callable[[Smp, int], bool]) -> int:
        """Take the hop of a directed route that has come in on `port`; return the port to leave by.

        `answer` is asked at the end of the route, and the packet goes back. NO_PORT if it goes nowhere.
        """
        pointer, count = self.data[6], self.data[7]
        if self.data[32:36] != _PERMISSIVE * 2 or not 1 <= pointer <= count <= _HOPS_MAX:
            return NO_PORT  # parts by LID are none of ours
        if self.data[4] & _RETURNS:
            if pointer == 1:
                return NO_PORT
            self.data[6] = pointer - 1
            return self.data[_RETURN_PATH + pointer - 1]
        self.data[_RETURN_PATH + pointer] = port
        if pointer == count:
            return port if answer(self, port) else NO_PORT
        self.data[6] = pointer + 1
        return self.data[_INITIAL_PATH + pointer + 1]
