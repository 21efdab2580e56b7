# SPDX-License-Identifier: BSD-2-Clause
"""One connection of the communication manager: its data, and the messages made from it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from ipoibu.base.addr import DEFAULT_PKEY, MULTICAST_QPN, Gid, PKey, Qpn
from ipoibu.base.ib import Destination, RcAttributes
from ipoibu.base.limits import (
    CM_ACK_TIMEOUT_CODE,
    CM_CONNECTIONS_MAX,
    CM_HALF_OPEN_MAX,
    CM_HALF_OPEN_PER_PORT_MAX,
    CM_RESPONSE_TIMEOUT_CODE,
    CM_RETRIES,
    CM_SERVICE_TIMEOUT_CODE,
    CM_WAIT_MAX_S,
    CM_WAIT_MIN_S,
    CONNECTION_RETRIES,
)
from ipoibu.proto.cm.state import MACHINE, Action, State
from ipoibu.proto.rc.events import Cause, Connect, Handle, Replied, Requested, Role
from ipoibu.wire import cm_rdmacm
from ipoibu.wire.cm import Drep, Dreq, Mra, Rej, Rtu
from ipoibu.wire.cm_code import LID_PERMISSIVE, About, Reason, Transport, seconds
from ipoibu.wire.cm_setup import Path, Rep, Req
from ipoibu.wire.sa import MTU_BYTES, MTU_CODES

Key = tuple[Gid, int, int]  # the peer's port, its CA GUID, its communication id or queue pair
Answer = Rep | Mra | Rtu | Rej | Dreq | Drep  # all messages that name a connection of ours

_NO_QPN: Final = Qpn(0)
_QPN_MIN: Final = 2  # 0 belongs to the subnet manager, 1 to the GSI
_ACK_TIMEOUT_MAX_CODE: Final = 20  # 4.3 s; a peer may ask for 2.4 hours, and 0 means no time-out
_NO_FAILOVER: Final = 1  # REP:Failover Accepted: we do not support alternate paths
_ABOUT: Final = {  # the peer's message that a state answers
    State.REQ_RECEIVED: About.REQ,
    State.MRA_SENT: About.REQ,
    State.REP_RECEIVED: About.REP,
    State.MRA_REP_SENT: About.REP,
}


@dataclass(frozen=True, slots=True)
class MadSource:
    """The sender of a management datagram, from its completion and its GRH; without a GRH `gid` is None.

    `pkey` is the datagram's partition, which the answer uses, too.
    """

    qpn: Qpn
    gid: Gid | None
    lid: int = 0
    sl: int = 0
    pkey: PKey = DEFAULT_PKEY

    def answer(self, gid: Gid) -> Destination:
        """Return the destination of an answer; `gid` is that of the peer, from the message if there was no
        GRH."""
        return Destination(gid, self.qpn, dlid=self.lid, sl=self.sl)


@dataclass(frozen=True, slots=True)
class CmConfig:
    """The port, with the manager's time-outs and caps. A code stands for 4.096 µs times 2 to the power of
    the code.

    `path_mtu_bytes` is the largest InfiniBand MTU of the port. `retries` is for a CM message;
    `connection_retries` and `rnr_retries` are for a packet on a connection (C11).
    """

    gid: Gid
    ca_guid: int
    path_mtu_bytes: int
    lid: int = 0
    response_timeout: int = CM_RESPONSE_TIMEOUT_CODE
    retries: int = CM_RETRIES
    ack_timeout: int = CM_ACK_TIMEOUT_CODE
    connection_retries: int = CONNECTION_RETRIES
    rnr_retries: int = CONNECTION_RETRIES
    connections_max: int = CM_CONNECTIONS_MAX
    half_open_max: int = CM_HALF_OPEN_MAX
    half_open_per_port_max: int = CM_HALF_OPEN_PER_PORT_MAX

    def refusal(self, source: MadSource, req: Req) -> tuple[Reason, bytes] | None:
        """Return the reason why this port cannot take a request, and the value that it would take
        instead."""
        path = req.primary
        if req.transport is not Transport.RC:
            return Reason.INVALID_TRANSPORT, b""
        if path.remote_gid != self.gid:
            return Reason.INVALID_GID, self.gid.raw
        # A peer must not direct our packets to a third host.
        if source.gid not in (None, path.local_gid) or not is_unicast(path.local_gid):
            return Reason.INVALID_GID, b""
        if not is_connectable(req.qpn):
            return Reason.UNSUPPORTED, b""
        if not 0 < MTU_BYTES.get(req.mtu, 0) <= self.path_mtu_bytes:
            return Reason.INVALID_MTU, bytes((MTU_CODES[self.path_mtu_bytes],))
        return None

    def requested(self, source: MadSource, req: Req, psn: int) -> RcAttributes:
        """Return the attributes of our queue pair for a request; `psn` is the peer's first PSN, from our
        REP."""
        path = req.primary
        lid = source.lid if path.local_lid in (0, LID_PERMISSIVE) else path.local_lid
        return RcAttributes(
            destination=Destination(
                path.local_gid,
                req.qpn,
                dlid=lid,
                sl=path.sl,
                static_rate=path.rate,
                hop_limit=max(1, path.hop_limit),
                traffic_class=path.traffic_class,
                flow_label=path.flow_label,
            ),
            path_mtu_bytes=MTU_BYTES[req.mtu],
            receive_psn=psn,
            send_psn=req.psn,
            ack_timeout=min(path.ack_timeout or self.ack_timeout, _ACK_TIMEOUT_MAX_CODE),
            retries=req.retries,
            rnr_retries=req.rnr_retries,
        )


@dataclass(slots=True)
class CmConnection:
    """One connection; the `remote_...` fields are 0 until the peer's message gives them.

    We choose `psn`, and the peer starts with it. `hurry_s` is half of the peer's time-out: our MRA has to
    arrive before the rest is over. `sends` counts how often we sent each message.
    """

    handle: Handle
    local_id: int
    gid: Gid
    peer: Destination  # the GSI of its port
    tid: int
    psn: int
    wait_s: float
    hurry_s: float
    retries: int
    pkey: PKey = DEFAULT_PKEY
    state: State = MACHINE.initial
    qpn: Qpn = _NO_QPN
    remote_id: int = 0
    remote_guid: int = 0
    remote_qpn: Qpn = _NO_QPN
    respite_s: float = 0.0
    connect: Connect | None = None
    event: Requested | Replied | None = None  # the next report to the policy
    sends: dict[Action, int] = field(default_factory=dict)
    refusal: Reason = Reason.CONSUMER  # our reason
    info: bytes = b""
    private: bytes = b""
    cause: Cause = Cause.DISCONNECTED
    reason: int = 0  # the peer's

    @property
    def request_key(self) -> Key:
        return self.gid, self.remote_guid, self.remote_id

    @property
    def qpn_key(self) -> Key:
        return self.gid, self.remote_guid, self.remote_qpn

    def is_from(self, source: MadSource) -> bool:
        """Return whether a datagram comes from the port of the connection's peer."""
        if source.gid is None:
            return source.lid == self.peer.dlid
        return source.gid == self.gid

    def is_meant_by(self, message: Answer) -> bool:
        """Return whether a message with our id is for this connection: its kind and the peer's id must
        fit."""
        is_active = self.handle.role is Role.ACTIVE
        is_known = 0 < self.remote_id == message.local_id
        match message:
            case Rep():
                return is_active and (is_known or not self.remote_id)
            case Mra(about=About.REQ) | Rej(about=About.REQ):
                return is_active and not self.remote_id
            case Mra(about=About.REP) | Rej(about=About.REP) | Rtu():
                return is_known and not is_active
            case Mra():
                return False  # about alternate paths
            case Dreq():
                return is_known and message.qpn == self.qpn
            case _:
                return is_known

    def req(self, config: CmConfig) -> Req:
        """Make the REQ as Linux does: a path through a router has no LIDs."""
        connect = self.connect
        assert connect is not None, "only an active connection sends a REQ"
        path = connect.destination
        is_local = path.hop_limit <= 1
        return Req(
            local_id=self.local_id,
            service_id=connect.service_id,
            ca_guid=config.ca_guid,
            qpn=self.qpn,
            psn=self.psn,
            pkey=connect.pkey,
            mtu=MTU_CODES[connect.path_mtu_bytes],
            primary=Path(
                config.gid,
                path.gid,
                local_lid=config.lid if is_local else LID_PERMISSIVE,
                remote_lid=path.dlid if is_local else LID_PERMISSIVE,
                flow_label=path.flow_label,
                rate=path.static_rate,
                traffic_class=path.traffic_class,
                hop_limit=path.hop_limit,
                sl=path.sl,
                subnet_local=is_local,
                ack_timeout=config.ack_timeout,
            ),
            private=self._private(config, connect),
            remote_timeout=config.response_timeout,
            local_timeout=config.response_timeout,
            retries=config.connection_retries,
            rnr_retries=config.rnr_retries,
            cm_retries=config.retries,
            has_srq=True,
        )

    @staticmethod
    def _private(config: CmConfig, connect: Connect) -> bytes:
        if not cm_rdmacm.is_rdmacm(connect.service_id):
            return connect.private
        header = cm_rdmacm.Header(config.gid.ip, connect.destination.gid.ip)
        return header.pack() + connect.private

    def replied(self, config: CmConfig, rep: Rep) -> Replied:
        """Return the event for a REP, with the attributes of our queue pair."""
        assert self.connect is not None, "a REP answers a REQ of ours"
        attributes = RcAttributes(
            destination=replace(self.connect.destination, qpn=rep.qpn),
            path_mtu_bytes=self.connect.path_mtu_bytes,
            receive_psn=self.psn,
            send_psn=rep.psn,
            ack_timeout=config.ack_timeout,
            retries=config.connection_retries,
            rnr_retries=rep.rnr_retries,
        )
        return Replied(self.handle, attributes, rep.private)

    def rep(self, config: CmConfig) -> Rep:
        return Rep(
            local_id=self.local_id,
            remote_id=self.remote_id,
            ca_guid=config.ca_guid,
            qpn=self.qpn,
            psn=self.psn,
            private=self.private,
            failover=_NO_FAILOVER,
            rnr_retries=config.rnr_retries,
            has_srq=True,
        )

    def rtu(self) -> Rtu:
        return Rtu(self.local_id, self.remote_id)

    def mra(self) -> Mra:
        return Mra(self.local_id, self.remote_id, _ABOUT[self.state], CM_SERVICE_TIMEOUT_CODE)

    def rej(self, before: State) -> Rej:
        """Return the REJ for the message that the state `before` answers."""
        if before is State.TIME_WAIT:  # a repeated message of a connection that is over
            about = About.REP if self.handle.role is Role.ACTIVE else About.REQ
            return Rej(self.local_id, self.remote_id, about, Reason.STALE_CONNECTION)
        about = _ABOUT.get(before, About.OTHER)
        # The peer knows no id of ours.
        local_id = 0 if before is State.REQ_RECEIVED else self.local_id
        return Rej(local_id, self.remote_id, about, self.refusal, self.info, self.private)

    def dreq(self) -> Dreq:
        return Dreq(self.local_id, self.remote_id, self.remote_qpn)

    def drep(self) -> Drep:
        return Drep(self.local_id, self.remote_id)


def private(req: Req) -> bytes:
    """Return the private data of a REQ for the policy; `BadFrame` if rdma_cm's header is invalid."""
    if not cm_rdmacm.is_rdmacm(req.service_id):
        return req.private
    _, data = cm_rdmacm.parse_untrusted(req.private)
    return data


def is_unicast(gid: Gid) -> bool:
    return not gid.is_multicast and any(gid.raw)


def is_connectable(qpn: Qpn) -> bool:
    """Return whether a connected queue pair can have this number: neither a special one nor that of
    multicast."""
    return _QPN_MIN <= qpn < MULTICAST_QPN


def bounded_s(code: int) -> float:
    """Return the time of a peer's code, within our limits."""
    return min(max(seconds(code), CM_WAIT_MIN_S), CM_WAIT_MAX_S)
