# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's policy rules (`ip rule`): they say whether the main table alone decides about a packet.

A frame of a TUN does not contain the rule that chose its table. Under the default rules the main table
decides, and the route sync copies it. Under other rules ipoibu asks the kernel about each flow.
"""

from __future__ import annotations

import functools
import operator
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from ipoibu.base.route import FIELD_PORTS, FIELD_SOURCE, FIELD_TOS
from ipoibu.host.route_message import attributes, number_of

# linux/fib_rules.h
_HEADER: Final = struct.Struct("=BBBBBBBBI")  # struct fib_rule_hdr
_FIRST_ATTRIBUTE: Final = 16 + _HEADER.size
_FR_ACT_TO_TBL: Final = 1
_FRA_PRIORITY: Final = 6
_FRA_FWMARK: Final = 10
_FRA_SUPPRESS_PREFIXLEN: Final = 14
_FRA_TABLE: Final = 15
_FRA_PROTOCOL: Final = 21
_FRA_IP_PROTO: Final = 22
_FRA_SPORT_RANGE: Final = 23
_FRA_DPORT_RANGE: Final = 24
_FRA_DSCP: Final = 25
_FRA_PAD: Final = 18
# Attributes that every rule has, whatever it selects.
_PLAIN: Final = {_FRA_PRIORITY, _FRA_TABLE, _FRA_PROTOCOL, _FRA_PAD, _FRA_SUPPRESS_PREFIXLEN}
_NO_SUPPRESSION: Final = b"\xff\xff\xff\xff"
_DEFAULTS: Final = {(0, 255), (32766, 254), (32767, 253)}  # local, main, default


class Rule(NamedTuple):
    """The parts of one rule that matter here; `fields` (FIELD_...) are those by which the rule selects."""

    family: int
    is_default: bool
    fields: int
    mark: int


def read_rule(data: bytes, offset: int) -> Rule:
    """Return the rule of the RTM_NEWRULE at `offset`."""
    (length,) = struct.unpack_from("=I", data, offset)
    family, _, _, tos, table, _, _, action, _ = _HEADER.unpack_from(data, offset + 16)
    destination_bits, source_bits = data[offset + 17], data[offset + 18]
    values = dict(attributes(data, offset + _FIRST_ATTRIBUTE, offset + length))
    table = number_of(values.get(_FRA_TABLE)) or table
    selects = bool(values.keys() - _PLAIN) or destination_bits or source_bits or tos
    suppresses = values.get(_FRA_SUPPRESS_PREFIXLEN, _NO_SUPPRESSION) != _NO_SUPPRESSION
    place = (number_of(values.get(_FRA_PRIORITY)), table)
    fields = FIELD_SOURCE  # also for the interface that a packet came in by
    if tos or _FRA_DSCP in values:
        fields |= FIELD_TOS
    if values.keys() & {_FRA_IP_PROTO, _FRA_SPORT_RANGE, _FRA_DPORT_RANGE}:
        fields |= FIELD_PORTS
    return Rule(
        family=family,
        is_default=(
            action == _FR_ACT_TO_TBL and not selects and not suppresses and place in _DEFAULTS
        ),
        fields=fields,
        mark=number_of(values.get(_FRA_FWMARK)),
    )


def fields_of(rules: Sequence[Rule]) -> int | None:
    """Return the fields (FIELD_...) by which the rules of a family distinguish flows; None if the main
    table alone decides, or the kernel has no rules."""
    if not rules or all(rule.is_default for rule in rules):
        return None
    return functools.reduce(operator.or_, (rule.fields for rule in rules if not rule.is_default))
