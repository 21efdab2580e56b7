# SPDX-License-Identifier: BSD-2-Clause
"""What peers and the subnet administrator fill: connections, the mesh, management datagrams."""

from __future__ import annotations

from typing import Final

from ipoibu.base import limits
from ipoibu.daemon.tables.table import Filler, Table

CONNECTIONS: Final = (
    Table(
        "connections of one interface",
        (
            "proto/rc/connection.py:RcConnectionTable._all",
            "proto/rc/connection.py:RcConnectionTable._used",
            "proto/rc/connection.py:RcConnectionTable._ports",
            "proto/rc/connection.py:_Port.handles",
        ),
        (Filler.MEMBER,),
        limits.CONNECTIONS_MAX,
        2600,
        "the one unused for longest goes, if it rests; else the new one is refused",
        "connection_full",
        steps=limits.CONNECTIONS_PER_PORT_MAX,
    ),
    Table(
        "connections of one port",
        ("proto/rc/connection.py:_Port.suspected",),
        (Filler.MEMBER,),
        limits.CONNECTIONS_PER_PORT_MAX,
        2600,
        "the new one is refused",
        "connection_port_full",
        steps=limits.CONNECTIONS_PER_PORT_MAX,
    ),
    Table(
        "peers whose failures count",
        ("proto/rc/policy.py:RcPolicy._peers", "proto/rc/policy.py:RcPolicy._resting"),
        (Filler.MEMBER,),
        limits.CONNECTION_PEERS_MAX,
        2400,
        "one that rests goes; else the new one is refused",
        "connection_peer_evicted",
    ),
    Table(
        "connections of the communication manager",
        (
            "proto/cm/cm.py:Cm._by_id",
            "proto/cm/cm.py:Cm._by_handle",
            "proto/cm/cm.py:Cm._by_request",
            "proto/cm/cm.py:Cm._by_qpn",
            "proto/cm/cm.py:Cm._time_wait",
        ),
        (Filler.MEMBER,),
        limits.CM_CONNECTIONS_MAX,
        2600,
        "the oldest that has ended goes; else the new one is refused",
        "cm_full",
    ),
    Table(
        "half-open requests of peers",
        ("proto/cm/cm.py:Cm._half_open",),
        (Filler.MEMBER,),
        limits.CM_HALF_OPEN_MAX,
        2600,
        "the new one is refused",
        "cm_half_open_full",
    ),
)

MESH: Final = (
    Table(
        "connections of a link of peers",
        (
            "proto/mesh/mesh.py:Mesh._connections",
            "proto/mesh/mesh.py:Mesh._peers",
            "proto/mesh/mesh.py:Mesh._news",
            "fabric/unicast/rendezvous.py:Rendezvous._wires",
            "fabric/unicast/rendezvous.py:Rendezvous._by_fd",
            "fabric/mesh/mesh_worker.py:MeshWorker._early",
        ),
        (Filler.CALLER, Filler.PEER),
        limits.UNICAST_PEERS_MAX,
        2400,
        "the new one is refused",
        "mesh_full",
        steps=limits.UNICAST_CONTACTS_MAX,
    ),
    Table(
        "places where peers may listen",
        ("proto/mesh/contacts.py:Contacts._all", "proto/mesh/contacts.py:Contacts._strangers"),
        (Filler.CALLER, Filler.PEER),
        limits.UNICAST_CONTACTS_MAX,
        2000,
        "the oldest place where nobody has answered goes",
        "mesh_contacts_full",
        True,
    ),
    Table(
        "groups of one peer, to show",
        ("proto/mesh/mesh.py:_MeshConnection.groups",),
        (Filler.PEER,),
        limits.MESH_GROUPS_SHOWN,
        250,
        "further ones are not shown",
        uncounted="`ipoibu peers` shows as many; all of them get their packets",
    ),
    Table(
        "places as they were read",
        ("wire/mesh.py:_locator",),
        (Filler.PEER,),
        limits.MESH_LOCATORS_KEPT,
        700,
        "the one used longest ago goes",
        uncounted="a cache: what is gone is read again",
    ),
    Table(
        "TCP connections of hosts that have not greeted",
        (
            "fabric/unicast/reception.py:Reception._guests",
            "fabric/unicast/reception.py:Reception._by_fd",
        ),
        (Filler.CALLER,),
        limits.UNICAST_GREETING_MAX,
        6000,
        "the oldest goes",
        "mesh_no_answer",
    ),
    Table(
        "bytes for a peer that does not read",
        ("fabric/unicast/stream.py:Stream._unsent",),
        (Filler.PEER,),
        limits.UNICAST_UNSENT_MAX,
        2,
        "the connection ends",
        unit="bytes of each peer",
        uncounted="one connection ends, and the log says so",
    ),
)

MANAGEMENT: Final = (
    Table(
        "requests to the subnet administrator",
        (
            "proto/sa/requests.py:SaRequests._queue",
            "proto/sa/requests.py:SaRequests._requests",
            "proto/sa/requests.py:SaRequests._by_tid",
            "proto/sa/transaction.py:Transaction.tids",
            "fabric/sa/transport.py:SaTransport._waiting",
        ),
        (Filler.LINK, Filler.LOCAL),
        limits.SA_QUEUE_MAX,
        1600,
        "the new request is refused",
        "sa_queue_full",
    ),
    Table(
        "past requests to the subnet administrator",
        ("proto/sa/requests.py:SaRequests._recent",),
        (Filler.LINK, Filler.LOCAL),
        limits.SA_RECENT_MAX,
        300,
        "the oldest goes",
        uncounted="a list to show; the requests are counted",
    ),
    Table(
        "reports of the subnet administrator",
        ("proto/sa/requests.py:SaRequests._reports",),
        (Filler.SA,),
        limits.SA_RECENT_MAX,
        800,
        "the oldest goes",
        uncounted="a list of the latest; each was carried out",
    ),
    Table(
        "bytes of a table of the subnet administrator",
        ("proto/sa/rmpp.py:Transfer._parts", "proto/sa/rmpp.py:Transfer._ahead"),
        (Filler.SA,),
        limits.SA_TABLE_BYTES_MAX,
        1,
        "the transfer ends",
        "sa_failed",
        unit="bytes",
    ),
    Table(
        "events of the subnet administrator that nobody has read",
        ("fabric/sa/transport.py:SaTransport._events",),
        (Filler.SA,),
        limits.SA_EVENTS_MAX,
        400,
        "the oldest goes",
        "sa_event_lost",
    ),
)
