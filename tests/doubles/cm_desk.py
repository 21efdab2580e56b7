# SPDX-License-Identifier: BSD-2-Clause
"""A communication manager alone: the test plays its policy and its peers.

    desk = Desk()
    (requested,) = reported(desk.receive(REQ))
    rep = only(desk.do(Accept(requested.handle, Qpn(0x51), b"")))

The manager is at port A, with a peer at port B.
"""

from __future__ import annotations

import random
from typing import Final

from ipoibu.base.addr import Gid, PKey, Qpn
from ipoibu.base.ib import Destination
from ipoibu.proto.cm.cm import Cm, CmConfig, MadSource
from ipoibu.proto.cm.state import State
from ipoibu.proto.effects import Count
from ipoibu.proto.rc.events import (
    Accept,
    CmEffect,
    Confirm,
    Connect,
    Disconnect,
    Ended,
    Established,
    Handle,
    Reject,
    Replied,
    Requested,
    Role,
    SendMad,
)
from ipoibu.wire import cm
from ipoibu.wire.cm_code import seconds
from ipoibu.wire.cm_setup import Path, Rep, Req
from ipoibu.wire.mad import GSI_QPN

A: Final = Gid.parse("fe80::215:5dff:fd33:ff0b")
B: Final = Gid.parse("fe80::215:5dff:fd33:ff0c")
STRANGER: Final = Gid.parse("fe80::bad")
A_GUID: Final = 0x00155DFFFD33FF0B
B_GUID: Final = 0x00155DFFFD33FF0C
PKEY: Final = PKey(0xFFFF)
SERVICE: Final = 0x1000000000000049
CONFIG: Final = CmConfig(A, A_GUID, 2048)
FROM_B: Final = MadSource(Qpn(GSI_QPN), B)
WAIT_S: Final = seconds(CONFIG.response_timeout)
OURS: Final = Handle(Role.ACTIVE, 7)
PEER_ID: Final = 0xB0B0B0B0
TID: Final = 0x1122334455667788
REQ: Final = Req(
    local_id=PEER_ID,
    service_id=SERVICE,
    ca_guid=B_GUID,
    qpn=Qpn(0x4A),
    psn=0x123456,
    pkey=PKEY,
    mtu=4,
    primary=Path(B, A, 0xFFFF, 0xFFFF, 0x12345, 3, 5, 64, 2, False, 19),
    private=b"hello",
    remote_timeout=20,
    local_timeout=20,
    cm_retries=15,
    has_srq=True,
)


class Desk:
    """A manager at port A, with its effects so far."""

    def __init__(self, config: CmConfig = CONFIG) -> None:
        self.cm = Cm(config, random.Random(1))
        self.cm.listen({SERVICE: PKEY})
        self.now = 100.0
        self.effects: list[CmEffect] = []

    def do(self, request: Connect | Confirm | Accept | Reject | Disconnect) -> list[CmEffect]:
        return self._note(self.cm.request(self.now, request))

    def receive(
        self, message: cm.Spoken, source: MadSource = FROM_B, tid: int = TID
    ) -> list[CmEffect]:
        return self._note(self.cm.note_received(self.now, source, cm.pack(tid, message)))

    def wait(self, seconds_: float) -> list[CmEffect]:
        """Let time pass, from deadline to deadline."""
        until, happened = self.now + seconds_, []
        while (at := self.cm.deadline()) is not None and at <= until:
            self.now = at
            happened += self._note(self.cm.timer(at))
        self.now = until
        return happened

    def connect(self, handle: Handle = OURS) -> Req:
        """Ask B for a connection, and return the REQ."""
        destination = Destination(B, Qpn(0x49))
        effects = self.do(Connect(handle, destination, SERVICE, Qpn(0x50), 2048, b"hi"))
        message = only(effects)
        assert isinstance(message, Req)
        return message

    @property
    def states(self) -> list[State]:
        return [state for _, state in self.cm.snapshot()]

    def _note(self, effects: list[CmEffect]) -> list[CmEffect]:
        self.effects += effects
        return effects


def sent(effects: list[CmEffect]) -> list[cm.Message]:
    """Return the CM messages among the effects."""
    return [cm.parse_untrusted(it.raw)[1] for it in effects if isinstance(it, SendMad)]


def only(effects: list[CmEffect]) -> cm.Message:
    """Return the only CM message among the effects."""
    (message,) = sent(effects)
    return message


def counts(effects: list[CmEffect]) -> list[str]:
    """Return the reasons of all counts among the effects."""
    return [it.reason for it in effects if isinstance(it, Count)]


def reported(effects: list[CmEffect]) -> list[Requested | Replied | Established | Ended]:
    """Return the events for the policy among the effects."""
    return [it for it in effects if isinstance(it, Requested | Replied | Established | Ended)]


def rep_to(req: Req) -> Rep:
    """Return the REP with which B accepts."""
    return Rep(PEER_ID, req.local_id, B_GUID, Qpn(0x4A), 0xABCDEF, b"welcome", rnr_retries=1)
