# SPDX-License-Identifier: BSD-2-Clause
"""A header as a table of fields: its bytes from values, and its values from bytes.

This module shares nothing with `ipoibu.wire` on purpose (see the room).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final

Value = int | str | bytes
"""A number; an address as text; any bytes."""


class Kind(Enum):
    """How a field's value reads: a number in decimal or hexadecimal, an address as text, or bytes."""

    NUMBER = "number"
    HEX = "hex"
    ADDRESS = "address"  # IPv4 with 32 bits, IPv6 with 128
    BYTES = "bytes"


@lru_cache(maxsize=256)
def packed(ip: str) -> bytes:
    """Return the bytes of an IP address."""
    return ipaddress.ip_address(ip).packed


@lru_cache(maxsize=256)
def ip_text(raw: bytes) -> str:
    """Return the text of an IP address."""
    return str(ipaddress.ip_address(raw))


@dataclass(frozen=True, slots=True)
class Field:
    """`bits` wide, in network byte order; `default` is the value of a packet that does not give one."""

    name: str
    bits: int
    default: Value = 0
    kind: Kind = Kind.NUMBER

    def to_int(self, value: Value) -> int:
        """Raise `ValueError` for a value that the field cannot have."""
        if isinstance(value, str):
            value = packed(value)
        if isinstance(value, bytes):
            if len(value) * 8 != self.bits:
                raise ValueError(f"{self.name} has {self.bits} bits, not {len(value) * 8}")
            value = int.from_bytes(value, "big")
        if not 0 <= value < 1 << self.bits:
            raise ValueError(f"{self.name} has {self.bits} bits: {value} is too large")
        return value

    def from_int(self, number: int) -> Value:
        if self.kind is Kind.ADDRESS:
            return ip_text(number.to_bytes(self.bits // 8, "big"))
        if self.kind is Kind.BYTES:
            return number.to_bytes(self.bits // 8, "big")
        return number

    def shown(self, value: Value) -> str:
        if isinstance(value, bytes):
            return value.hex()
        return f"{value:#x}" if self.kind is Kind.HEX and isinstance(value, int) else str(value)


def number(name: str, bits: int, default: int = 0) -> Field:
    return Field(name, bits, default)


def code(name: str, bits: int, default: int = 0) -> Field:
    """A number that people write in hexadecimal."""
    return Field(name, bits, default, Kind.HEX)


def address(name: str, bits: int) -> Field:
    return Field(name, bits, "0.0.0.0" if bits == 32 else "::", Kind.ADDRESS)


def octets(name: str, count: int, default: bytes = b"") -> Field:
    return Field(name, 8 * count, default or bytes(count), Kind.BYTES)


class Layout:
    """The fields of one header, in order; together a whole number of bytes."""

    def __init__(self, name: str, *fields: Field) -> None:
        self.name: Final = name
        self.fields: Final = {it.name: it for it in fields}
        self._bits: Final = sum(it.bits for it in fields)
        assert self._bits % 8 == 0, name
        assert len(self.fields) == len(fields), name

    @property
    def size(self) -> int:
        """Bytes."""
        return self._bits // 8

    def pack(self, values: Mapping[str, Value]) -> bytes:
        """Raise `ValueError` for an unknown field, or a value that a field cannot have."""
        if unknown := values.keys() - self.fields.keys():
            raise ValueError(f"{self.name} has no field {', '.join(sorted(unknown))}")
        total = 0
        for name, field in self.fields.items():
            total = total << field.bits | field.to_int(values.get(name, field.default))
        return total.to_bytes(self.size, "big")

    def unpack_untrusted(self, raw: bytes) -> dict[str, Value] | None:
        """Read the header at the start of `raw`; None if `raw` is shorter."""
        if len(raw) < self.size:
            return None
        total = int.from_bytes(raw[: self.size], "big")
        values: dict[str, Value] = {}
        for name, field in reversed(self.fields.items()):
            values[name] = field.from_int(total & ((1 << field.bits) - 1))
            total >>= field.bits
        return dict(reversed(values.items()))
