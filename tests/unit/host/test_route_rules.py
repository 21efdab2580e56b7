# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import socket
import struct
from typing import Any

import pytest

from ipoibu.base.route import FIELD_PORTS, FIELD_SOURCE, FIELD_TOS
from ipoibu.host.netlink import Netlink
from ipoibu.host.route_message import hops_by_number
from ipoibu.host.route_query import _selectors
from ipoibu.host.route_rules import fields_of, read_rule


def _rule(
    priority: int, table: int, *attributes: tuple[int, bytes], tos: int = 0, action: int = 1
) -> Any:
    body = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, tos, table, 0, 0, action, 0)
    for number, value in ((6, struct.pack("=I", priority)), *attributes):
        body += struct.pack("=HH", 4 + len(value), number) + value + bytes(-len(value) % 4)
    return read_rule(struct.pack("=IHHII", 16 + len(body), 32, 0, 0, 0) + body, 0)


DEFAULTS = [_rule(0, 255), _rule(32766, 254), _rule(32767, 253)]


def test_the_default_rules_leave_the_main_table_to_decide() -> None:
    assert fields_of(DEFAULTS) is None
    assert fields_of(DEFAULTS[:2]) is None
    assert fields_of([]) is None  # a kernel without rules


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        (_rule(100, 254), FIELD_SOURCE),
        (_rule(32766, 254, (14, bytes(4))), FIELD_SOURCE),  # suppress_prefixlength 0
        (_rule(32766, 254, action=6), FIELD_SOURCE),
        (_rule(100, 7, (10, struct.pack("=I", 9))), FIELD_SOURCE),  # fwmark 9
        (_rule(100, 7, tos=16), FIELD_SOURCE | FIELD_TOS),
        (_rule(100, 7, (22, b"\x06"), (24, bytes(4))), FIELD_SOURCE | FIELD_PORTS),
        (_rule(1000, 0, (19, b"\x01")), FIELD_SOURCE),  # l3mdev: a VRF
    ],
)
def test_every_other_rule_has_the_kernel_asked_by_what_rules_select_by(
    rule: Any, fields: int
) -> None:
    assert fields_of([*DEFAULTS, rule]) == fields


def test_a_rule_has_its_mark() -> None:
    assert _rule(100, 7, (10, struct.pack("=I", 9))).mark == 9


def test_this_kernel_lists_its_rules_and_nexthop_objects() -> None:
    with Netlink() as netlink:
        assert {rule.family for rule in netlink.rules()} <= {socket.AF_INET, socket.AF_INET6}
        assert isinstance(netlink.nexthops(1), dict)


def test_groups_of_nexthop_objects_have_the_weights_of_their_members() -> None:
    gateway = bytes((10, 0, 0, 7))
    group = struct.pack("=IBBH", 1, 2, 0, 0) + struct.pack("=IBBH", 2, 0, 0, 0)
    listed = [(10, 0, b"", group), (1, 7, gateway, b""), (2, 8, gateway, b"")]
    hops = hops_by_number(listed, 7)
    assert [(str(hop.via), hop.weight) for hop in hops[10]] == [("10.0.0.7", 3)]
    assert 2 not in hops


def test_the_selectors_of_a_packet_are_what_a_rule_may_select_by() -> None:
    head = bytes.fromhex("45b8001c0000000040110000") + bytes((10, 0, 0, 1, 8, 8, 8, 8))
    ports = bytes.fromhex("1388003500080000")
    family, tos, attributes = _selectors(head + ports)
    assert (family, tos) == (socket.AF_INET, 0xB8)
    assert dict(attributes) == {
        1: bytes((8, 8, 8, 8)),
        27: b"\x11",
        28: b"\x13\x88",
        29: b"\x00\x35",
    }
    fragment = head[:6] + b"\x20\x00" + head[8:] + ports
    assert dict(_selectors(fragment)[2]) == {1: bytes((8, 8, 8, 8))}
    ipv6 = bytes.fromhex("6b80000000083b40") + bytes(16) + b"\xfd" + bytes(15)
    family, tos, attributes = _selectors(ipv6)
    assert (family, tos, len(attributes)) == (socket.AF_INET6, 0xB8, 1)
