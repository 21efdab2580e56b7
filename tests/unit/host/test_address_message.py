# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import struct
import sys
from ipaddress import ip_address

import pytest

from ipoibu.host.address_message import (
    NTF_PROXY,
    read_group,
    read_igmp_table,
    read_neighbour,
)

# What Linux 6.18 sent when programs joined 224.0.0.18 and ff02::fb on interface 2
V4 = "022080000200000008000700e000001214000600ffffffffffffffffc3d95d00c3d95d00"
V6 = (
    "0a8080000200000014000700ff0200000000000000000000000000fb"
    "14000600ffffffffffffffffc3d95d00c3d95d00"
)
TABLE = """\
Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter
1\tlo        :     1      V3
\t\t\t\t010000E0     1 0:00000000\t\t0
2\tib0       :     2      V3
\t\t\t\t120000E0     1 0:00000000\t\t0
\t\t\t\t010000E0     1 0:00000000\t\t0
12\tib1       :     1      V2
\t\t\t\t030201EF     2 1:00000064\t\t1
"""


@pytest.mark.parametrize(("body", "group"), [(V4, "224.0.0.18"), (V6, "ff02::fb")])
def test_a_notice_names_its_interface_and_its_group(body: str, group: str) -> None:
    data = bytes.fromhex(body)
    message = b"....." + struct.pack("=IHHII", 16 + len(data), 56, 0, 0, 0) + data
    assert read_group(message, 5) == (2, ip_address(group))


def test_a_notice_without_a_group_has_none() -> None:
    message = struct.pack("=IHHIIBBBBI", 24, 56, 0, 0, 0, 2, 0, 0, 0, 7)
    assert read_group(message, 0) == (7, None)


@pytest.mark.skipif(sys.byteorder != "little", reason="the table is of a little-endian machine")
@pytest.mark.parametrize(
    ("index", "groups"),
    [(2, {"224.0.0.18", "224.0.0.1"}), (12, {"239.1.2.3"}), (1, {"224.0.0.1"}), (3, set())],
)
def test_the_igmp_table_lists_the_groups_of_each_interface(index: int, groups: set[str]) -> None:
    assert read_igmp_table(TABLE.splitlines(), index) == {ip_address(group) for group in groups}


@pytest.mark.parametrize(
    ("state", "flags", "is_known"),
    [
        (0x02, 0, True),  # reachable
        (0x04, 0, True),  # stale
        (0x80, 0, True),  # permanent
        (0x01, 0, False),  # incomplete
        (0x20, 0, False),  # failed
        (0x40, 0, False),  # no ARP: a group
        (0x80, NTF_PROXY, False),
    ],
)
def test_a_neighbour_counts_once_it_has_answered(state: int, flags: int, is_known: bool) -> None:
    ip = ip_address("fd00::7")
    head = struct.pack("=IHHII", 48, 28, 0, 0, 0)
    data = head + struct.pack("=BxxxiHBBHH16s", 10, 7, state, flags, 0, 20, 1, ip.packed)
    assert read_neighbour(data, 0) == (7, ip if is_known else None)
