# SPDX-License-Identifier: BSD-2-Clause
"""Options of neighbour discovery, RFC 4861 §4.6, with the link-layer one of RFC 4391 §9.3 (N1).

    | type 1 | length 1, in units of 8 bytes | body |

The link-layer option on this medium is 24 bytes:

    | type 1 (source) or 2 (target) | length 3 | zero 2 | flags 1, QPN 3, GID 16 |
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ipoibu.base.addr import HwAddr
from ipoibu.base.errors import BadFrame
from ipoibu.wire import lladdr

REASONS: Final = lladdr.REASONS | {"nd_option"}

_UNIT_BYTES: Final = 8
_LINK_LAYER_UNITS: Final = 3


class LinkLayer(enum.IntEnum):
    """The owner of the address in the option."""

    SOURCE = 1
    TARGET = 2


@dataclass(frozen=True, slots=True)
class Option:
    """Any option; `body` excludes type and length, so it has 8n - 2 bytes."""

    type: int
    body: bytes

    def pack(self) -> bytes:
        units, rest = divmod(2 + len(self.body), _UNIT_BYTES)
        if rest:
            raise ValueError(f"option {self.type} has {len(self.body)} bytes, not 8n - 2")
        return bytes((self.type, units)) + self.body


def parse_untrusted(area: bytes) -> tuple[Option, ...]:
    """Read all options of a message; `nd_option` if an option is empty (N2) or cut off."""
    options = []
    while area:
        length = area[1] * _UNIT_BYTES if len(area) > 1 else 0
        if not 0 < length <= len(area):
            raise BadFrame("nd_option")
        options.append(Option(area[0], area[2:length]))
        area = area[length:]
    return tuple(options)


def link_layer(kind: LinkLayer, hwaddr: HwAddr) -> Option:
    """Return the option with a 20-byte address (N1)."""
    return Option(kind, bytes(2) + hwaddr.pack())


def split_untrusted(
    kind: LinkLayer, options: Iterable[Option]
) -> tuple[HwAddr | None, tuple[Option, ...]]:
    """Return the address of the first option of `kind`, and the options of other types.

    `lladdr_length` for an option of another medium; the function ignores the two bytes before the
    address.
    """
    hwaddr: HwAddr | None = None
    others = []
    for option in options:
        if option.type != kind:
            others.append(option)
        elif len(option.body) != _LINK_LAYER_UNITS * _UNIT_BYTES - 2:
            raise BadFrame("lladdr_length")
        elif hwaddr is None:
            hwaddr = lladdr.parse_untrusted(option.body[2:])
    return hwaddr, tuple(others)
