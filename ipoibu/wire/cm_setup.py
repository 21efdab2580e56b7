# SPDX-License-Identifier: BSD-2-Clause
"""REQ and REP, the messages that make a connection: InfiniBand volume 1, §12.6.5 and §12.6.8.

232 bytes behind the MAD header. "Local" is the sender of the message. Widths are in bytes, with `b`
in bits; `-` is reserved, or belongs to a service that this program does not use; we send 0:

    REQ   local id 4 | - 4 | service id 8 | CA GUID 8 | - 4 | Q_Key 4 |
          QPN 24b, responder resources 8b | - 24b, initiator depth 8b |
          - 24b, remote response time-out 5b, transport 2b, end-to-end flow control 1b |
          PSN 24b, local response time-out 5b, retries 3b | P_Key 2 |
          path MTU 4b, RDC exists 1b, RNR retries 3b | CM retries 4b, SRQ 1b, - 3b |
          primary path 44 | alternate path 44 | private data 92
    path  local LID 2 | remote LID 2 | local GID 16 | remote GID 16 | flow label 20b, - 6b, rate 6b |
          traffic class 1 | hop limit 1 | SL 4b, subnet local 1b, - 3b | local ACK time-out 5b, - 3b
    REP   local id 4 | remote id 4 | Q_Key 4 | QPN 24b, - 8b | - 4 | PSN 24b, - 8b |
          responder resources 1 | initiator depth 1 |
          target ACK delay 5b, fail-over 2b, end-to-end flow control 1b |
          RNR retries 3b, SRQ 1b, - 4b | CA GUID 8 | private data 196
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar, Final

from ipoibu.base.addr import GID_LEN, Gid, PKey, Qpn
from ipoibu.wire.bits import join, split
from ipoibu.wire.cm_code import REP_PRIVATE_LEN, REQ_PRIVATE_LEN, Attribute, Transport

_REQ: Final = struct.Struct("!I4xQQ4xIIIIIHBB44s44s92s")
_PATH: Final = struct.Struct("!HH16s16sIBBBB")
_REP: Final = struct.Struct("!IIII4xIBBBBQ196s")


def padded(data: bytes, length: int) -> bytes:
    """Return private data padded to the length of its field; `ValueError` if it does not fit."""
    if len(data) > length:
        raise ValueError(f"{len(data)} bytes, where {length} fit")
    return data.ljust(length, b"\0")


@dataclass(frozen=True, slots=True)
class Path:
    """A path in a REQ; `subnet_local` is clear if the path may lead through a router.

    LIDs are 0 where the fabric routes by GID, and `LID_PERMISSIVE` where Linux does not know the
    LID; `rate` and `ack_timeout` are codes of the specification.
    """

    local_gid: Gid
    remote_gid: Gid
    local_lid: int = 0
    remote_lid: int = 0
    flow_label: int = 0
    rate: int = 0
    traffic_class: int = 0
    hop_limit: int = 0
    sl: int = 0
    subnet_local: bool = False
    ack_timeout: int = 0

    def pack(self) -> bytes:
        """44 bytes."""
        return _PATH.pack(
            self.local_lid,
            self.remote_lid,
            self.local_gid.raw,
            self.remote_gid.raw,
            join((self.flow_label, 20), (0, 6), (self.rate, 6)),
            self.traffic_class,
            self.hop_limit,
            join((self.sl, 4), (self.subnet_local, 1), (0, 3)),
            join((self.ack_timeout, 5), (0, 3)),
        )


NO_PATH: Final = Path(Gid(bytes(GID_LEN)), Gid(bytes(GID_LEN)))


@dataclass(frozen=True, slots=True)
class Req:
    """A request for a connection. `mtu` is the code of the path MTU (1 for 256 .. 5 for 4096).

    The *receiver* of the message starts to send with `psn`, and uses `retries` and `rnr_retries`. Time-outs
    are codes for `cm_code.seconds`.
    """

    ATTRIBUTE: ClassVar[Attribute] = Attribute.REQ

    local_id: int
    service_id: int
    ca_guid: int
    qpn: Qpn
    psn: int
    pkey: PKey
    mtu: int
    primary: Path
    alternate: Path = NO_PATH
    private: bytes = b""
    qkey: int = 0
    transport: Transport = Transport.RC
    responder_resources: int = 0
    initiator_depth: int = 0
    remote_timeout: int = 0
    local_timeout: int = 0
    flow_control: bool = False
    retries: int = 0
    rnr_retries: int = 0
    cm_retries: int = 0
    rdc_exists: bool = False
    has_srq: bool = False

    def pack(self) -> bytes:
        """Return 232 bytes; `ValueError` or `struct.error` for a value that does not fit its field."""
        timeout, flow = self.remote_timeout, self.flow_control
        return _REQ.pack(
            self.local_id,
            self.service_id,
            self.ca_guid,
            self.qkey,
            join((self.qpn, 24), (self.responder_resources, 8)),
            join((0, 24), (self.initiator_depth, 8)),
            join((0, 24), (timeout, 5), (self.transport, 2), (flow, 1)),
            join((self.psn, 24), (self.local_timeout, 5), (self.retries, 3)),
            self.pkey,
            join((self.mtu, 4), (self.rdc_exists, 1), (self.rnr_retries, 3)),
            join((self.cm_retries, 4), (self.has_srq, 1), (0, 3)),
            self.primary.pack(),
            self.alternate.pack(),
            padded(self.private, REQ_PRIVATE_LEN),
        )


@dataclass(frozen=True, slots=True)
class Rep:
    """The answer that accepts a REQ; the fields have the same meaning."""

    ATTRIBUTE: ClassVar[Attribute] = Attribute.REP

    local_id: int
    remote_id: int
    ca_guid: int
    qpn: Qpn
    psn: int
    private: bytes = b""
    qkey: int = 0
    responder_resources: int = 0
    initiator_depth: int = 0
    ack_delay: int = 0
    failover: int = 0
    flow_control: bool = False
    rnr_retries: int = 0
    has_srq: bool = False

    def pack(self) -> bytes:
        """Return 232 bytes; `ValueError` or `struct.error` for a value that does not fit its field."""
        return _REP.pack(
            self.local_id,
            self.remote_id,
            self.qkey,
            join((self.qpn, 24), (0, 8)),
            join((self.psn, 24), (0, 8)),
            self.responder_resources,
            self.initiator_depth,
            join((self.ack_delay, 5), (self.failover, 2), (self.flow_control, 1)),
            join((self.rnr_retries, 3), (self.has_srq, 1), (0, 4)),
            self.ca_guid,
            padded(self.private, REP_PRIVATE_LEN),
        )


def req(body: bytes) -> Req:
    """Read 232 bytes, which cannot fail."""
    local, service, guid, qkey, *packed, primary, alternate, private = _REQ.unpack(body)
    qpn, resources = split(packed[0], 24, 8)
    _, depth = split(packed[1], 24, 8)
    _, remote_timeout, transport, flow = split(packed[2], 24, 5, 2, 1)
    psn, local_timeout, retries = split(packed[3], 24, 5, 3)
    mtu, rdc_exists, rnr_retries = split(packed[5], 4, 1, 3)
    cm_retries, has_srq, _ = split(packed[6], 4, 1, 3)
    return Req(
        local_id=local,
        service_id=service,
        ca_guid=guid,
        qpn=Qpn(qpn),
        psn=psn,
        pkey=PKey(packed[4]),
        mtu=mtu,
        primary=_path(primary),
        alternate=_path(alternate),
        private=private,
        qkey=qkey,
        transport=Transport(transport),
        responder_resources=resources,
        initiator_depth=depth,
        remote_timeout=remote_timeout,
        local_timeout=local_timeout,
        flow_control=bool(flow),
        retries=retries,
        rnr_retries=rnr_retries,
        cm_retries=cm_retries,
        rdc_exists=bool(rdc_exists),
        has_srq=bool(has_srq),
    )


def rep(body: bytes) -> Rep:
    """Read 232 bytes, which cannot fail."""
    local, remote, qkey, qpn, psn, resources, depth, delays, srq, guid, private = _REP.unpack(body)
    ack_delay, failover, flow = split(delays, 5, 2, 1)
    rnr_retries, has_srq, _ = split(srq, 3, 1, 4)
    return Rep(
        local_id=local,
        remote_id=remote,
        ca_guid=guid,
        qpn=Qpn(qpn >> 8),
        psn=psn >> 8,
        private=private,
        qkey=qkey,
        responder_resources=resources,
        initiator_depth=depth,
        ack_delay=ack_delay,
        failover=failover,
        flow_control=bool(flow),
        rnr_retries=rnr_retries,
        has_srq=bool(has_srq),
    )


def _path(raw: bytes) -> Path:
    lid, remote_lid, gid, remote_gid, shared, tclass, hops, service, timeout = _PATH.unpack(raw)
    flow_label, _, rate = split(shared, 20, 6, 6)
    sl, subnet_local, _ = split(service, 4, 1, 3)
    return Path(
        local_gid=Gid(gid),
        remote_gid=Gid(remote_gid),
        local_lid=lid,
        remote_lid=remote_lid,
        flow_label=flow_label,
        rate=rate,
        traffic_class=tclass,
        hop_limit=hops,
        sl=sl,
        subnet_local=bool(subnet_local),
        ack_timeout=timeout >> 3,
    )
