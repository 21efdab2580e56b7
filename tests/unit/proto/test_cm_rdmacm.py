# SPDX-License-Identifier: BSD-2-Clause
"""Our own manager and a peer with the kernel's rdma_cm: the service ID decides about its header."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from ipoibu.base.addr import Qpn
from ipoibu.base.ib import Destination
from ipoibu.proto.rc.events import Connect, Requested
from ipoibu.wire import cm, cm_rdmacm
from ipoibu.wire.cm_code import REQ_PRIVATE_LEN, Reason
from ipoibu.wire.cm_rdmacm import Header
from ipoibu.wire.cm_setup import Req
from tests.doubles.cm_desk import CONFIG, OURS, PKEY, REQ, A, B, Desk, counts, only, reported, sent

PORT: Final = 0x1064049
ASKED: Final = replace(
    REQ, service_id=PORT, private=Header(B.ip, A.ip, 40000).pack() + b"hello from afar"
)


def test_a_request_of_rdma_cm_is_notified_without_the_header() -> None:
    desk = Desk()
    desk.cm.listen({PORT: PKEY})
    (requested,) = reported(desk.receive(ASKED))
    assert isinstance(requested, Requested)
    assert requested.service_id == PORT
    assert requested.private.rstrip(b"\0") == b"hello from afar"
    assert len(requested.private) == REQ_PRIVATE_LEN - cm_rdmacm.LEN


def test_a_request_to_rdma_cm_has_the_header_in_front() -> None:
    desk = Desk()
    destination = Destination(B, Qpn(0x50))
    request = only(desk.do(Connect(OURS, destination, PORT, Qpn(0x50), 2048, b"hi")))
    assert isinstance(request, Req)
    header, data = cm_rdmacm.parse_untrusted(request.private)
    assert (header.source, header.destination) == (CONFIG.gid.ip, B.ip)
    assert data.rstrip(b"\0") == b"hi"


def test_other_service_ids_have_none() -> None:
    request = Desk().connect()
    assert request.private.rstrip(b"\0") == b"hi"


@pytest.mark.parametrize(
    "spoil",
    [lambda raw: b"\x01" + raw[1:], lambda raw: raw[:1] + b"\x70" + raw[2:]],
    ids=["version", "family"],
)
def test_a_request_with_a_header_of_another_kind_is_refused(
    spoil: Callable[[bytes], bytes],
) -> None:
    desk = Desk()
    desk.cm.listen({PORT: PKEY})
    effects = desk.receive(replace(ASKED, private=spoil(ASKED.private)))
    (refused,) = sent(effects)
    assert isinstance(refused, cm.Rej)
    assert refused.reason == Reason.CONSUMER
    assert reported(effects) == []
    assert counts(effects) == ["cm_rdmacm_version"]
    assert len(desk.cm) == 0
