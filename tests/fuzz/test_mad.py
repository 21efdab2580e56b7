# SPDX-License-Identifier: BSD-2-Clause
"""Management datagrams under drawn bytes: every decoder gives a value or `BadFrame`, and no loop ends
in anything but an effect."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipoibu.base.errors import BadFrame
from ipoibu.proto.sa.requests import PACE, SaAddress, SaRequests
from ipoibu.proto.sa.transaction import Query
from ipoibu.wire import mad, mcmember, notice, pathrecord, rmpp, sa
from ipoibu.wire.mad import Method
from ipoibu.wire.sa import Attribute, SaMad

DECODERS: dict[str, Callable[[bytes], object]] = {
    "mad": mad.parse_untrusted,
    "sa": sa.parse_untrusted,
    "rmpp": rmpp.parse_untrusted,
    "member record": mcmember.parse_untrusted,
    "path record": pathrecord.parse_untrusted,
    "class port info": sa.class_port_info_untrusted,
    "inform info": notice.inform_untrusted,
    "notice": notice.notice_untrusted,
    "path query": pathrecord.query_untrusted,
    "table": lambda raw: sa.records_untrusted(raw, raw[0] if raw else 0, 8),
}

noise = st.binary(max_size=300)
datagrams = st.binary(min_size=mad.MAD_LEN, max_size=mad.MAD_LEN)


@pytest.mark.parametrize("name", DECODERS)
@given(raw=st.one_of(noise, datagrams))
def test_any_bytes_are_a_value_or_a_bad_frame(name: str, raw: bytes) -> None:
    reason = "none"
    try:
        DECODERS[name](raw)
    except BadFrame as error:
        reason = error.reason
    assert reason


@given(
    st.sampled_from(list(Method)),
    st.sampled_from(list(Attribute)),
    st.integers(0, 2**64 - 1),
    st.lists(st.tuples(st.integers(0, mad.MAD_LEN - 1), st.integers(0, 255)), max_size=8),
    st.integers(0, mad.MAD_LEN),
)
def test_a_damaged_datagram_of_the_sa_ends_in_effects(
    method: Method, attribute: Attribute, tid: int, spots: list[tuple[int, int]], length: int
) -> None:
    """A damaged or shortened datagram from the SA's LID never ends the client."""
    raw = bytearray(SaMad(method, attribute, tid).pack())
    for at, value in spots:
        raw[at] = value
    requests = SaRequests(random.Random(1), PACE)
    requests.sa_lid = 1
    requests.request(0.0, "question", Query(Method.GET, Attribute.PATH_RECORD, b"", 0))
    requests.note_received(0.1, SaAddress(1, mad.GSI_QPN), bytes(raw[:length] if length else raw))
    assert requests.deadline() is not None or not len(requests)
