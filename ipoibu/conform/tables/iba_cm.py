# SPDX-License-Identifier: BSD-2-Clause
"""Communication management: InfiniBand volume 1, chapter 12, as connected mode uses it."""

from __future__ import annotations

from typing import Final

from ipoibu.conform.connection import (
    ANSWERED_BY,
    CONNECTED,
    END,
    ENDED,
    GRANT,
    LINUX_FORM,
    OF_GRANT,
    ON_IPV4,
    PING,
    PONG,
    PSN,
    READY,
    RTU_OF_OURS,
    THEIR_ID,
    THEIR_QPN,
    THEIR_TID,
    asked,
    grant,
    offered,
    our_rep,
    request,
    tell,
    told,
    untold,
)
from ipoibu.conform.headers.cm import (
    ABOUT_REP,
    ABOUT_REQ,
    CONSUMER,
    INVALID_SERVICE_ID,
    TIMED_OUT,
    drep,
    dreq,
    mad,
    mra,
    rej,
    rep,
    rep_private,
    req,
    rtu,
)
from ipoibu.conform.link import QueuePair
from ipoibu.conform.packet import Rule, differs_from, one_of
from ipoibu.conform.symbols import (
    COMM_ID,
    COMM_ID2,
    MY_HW,
    PEER_HW,
    PKEY,
    TID,
    TID2,
    gid_of,
    low_of,
)
from ipoibu.conform.test import (
    MUST,
    SHOULD,
    Connect,
    Expect,
    Repeat,
    Send,
    Test,
)

NOT_SERVED: Final = bytes.fromhex("123456789abcdef0")
OTHER_PARTITION: Final = 0x8123
A_QPN: Final = Rule("a queue pair", lambda value: isinstance(value, int) and value > 1)
AN_ID: Final = Rule("no zero", lambda value: value != 0)
REFUSED: Final = mad() / rej(remote_id=COMM_ID, about=ABOUT_REQ)
BY_CONNECTION: Final = (
    Repeat(
        (Send(PING, by=QueuePair.RC), Expect(PONG, within_s=1.0, by=ANSWERED_BY)),
        tries=3,
    ),
)
ANSWERS: Final = one_of(0x10, 0x12, 0x13, 0x14, 0x15, 0x16)
REPETITION_S: Final = 12.0  # Linux repeats a REQ after more than 4.3 s


def refusal_of(reason: int) -> Send:
    """A REJ for the peer's REP."""
    return tell(
        mad(tid=TID) / rej(local_id=COMM_ID, remote_id=THEIR_ID, about=ABOUT_REP, reason=reason)
    )


