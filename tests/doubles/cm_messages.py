# SPDX-License-Identifier: BSD-2-Clause
"""A request and a reply of communication management with a value of its own in every field; private data
counts up from one byte."""

from __future__ import annotations

from typing import Final

from ipoibu.base.addr import Gid, PKey, Qpn
from ipoibu.wire.cm_code import Transport
from ipoibu.wire.cm_setup import Path, Rep, Req


def counting(start: int, length: int) -> bytes:
    return bytes(range(start, start + length))


REQ: Final = Req(
    local_id=0xA1B2C3D4,
    service_id=0x1000000000000049,
    ca_guid=0x0211223344556677,
    qpn=Qpn(0x123456),
    psn=0x789ABC,
    pkey=PKey(0xFFFF),
    mtu=4,
    primary=Path(
        local_gid=Gid(counting(0x10, 16)),
        remote_gid=Gid(counting(0x30, 16)),
        local_lid=0x1001,
        remote_lid=0x2002,
        flow_label=0xABCDE,
        rate=0x2A,
        traffic_class=0x5C,
        hop_limit=64,
        sl=9,
        subnet_local=True,
        ack_timeout=18,
    ),
    alternate=Path(
        local_gid=Gid(counting(0x50, 16)),
        remote_gid=Gid(counting(0x70, 16)),
        local_lid=0x3003,
        remote_lid=0x4004,
        flow_label=0x54321,
        rate=0x15,
        traffic_class=0xA3,
        hop_limit=1,
        sl=6,
        ack_timeout=13,
    ),
    private=counting(0x80, 92),
    qkey=0x0B1B0C1C,
    transport=Transport.UC,
    responder_resources=4,
    initiator_depth=3,
    remote_timeout=20,
    local_timeout=21,
    flow_control=True,
    retries=5,
    rnr_retries=6,
    cm_retries=15,
    rdc_exists=True,
    has_srq=True,
)
REP: Final = Rep(
    local_id=0x01020304,
    remote_id=0xA1B2C3D4,
    ca_guid=0x0211223344556678,
    qpn=Qpn(0x654321),
    psn=0xCBA987,
    private=counting(0x10, 196),
    qkey=0x0B1B0C1C,
    responder_resources=4,
    initiator_depth=3,
    ack_delay=15,
    failover=2,
    flow_control=True,
    rnr_retries=6,
    has_srq=True,
)
