# SPDX-License-Identifier: BSD-2-Clause
"""Steps that the tests of connected mode share: a connection that the tester or the peer makes.

Some hosts receive by the connections of others and send by their own alone, others use one for both. So a
test of what the peer takes makes a connection, and a test of what it sends has the peer make it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ipoibu.conform.headers.cm import (
    dreq,
    mad,
    rep,
    rep_private,
    req,
    req_private,
    rtu,
)
from ipoibu.conform.headers.ip import icmp_echo, ipv4
from ipoibu.conform.headers.link import arp
from ipoibu.conform.link import QueuePair
from ipoibu.conform.packet import Given, Packet, Symbol
from ipoibu.conform.symbols import (
    BROADCAST,
    COMM_ID,
    ME4,
    MY_HW,
    PATH_MTU,
    PEER4,
    PEER_HW,
    PKEY,
    RC_QPN,
    TID,
    TID2,
    bytes_of_mtu,
    gid_of,
    guid_of,
    qpn_of,
    with_flags,
)
from ipoibu.conform.test import (
    Answer,
    Connect,
    Establish,
    Expect,
    Need,
    Repeat,
    Send,
    Silence,
    Step,
    Try,
    What,
)

RC_FLAG: Final = 0x80  # of a hardware address: connections of type RC (RFC 4755 §3.1)
RFC_FORM: Final = 0x01 << 56  # of a service ID, in front of the queue pair: RFC 4755 §3.5
LINUX_FORM: Final = 0x10 << 56  # what Linux has in that place
RECEIVE_MTU: Final = 65524  # with the encapsulation header
NOTHING: Final[Mapping[str, Given]] = {}
PSN: Final = 0x0AB000
RESPONSE_TIMEOUT: Final = 17  # 0.54 s: how long the peer waits for our RTU until it repeats its REP

THEIR_ID: Final = Symbol("their_id")
THEIR_QPN: Final = Symbol("their_qpn")
THEIR_PSN: Final = Symbol("their_psn")
THEIR_TID: Final = Symbol("their_tid")
THEIR_PATH_MTU: Final = Symbol("their_path_mtu")
THEIR_SERVICE: Final = Symbol("their_service")

ON_IPV4: Final = (Need.IPV4, Need.CONNECTED, Need.GSI)
ON_IPV6: Final = (Need.IPV6, Need.CONNECTED, Need.GSI)

PING: Final = ipv4(source=ME4, destination=PEER4) / icmp_echo(id=7, sequence=1)
PONG: Final = ipv4(source=PEER4, destination=ME4) / icmp_echo(type=0, id=7, sequence=1)


def tell(message: What) -> Send:
    """Send a management datagram."""
    return Send(message, by=QueuePair.GSI)


def told(
    message: What,
    within_s: float = 2.0,
    count: int = 1,
    keep: dict[str, tuple[str, str]] | None = None,
) -> Expect:
    """Expect a management datagram."""
    return Expect(message, within_s, count, by=QueuePair.GSI, keep=keep or {})


def untold(message: What, for_s: float | None = None) -> Silence:
    return Silence(message, for_s, by=QueuePair.GSI)


END: Final = mad(tid=TID2) / dreq(local_id=COMM_ID, remote_id=THEIR_ID, remote_qpn=THEIR_QPN)
ENDED: Final = tell(END)
"""The end of either kind of connection, without a look at the answer."""

# -- the tester's connection ---------------------------------------------------------------------


def request(
    service: Given = LINUX_FORM,
    private: Mapping[str, Given] = NOTHING,
    head: Mapping[str, Given] = NOTHING,
    **values: Given,
) -> Packet:
    """A REQ of the tester; `service` is a form, or a whole service ID that is no number.

    `values` are fields of the REQ, `private` of its private data and `head` of the MAD header, that are
    not as usual.
    """
    if isinstance(service, int):
        service = qpn_of(PEER_HW, service)
    usual: dict[str, Given] = {
        "local_id": COMM_ID,
        "service_id": service,
        "ca_guid": guid_of(MY_HW),
        "qpn": RC_QPN,
        "psn": PSN,
        "pkey": PKEY,
        "path_mtu": PATH_MTU,
        "local_response_timeout": RESPONSE_TIMEOUT,
        "primary_local_gid": gid_of(MY_HW),
        "primary_remote_gid": gid_of(PEER_HW),
    }
    data: dict[str, Given] = {"qpn": qpn_of(MY_HW), "receive_mtu": RECEIVE_MTU}
    first: dict[str, Given] = {"tid": TID}
    return (
        mad(**(first | dict(head)))
        / req(**(usual | values))
        / req_private(**(data | dict(private)))
    )


GRANT: Final = mad() / rep(remote_id=COMM_ID)
OF_GRANT: Final = {
    "their_id": ("cm_rep", "local_id"),
    "their_qpn": ("cm_rep", "qpn"),
    "their_psn": ("cm_rep", "psn"),
    "their_mtu": ("ipoib_private", "receive_mtu"),
}
GRANTED: Final = told(GRANT, keep=OF_GRANT)
RTU_OF_OURS: Final = tell(mad(tid=TID) / rtu(local_id=COMM_ID, remote_id=THEIR_ID))
READY: Final = Establish(THEIR_QPN, bytes_of_mtu(PATH_MTU), receive_psn=PSN, send_psn=THEIR_PSN)


def asked(
    granted: Expect = GRANTED, private: Mapping[str, Given] = NOTHING, **values: Given
) -> tuple[Step, ...]:
    """Send a REQ by the form of the service ID that the peer takes, and expect its REP."""
    return (
        Connect(),
        Try(
            (tell(request(LINUX_FORM, private, NOTHING, **values)), granted),
            (tell(request(RFC_FORM, private, NOTHING, **values)), granted),
        ),
    )


CONNECTED: Final[tuple[Step, ...]] = (*asked(), READY, RTU_OF_OURS)

# -- the peer's connection -----------------------------------------------------------------------

RESOLVED: Final[tuple[Step, ...]] = (
    Answer(True, flags=RC_FLAG),
    Send(
        arp(sender_hwaddr=with_flags(MY_HW, RC_FLAG), sender_ip=ME4, target_ip=PEER4), to=BROADCAST
    ),
    Expect(arp(operation=2, target_ip=ME4)),
)
"""The peer knows that our address `ME4` takes connections."""
OFFER: Final = mad() / req()
OF_OFFER: Final = {
    "their_tid": ("mad", "tid"),
    "their_id": ("cm_req", "local_id"),
    "their_qpn": ("cm_req", "qpn"),
    "their_psn": ("cm_req", "psn"),
    "their_path_mtu": ("cm_req", "path_mtu"),
    "their_service": ("cm_req", "service_id"),
}


def offered(offer: What = OFFER, tries: int = 12) -> tuple[Step, ...]:
    """Have the peer ask for a connection, for an answer to our ping."""
    return (
        *RESOLVED,
        Repeat((Send(PING), told(offer, within_s=1.5, keep=OF_OFFER)), tries),
    )


def grant(receive_mtu: int = RECEIVE_MTU) -> tuple[Step, ...]:
    """Answer the peer's REQ by a REP."""
    return (
        Connect(),
        Establish(THEIR_QPN, bytes_of_mtu(THEIR_PATH_MTU), receive_psn=PSN, send_psn=THEIR_PSN),
        tell(our_rep(receive_mtu)),
    )


def our_rep(receive_mtu: int = RECEIVE_MTU) -> Packet:
    return (
        mad(tid=THEIR_TID)
        / rep(local_id=COMM_ID, remote_id=THEIR_ID, qpn=RC_QPN, psn=PSN, ca_guid=guid_of(MY_HW))
        / rep_private(qpn=qpn_of(MY_HW), receive_mtu=receive_mtu)
    )


ANSWERED_BY: Final = (QueuePair.MINE, QueuePair.RC)
"""A host with one connection for both directions answers by the tester's."""
CARRIED: Final = Repeat((Send(PING), Expect(PONG, within_s=1.0, by=QueuePair.RC)))
"""The peer's connection carries its answers."""