TESTS: Final = (
    Test(
        "IBCM-1",
        "X1",
        MUST,
        "InfiniBand volume 1, §12.6.8",
        "a REP has the transaction id of the REQ, and names a queue pair and a communication id",
        asked(
            told(
                mad(base_version=1, status=0, tid=low_of(TID))
                / rep(remote_id=COMM_ID, local_id=AN_ID, qpn=A_QPN),
                keep=OF_GRANT,
            )
        ),
        READY,
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "IBCM-2",
        "X1",
        MUST,
        "InfiniBand volume 1, §12.6.7.2",
        "a REQ for a service that nobody offers is refused with the reason 8",
        Connect(),
        tell(request(NOT_SERVED)),
        told(
            mad(tid=low_of(TID))
            / rej(remote_id=COMM_ID, about=ABOUT_REQ, reason=INVALID_SERVICE_ID)
        ),
        needs=ON_IPV4,
    ),
    Test(
        "IBCM-3",
        "X1",
        MUST,
        "InfiniBand volume 1, §12.6.5",
        "a REQ for an unreliable connection, which the host does not announce, is refused",
        Connect(),
        tell(request(transport=1)),
        told(REFUSED),
        needs=ON_IPV4,
    ),
    Test(
        "IBCM-4",
        "X1",
        MUST,
        "InfiniBand volume 1, §12.6.5",
        "a REQ of a partition that the host is not in is refused",
        Connect(),
        tell(request(pkey=OTHER_PARTITION)),
        told(REFUSED),
        needs=ON_IPV4,
    ),
    Test(
        "IBCM-5",
        "X1",
        MUST,
        "InfiniBand volume 1, §12.6.5",
        "a REQ whose path MTU is none of InfiniBand's is refused",
        Connect(),
        tell(request(path_mtu=7)),
        told(REFUSED),
        needs=ON_IPV4,
    ),
    Test(
        "IBCM-6",
        "IBA-12.6.1",
        MUST,
        "InfiniBand volume 1, §12.6",
        "a message of another class version makes no connection",
        Connect(),
        tell(request(head={"class_version": 1})),
        untold(GRANT),
        needs=ON_IPV4,
    ),
    Test(
        "IBCM-7",
        "IBA-12.9.8.3",
        MUST,
        "InfiniBand volume 1, §12.9.8.3",
        "a repeated REQ makes no second connection",
        asked(),
        tell(request(LINUX_FORM)),
        untold(mad() / rep(remote_id=COMM_ID, local_id=differs_from(THEIR_ID)), for_s=0.3),
        READY,
        RTU_OF_OURS,
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "IBCM-8",
        "IBA-12.9.7",
        MUST,
        "InfiniBand volume 1, §12.9.7",
        "a REP is repeated until an RTU comes, and stays the same",
        asked(),
        told(mad() / rep(remote_id=COMM_ID, local_id=THEIR_ID), within_s=4.0),
        READY,
        RTU_OF_OURS,
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "IBCM-9",
        "IBA-12.9.7a",
        MUST,
        "InfiniBand volume 1, §12.9.7",
        "a REP that is refused is not repeated",
        asked(),
        refusal_of(CONSUMER),
        untold(GRANT, for_s=1.5),
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "IBCM-10",
        "X4",
        MUST,
        "InfiniBand volume 1, §12.9.7",
        "a REP without an RTU ends with a REJ for the reason 4",
        asked(local_response_timeout=15, cm_retries=1),
        told(mad() / rej(remote_id=COMM_ID, reason=TIMED_OUT), within_s=4.0),
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "IBCM-11",
        "IBA-12.9.8.6",
        SHOULD,
        "InfiniBand volume 1, §12.9.8",
        "a message by the connection counts, though the RTU has not come",
        asked(),
        READY,
        BY_CONNECTION,
        RTU_OF_OURS,
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "IBCM-12",
        "X1",
        MUST,
        "InfiniBand volume 1, §12.6.10",
        "a DREQ is answered by a DREP with the ids of both sides",
        CONNECTED,
        ENDED,
        told(mad(tid=low_of(TID2)) / drep(local_id=THEIR_ID, remote_id=COMM_ID)),
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "IBCM-13",
        "IBA-12.9.8.7",
        MUST,
        "InfiniBand volume 1, §12.9.8",
        "a repeated DREQ is answered again",
        CONNECTED,
        ENDED,
        told(mad() / drep()),
        tell(END),
        told(mad() / drep()),
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "IBCM-14",
        "IBA-12.9.8.7a",
        MUST,
        "InfiniBand volume 1, §12.9.8",
        "a DREQ for another queue pair does not end the connection",
        CONNECTED,
        tell(mad(tid=TID2) / dreq(local_id=COMM_ID, remote_id=THEIR_ID, remote_qpn=0x654321)),
        untold(mad() / drep(remote_id=COMM_ID)),
        BY_CONNECTION,
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "IBCM-15",
        "IBA-12.9.8.7b",
        SHOULD,
        "InfiniBand volume 1, §12.9.8",
        "a DREQ for a connection that the host does not have is answered, so that the other side can end",
        tell(mad(tid=TID2) / dreq(local_id=COMM_ID, remote_id=COMM_ID2, remote_qpn=0x654321)),
        told(mad() / drep(remote_id=COMM_ID)),
        needs=ON_IPV4,
    ),
    Test(
        "IBCM-16",
        "IBA-12.9.8.5",
        MUST,
        "InfiniBand volume 1, §12.9.8",
        "a REP that answers no REQ of the host gets no RTU",
        tell(
            mad(tid=TID)
            / rep(local_id=COMM_ID, remote_id=COMM_ID2, qpn=0x654321, psn=PSN)
            / rep_private(qpn=2, receive_mtu=2048)
        ),
        untold(mad() / rtu(remote_id=COMM_ID)),
        needs=ON_IPV4,
    ),
    Test(
        "IBCM-17",
        "IBA-12.9.8.8",
        MUST,
        "InfiniBand volume 1, §12.9.8",
        "RTU, MRA, REJ and DREP about no connection of the host get no answer",
        tell(mad(tid=TID) / rtu(local_id=COMM_ID, remote_id=COMM_ID2)),
        untold(mad(attribute=ANSWERS, tid=low_of(TID))),
        tell(mad(tid=TID) / mra(local_id=COMM_ID, remote_id=COMM_ID2, service_timeout=20)),
        untold(mad(attribute=ANSWERS, tid=low_of(TID))),
        tell(mad(tid=TID) / rej(local_id=COMM_ID, remote_id=COMM_ID2, reason=CONSUMER)),
        untold(mad(attribute=ANSWERS, tid=low_of(TID))),
        tell(mad(tid=TID) / drep(local_id=COMM_ID, remote_id=COMM_ID2)),
        untold(mad(attribute=ANSWERS, tid=low_of(TID))),
        needs=ON_IPV4,
    ),
    Test(
        "IBCM-18",
        "X3",
        MUST,
        "InfiniBand volume 1, §12.9.8.3.1",
        "a REQ from a queue pair that has a connection ends the older one by a DREQ",
        CONNECTED,
        BY_CONNECTION,
        tell(request(LINUX_FORM, local_id=COMM_ID2)),
        told(
            mad() / dreq(local_id=THEIR_ID, remote_id=COMM_ID), keep={"their_tid": ("mad", "tid")}
        ),
        tell(mad(tid=THEIR_TID) / drep(local_id=COMM_ID, remote_id=THEIR_ID)),
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "IBCM-19",
        "X1",
        MUST,
        "InfiniBand volume 1, §12.6.5",
        "the host's REQ names both ports and the partition, and asks for a reliable connection",
        offered(
            mad(base_version=1, class_version=2, method=3)
            / req(
                local_id=AN_ID,
                qpn=A_QPN,
                transport=0,
                pkey=PKEY,
                primary_local_gid=gid_of(PEER_HW),
                primary_remote_gid=gid_of(MY_HW),
            )
        ),
        grant(),
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "IBCM-20",
        "X1",
        MUST,
        "InfiniBand volume 1, §12.6.9",
        "the host answers a REP by an RTU with the ids of both sides",
        offered(),
        grant(),
        told(mad() / rtu(local_id=THEIR_ID, remote_id=COMM_ID)),
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "IBCM-21",
        "IBA-12.9.8.6a",
        MUST,
        "InfiniBand volume 1, §12.9.8",
        "the host answers a repeated REP by an RTU again, for the first may be lost",
        offered(),
        grant(),
        told(mad() / rtu(local_id=THEIR_ID)),
        tell(our_rep()),
        told(mad() / rtu(local_id=THEIR_ID)),
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "IBCM-22",
        "X2",
        MUST,
        "InfiniBand volume 1, §12.9.7",
        "the host repeats a REQ that nobody answers, and it stays the same",
        offered(),
        told(mad(tid=THEIR_TID) / req(local_id=THEIR_ID, qpn=THEIR_QPN), within_s=REPETITION_S),
        grant(),
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "IBCM-23",
        "IBA-12.9.8.4",
        MUST,
        "InfiniBand volume 1, §12.9.8",
        "the host does not repeat a REQ for as long as an MRA asks for time",
        offered(),
        tell(
            mad(tid=THEIR_TID)
            / mra(local_id=COMM_ID, remote_id=THEIR_ID, about=ABOUT_REQ, service_timeout=21)
        ),
        untold(mad() / req(local_id=THEIR_ID), for_s=6.5),
        grant(),
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
)
