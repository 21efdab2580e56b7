# SPDX-License-Identifier: BSD-2-Clause
"""The host's connected mode: communication management, and packets by connections (RFC 4755).

Each side sends by the connection that it has made itself, and receives by the other's.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

from tests.doubles.peer.host import Host
from tests.doubles.peer.pieces import pieces

RC_FLAG: Final = 0x80
RECEIVE_MTU: Final = 65524
RFC_FORM, LINUX_FORM = 0x01 << 56, 0x10 << 56
REQ, MRA, REJ, REP, RTU, DREQ, DREP = range(0x10, 0x17)
GUID: Final = bytes.fromhex("0211220000334455")
TIMEOUT_CODE: Final = 18
RETRIES: Final = 3
ENDED_S: Final = 15.0  # until the deviation "goes on with a connection that was ended" is over
REFUSED_S: Final = 4.0  # without another attempt
SOLICITED_TYPES: Final = range(133, 138)


@dataclass(slots=True)
class Connection:
    """`state` is asked, granted (we sent the REP), live, ending or over; `hwaddr` is that of datagrams."""

    local_id: int
    qpn: int
    peer: bytes  # GID
    hwaddr: bytes
    state: str
    tid: bytes
    remote_id: int = 0
    remote_qpn: int = 0
    message_bytes: int = RECEIVE_MTU
    form: int = RFC_FORM
    sent: bytes = b""  # the last message, to repeat
    tries: int = 0
    wait_s: float = 1.0
    retries: int = RETRIES
    respite: int = 0  # times that its timer may run out without a repetition
    waiting: list[bytes] = field(default_factory=list)


def ids(connection: Connection) -> bytes:
    return struct.pack("!II", connection.local_id, connection.remote_id)


class CmPart:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._next = 0x7000
        self._asked_of_us: dict[tuple[bytes, int], Connection] = {}
        self._ours: dict[bytes, Connection] = {}  # by the peer's hardware address
        self._by_id: dict[int, Connection] = {}
        self._refused: set[bytes] = set()
        self._by_datagram = dict(host.by_type)
        for kind in (0x0800, 0x86DD):
            host.by_type[kind] = self._guard(kind)
        host.on_gsi = self.came
        host.on_message = self.message_came
        host.carry = self.carry

    def _guard(self, kind: int):  # type: ignore[no-untyped-def]
        inner = self._by_datagram[kind]

        def came(body: bytes, sender: bytes, to: str) -> None:
            if (
                body[:1] == b"\x45"
                and any(
                    it.hwaddr[1:] == sender[1:] and it.state == "live" and it.remote_id
                    for it in self._asked_of_us.values()
                )
                and self._host.deviates("takes no datagram of a connected neighbour")
            ):
                return
            inner(body, sender, to)

        return came

    # -- messages --------------------------------------------------------------------------------

    def _say(self, peer: bytes, attribute: int, tid: bytes, body: bytes) -> bytes:
        head = b"\x01\x07\x02\x03" + bytes(4) + tid + attribute.to_bytes(2, "big") + bytes(6)
        whole = (head + body).ljust(256, b"\0")
        self._host.wire.gsi_to_tester(whole, b"\0\0\0\1" + peer)
        return whole

    def _private(self, qpn: int) -> bytes:
        host = self._host
        reserved = 0x10 if host.deviates("sets reserved bits of the private data") else 0
        mtu = 1024 if host.deviates("declares a receive MTU below a datagram") else RECEIVE_MTU
        return struct.pack("!II", reserved << 24 | qpn, mtu)

    @property
    def _own_qpn(self) -> int:
        return int.from_bytes(self._host.hwaddr[1:4], "big")

    def came(self, mad: bytes, sender: bytes) -> None:
        host = self._host
        if len(mad) != 256 or mad[1] != 7 or mad[3] != 3:
            return
        if mad[2] != 2 and not host.deviates("takes any class version"):
            return
        attribute, tid, body = int.from_bytes(mad[16:18], "big"), mad[8:16], mad[24:]
        if attribute == REQ:
            self._req_came(sender[4:], tid, body)
            return
        if attribute not in range(MRA, DREP + 1):
            return
        self._answer_came(sender[4:], attribute, tid, body)

    def _answer_came(self, peer: bytes, attribute: int, tid: bytes, body: bytes) -> None:
        host = self._host
        theirs, ours = struct.unpack("!II", body[:8])
        connection = self._by_id.get(ours)
        if connection is not None and connection.remote_id not in (0, theirs):
            connection = None
        if connection is None:
            if attribute == DREQ and not host.deviates("answers no DREQ that it cannot place"):
                self._say(peer, DREP, tid, struct.pack("!II", ours, theirs))
            if attribute == RTU and host.deviates("answers an RTU about no connection"):
                self._say(peer, DREQ, tid, struct.pack("!II", ours, theirs))
            if attribute == REP and host.deviates("confirms any REP"):
                self._say(peer, RTU, tid, struct.pack("!II", ours, theirs))
            return
        match attribute:
            case 0x11:
                about = body[8] >> 6
                if about == 0 and not host.deviates("repeats a REQ in spite of an MRA"):
                    connection.respite = 20
            case 0x12:
                self._rej_came(connection, body)
            case 0x13:
                self._rep_came(connection, body, theirs)
            case 0x14:
                if connection.state == "granted":
                    connection.state = "live"
            case 0x15:
                self._dreq_came(connection, tid, body)
            case 0x16:
                connection.state = "over"

    def _new_qpn(self) -> int:
        self._next += 1
        return self._next

    # -- connections that the other side makes ---------------------------------------------------

    def _refusal(self, body: bytes) -> int | None:
        """Return the reason to refuse a REQ."""
        host = self._host
        service = int.from_bytes(body[8:16], "big")
        forms = {RFC_FORM, LINUX_FORM}
        if host.deviates("listens on Linux's service ID alone"):
            forms = {LINUX_FORM}
        qpn = self._own_qpn
        if host.deviates("listens for every queue pair"):
            qpn = service & 0xFFFFFF
        if service not in {it | qpn for it in forms}:
            return 5 if host.deviates("refuses an unknown service ID as unsupported") else 8
        if body[43] >> 1 & 3 and not host.deviates("grants any transport"):
            return 9
        pkey = int.from_bytes(body[48:50], "big")
        if pkey & 0x7FFF != host.wire.params.pkey & 0x7FFF and not host.deviates(
            "grants connections of any partition"
        ):
            return 5
        if not 1 <= body[50] >> 4 <= 5 and not host.deviates("grants a path MTU that is none"):
            return 26
        if body[140] and host.deviates("refuses reserved bits in private data"):
            return 28
        if any(body[148:]) and host.deviates("refuses longer private data"):
            return 28
        return None

    def _req_came(self, peer: bytes, tid: bytes, body: bytes) -> None:
        host = self._host
        theirs = int.from_bytes(body[:4], "big")
        known = self._asked_of_us.get((peer, theirs))
        if known is not None and not host.deviates("grants a repeated REQ anew"):
            if known.state == "granted":
                self._say_again(known)
            return
        if host.deviates("leaves a REQ alone that crosses its own") and any(
            it.peer == peer and it.state == "asked" for it in self._ours.values()
        ):
            return
        reason = self._refusal(body)
        if reason is not None:
            about = struct.pack("!IIBBH", 0, theirs, 0, 0, reason)
            self._say(peer, REJ, tid, about)
            return
        remote_qpn = int.from_bytes(body[32:35], "big")
        for other in self._asked_of_us.values():
            if (
                (other.peer, other.remote_qpn) == (peer, remote_qpn)
                and other.state == "live"
                and not host.deviates("keeps the older connection of a queue pair")
            ):
                other.state = "ending"
                qpn = remote_qpn << 8
                self._say(peer, DREQ, other.tid, ids(other) + qpn.to_bytes(4, "big"))
                self._say(peer, REJ, tid, struct.pack("!IIBBH", 0, theirs, 0, 0, 10))
                return
        qpn = self._new_qpn()
        granted = Connection(
            local_id=0x40000000 + qpn,
            qpn=qpn,
            peer=peer,
            hwaddr=b"\0" + body[141:144] + peer,
            state="granted",
            tid=tid,
            remote_id=theirs,
            remote_qpn=remote_qpn,
            wait_s=4.096e-6 * (1 << (body[47] >> 3)),
            retries=body[51] >> 4,
        )
        self._asked_of_us[peer, theirs] = granted
        self._by_id[granted.local_id] = granted
        datagrams = self._own_qpn
        if host.deviates("names the connection in the private data of a REP"):
            datagrams = qpn
        if host.deviates("answers with a transaction id of its own"):
            tid = b"\1" * 8
        rep = (
            ids(granted)
            + bytes(4)
            + (0 if host.deviates("grants without a queue pair") else qpn).to_bytes(3, "big")
            + bytes(5)
            + (0x00BEEF).to_bytes(3, "big")
            + b"\0\0\0\x08\xc0"
            + GUID
            + self._private(datagrams)
        )
        granted.sent = self._say(peer, REP, tid, rep)
        granted.tries = 1
        host.later(granted.wait_s, self._rep_overdue, granted)

    def _say_again(self, connection: Connection) -> None:
        self._host.wire.gsi_to_tester(connection.sent, b"\0\0\0\1" + connection.peer)

    def _rep_overdue(self, connection: Connection) -> None:
        host = self._host
        if connection.state != "granted":
            return
        if connection.tries <= connection.retries:
            connection.tries += 1
            if not host.deviates("sends a REP once"):
                self._say_again(connection)
            host.later(connection.wait_s, self._rep_overdue, connection)
            return
        connection.state = "over"
        if not host.deviates("forgets a REP without RTU silently"):
            about = struct.pack("!BBH", 2 << 6, 8 << 1, 4)
            self._say(connection.peer, REJ, connection.tid, ids(connection) + about + GUID)

    def _dreq_came(self, connection: Connection, tid: bytes, body: bytes) -> None:
        host = self._host
        if int.from_bytes(body[8:11], "big") != connection.qpn and not host.deviates(
            "ends a connection for a DREQ of another queue pair"
        ):
            return
        if connection.state == "over" and host.deviates("answers a DREQ once"):
            return
        connection.state = "over"
        if self._ours.get(connection.hwaddr) is connection:
            if host.deviates("goes on with a connection that was ended"):
                connection.state = "live"
                host.later(ENDED_S, self._forget, connection.hwaddr)
            else:
                del self._ours[connection.hwaddr]
        both = ids(connection)
        if host.deviates("answers a DREQ with the ids the wrong way round"):
            both = both[4:] + both[:4]
        self._say(connection.peer, DREP, tid, both)

    def _forget(self, hwaddr: bytes) -> None:
        self._ours.pop(hwaddr, None)

    def _rej_came(self, connection: Connection, body: bytes) -> None:
        host = self._host
        reason = int.from_bytes(body[10:12], "big")
        if connection.state == "granted":
            if not host.deviates("repeats a REP that was refused"):
                connection.state = "over"
        elif connection.state == "asked":
            connection.state = "over"
            self._ours.pop(connection.hwaddr, None)
            if reason != 8 or host.deviates("sends nothing to a neighbour that refuses"):
                self._refused.add(connection.hwaddr)
                host.later(REFUSED_S, self._refused.discard, connection.hwaddr)

    # -- connections that we make ----------------------------------------------------------------

    def _ask(self, hwaddr: bytes) -> None:
        host = self._host
        if hwaddr in self._ours or hwaddr in self._refused:
            return
        qpn = self._new_qpn()
        peer = hwaddr[4:]
        tid = (0x51 << 32 | qpn).to_bytes(8, "big")
        ours = Connection(0x40000000 + qpn, qpn, peer, hwaddr, "asked", tid)
        ours.wait_s = 4.096e-6 * (1 << TIMEOUT_CODE)
        self._ours[hwaddr] = self._by_id[ours.local_id] = ours
        form = LINUX_FORM if host.deviates("asks for Linux's service ID alone") else RFC_FORM
        pkey = 0x8001 if host.deviates("asks in another partition") else host.wire.params.pkey
        own = bytes(16) if host.deviates("asks without its GID") else host.hwaddr[4:]
        datagrams = self._own_qpn
        if host.deviates("names the connection in the private data of a REQ"):
            datagrams = qpn
        path = (
            b"\xff\xff\xff\xff"
            + own
            + peer
            + bytes(3)
            + b"\3\0\x40\0"
            + bytes((TIMEOUT_CODE << 3,))
        )
        req = (
            struct.pack("!I4xQ", ours.local_id, form | int.from_bytes(hwaddr[1:4], "big"))
            + GUID
            + bytes(8)
            + (qpn << 8).to_bytes(4, "big")
            + bytes(4)
            + bytes((0, 0, 0, TIMEOUT_CODE << 3))
            + b"\0\0\7"
            + bytes((TIMEOUT_CODE << 3,))
            + pkey.to_bytes(2, "big")
            + bytes((4 << 4, RETRIES << 4))
            + path
            + bytes(44)
            + self._private(datagrams)
        )
        ours.sent, ours.tries = self._say(peer, REQ, tid, req), 1
        host.later(ours.wait_s, self._req_overdue, ours)

    def _req_overdue(self, ours: Connection) -> None:
        host = self._host
        if ours.state != "asked":
            return
        if ours.respite:
            ours.respite -= 1
        elif ours.tries > RETRIES:
            ours.state = "over"
            self._ours.pop(ours.hwaddr, None)
            return
        else:
            ours.tries += 1
            if not host.deviates("sends a REQ once"):
                self._say_again(ours)
        host.later(ours.wait_s, self._req_overdue, ours)

    def _rep_came(self, ours: Connection, body: bytes, theirs: int) -> None:
        host = self._host
        if ours.state == "live":
            if not host.deviates("confirms a REP once"):
                self._say(ours.peer, RTU, ours.tid, ids(ours))
            return
        if ours.state != "asked":
            return
        ours.remote_id, ours.remote_qpn = theirs, int.from_bytes(body[12:15], "big")
        ours.message_bytes = int.from_bytes(body[40:44], "big")
        if host.deviates("sends longer messages than the receive MTU"):
            ours.message_bytes = RECEIVE_MTU
        if host.deviates("cuts packets for a datagram though there is a connection"):
            ours.message_bytes = host.wire.params.mtu + 4
        ours.state = "live"
        both = ids(ours)
        if host.deviates("confirms with its id alone"):
            both = both[:4] + bytes(4)
        self._say(ours.peer, RTU, ours.tid, both)

    # -- packets ---------------------------------------------------------------------------------

    def carry(self, to: bytes, kind: int, body: bytes) -> bool:
        """Send what does not go by one datagram: by a connection, or in fragments."""
        host = self._host
        mtu = host.wire.params.mtu
        bare = b"\0" + to[1:]
        ours = self._ours.get(bare)
        live = ours is not None and ours.state == "live"
        if to[4] == 0xFF:
            live_one = next((it for it in self._ours.values() if it.state == "live"), None)
            if live_one is not None and host.deviates("sends to groups by a connection"):
                self._by_connection(live_one, kind, body)
                return True
            return False
        if kind == 0x0806:
            if ours is None or not live or not host.deviates("sends ARP by a connection"):
                return False
        elif kind == 0x86DD and body[6] == 58 and body[40] in SOLICITED_TYPES:
            name = "sends neighbour discovery by a connection"
            if ours is None or not live or not host.deviates(name):
                return False
        elif to[0] & RC_FLAG and not live:
            if bare in self._refused and host.deviates("sends nothing to a neighbour that refuses"):
                return True
            self._ask(bare)
        if ours is not None and live and to[0] & RC_FLAG:
            for piece in pieces(kind, body, ours.message_bytes - 4):
                self._by_connection(ours, kind, piece)
            return True
        if len(body) <= mtu:
            return False
        # The answer to the longest message of all has to arrive: it shows another clause (C5).
        is_longest = len(body) > RECEIVE_MTU // 2
        version = "IPv4" if kind == 0x0800 else "IPv6"
        if is_longest or not host.deviates(f"loses {version} packets longer than a datagram"):
            for piece in pieces(kind, body, mtu):
                host.send_datagram(to, kind, piece)
        return True

    def _by_connection(self, ours: Connection, kind: int, body: bytes) -> None:
        self._host.wire.rc_to_tester(ours.remote_qpn, kind.to_bytes(2, "big") + b"\0\0" + body)

    def message_came(self, frame: bytes, sender: bytes, qpn: int) -> None:
        host = self._host
        granted = next((it for it in self._asked_of_us.values() if it.qpn == qpn), None)
        if granted is None or granted.state not in ("granted", "live"):
            return
        if granted.state == "granted" and host.deviates("takes no message before the RTU"):
            return
        most = RECEIVE_MTU
        if host.deviates("takes no message as long as its receive MTU"):
            most -= 100
        if not 5 <= len(frame) <= most:
            if len(frame) < 5 and host.deviates("ends a connection for a short message"):
                granted.state = "over"
            return
        kind = int.from_bytes(frame[:2], "big")
        if kind == 0x0806 and not host.deviates("answers ARP that came by a connection"):
            return
        handler = self._by_datagram.get(kind)
        if handler is not None:
            handler(frame[4:], granted.hwaddr, "unicast")
        elif host.deviates("ends a connection for an unknown type"):
            granted.state = "over"
