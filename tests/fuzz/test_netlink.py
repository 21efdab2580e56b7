# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's messages about routes, rules and next hops, with drawn attributes: reading ends."""

from __future__ import annotations

import struct

from hypothesis import example, given
from hypothesis import strategies as st

from ipoibu.host.netsocket import NLM_F_ACK_TLVS, NLMSG_DONE, NLMSG_ERROR, split, verdict
from ipoibu.host.route_message import (
    RouteReader,
    attributes,
    hops_by_number,
    output_interface,
    read_nexthop,
    route_type,
)
from ipoibu.host.route_rules import fields_of, read_rule

INDEX = 7
OFFSET = 4  # a message need not begin its datagram

known = st.sampled_from((1, 2, 4, 5, 6, 7, 8, 9, 15, 18, 20, 30))
lengths = st.sampled_from((0, 1, 2, 4, 8, 16, 18, 20))
values = st.binary(max_size=24) | lengths.flatmap(lambda n: st.binary(min_size=n, max_size=n))
listed = st.lists(st.tuples(known | st.integers(0, 0xFFFF), values), max_size=8)
headers = st.tuples(
    st.sampled_from((2, 10)) | st.integers(0, 255),
    st.integers(0, 32),  # bits of the destination: the kernel gives no more than an address has
    *[st.integers(0, 255)] * 5,
    st.integers(0, 255) | st.sampled_from((1, 3)),
    st.integers(0, 2**32 - 1),
)


def _packed(given: list[tuple[int, bytes]]) -> bytes:
    return b"".join(
        struct.pack("=HH", 4 + len(value), number) + value + bytes(-len(value) % 4)
        for number, value in given
    )


def _message(head: bytes, given: list[tuple[int, bytes]]) -> bytes:
    """A message as the kernel frames it; only its contents are drawn."""
    body = head + _packed(given)
    return bytes(OFFSET) + struct.pack("=IHHII", 16 + len(body), 24, 0, 1, 0) + body


@given(headers, listed, st.booleans())
@example((2, 0, 0, 0, 0, 0, 0, 1, 0), [(20, b"")], False)
def test_a_route_message_is_an_entry_or_of_no_interest(
    head: tuple[int, ...], given: list[tuple[int, bytes]], removed: bool
) -> None:
    data = _message(struct.pack("=BBBBBBBBI", *head), given)
    found = RouteReader(INDEX).read(data, OFFSET, removed=removed)
    assert found is None or len(found) == 2
    assert output_interface(data, OFFSET) >= 0
    assert route_type(data, OFFSET) == head[7]


@given(headers, listed)
def test_a_rule_is_read(head: tuple[int, ...], given: list[tuple[int, bytes]]) -> None:
    rule = read_rule(_message(struct.pack("=BBBBBBBBI", *head), given), OFFSET)
    assert rule.family == head[0]
    assert fields_of([rule]) is None or not rule.is_default


@given(st.lists(st.tuples(listed), max_size=4))
def test_nexthop_objects_are_read(several: list[tuple[list[tuple[int, bytes]]]]) -> None:
    read = [read_nexthop(_message(bytes(8), given), OFFSET) for (given,) in several]
    assert set(hops_by_number(read, INDEX)) <= {number for number, *_ in read}


@given(st.binary(max_size=200))
def test_attributes_of_any_bytes_end(data: bytes) -> None:
    assert len(list(attributes(data, 0, len(data)))) <= len(data) // 4


@given(st.binary(max_size=200), st.sampled_from((NLMSG_ERROR, NLMSG_DONE)))
def test_messages_of_any_bytes_end(data: bytes, kind: int) -> None:
    for offset, _, flags, _ in split(data):
        if offset + 20 <= len(data):
            assert len(verdict(data, offset, kind, flags | NLM_F_ACK_TLVS)) == 2
