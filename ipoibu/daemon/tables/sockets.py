# SPDX-License-Identifier: BSD-2-Clause
"""What hosts of the link fill in a program with sockets on an endpoint (ipoibu/aio)."""

from __future__ import annotations

from typing import Final

from ipoibu.base import limits
from ipoibu.daemon.tables.table import Filler, Table

SOCKETS: Final = (
    Table(
        "flows whose sockets are known",
        ("aio/network.py:Network._flows",),
        (Filler.LINK,),
        limits.AIO_FLOWS_MAX,
        800,
        "all go, and come back with their next datagrams",
        "flow_table_full",
    ),
    Table(
        "packets of which fragments are missing",
        (
            "aio/reassembly.py:Reassembly._packets",
            "aio/reassembly.py:_Parts.starts",
            "aio/reassembly.py:_Parts.payloads",
        ),
        (Filler.LINK,),
        limits.REASSEMBLY_MAX,
        limits.REASSEMBLY_BYTES // limits.REASSEMBLY_MAX + 1500,
        "the oldest goes",
        "fragment_table_full",
    ),
    Table(
        "path MTUs",
        ("aio/path_mtu.py:PathMtus._known",),
        (Filler.LINK,),
        limits.PATH_MTU_MAX,
        600,
        "the oldest goes",
        uncounted="the next long packet learns it again",
    ),
    Table(
        "destinations of a socket",
        (
            "aio/datagram_socket.py:Socket._ways",
            "aio/datagram_socket.py:Socket._sent_to",
        ),
        (Filler.LINK, Filler.OWNER),
        limits.AIO_DESTINATIONS_MAX,
        1500,
        "all go, and come back with their next datagrams",
        uncounted="nothing is lost",
    ),
    Table(
        "datagrams that a blocking socket has not read",
        ("aio/thread_receiver.py:Mailbox._datagrams",),
        (Filler.LINK,),
        limits.AIO_RECEIVE_BYTES,
        2,
        "the new one goes",
        "receive_full",
        unit="bytes of each socket",
    ),
    Table(
        "datagrams of an endpoint to itself",
        ("aio/network.py:Network._local",),
        (Filler.OWNER,),
        limits.AIO_LOCAL_MAX,
        1000,
        "the new one goes",
        "local_full",
    ),
)
