# SPDX-License-Identifier: BSD-2-Clause
"""The register of every table, queue and list that somebody outside of the process can fill.

SECURITY.md shows it (docs/make/list_tables.py). tests/unit/tables fills each row to twice its cap;
it also finds the containers of the code that are neither here nor in its list of those that nobody outside
can fill.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from ipoibu.base import c_limits, limits


class Filler(enum.Enum):
    """A party that makes entries; SECURITY.md describes the attackers."""

    LINK = "any host of the link"
    MEMBER = "a member of the partition"
    CALLER = "whoever reaches the TCP port"
    PEER = "a peer of the mesh"
    SERVER = "a DHCP server"
    SA = "the subnet administrator"
    GUEST = "a guest behind the TAP"
    BEHIND = "a host behind another interface"
    LOCAL = "a local program"
    OWNER = "a process of the owner"


@dataclass(frozen=True, slots=True)
class Table:
    """One row.

    `holders` are the places of the entries: `FILE:CLASS.ATTRIBUTE` in Python, `FILE:WHAT` in C. Indices of
    the same entries stand beside them.
    `cap` counts `unit`.
    `entry_bytes` bounds the memory of an entry, with its share of the indices.
    `full` says what happens beyond the cap.
    `counter` counts that; or `uncounted` says why nobody has to know how often.
    `is_logged`: a line of the log says so, at a limited rate.
    `steps`: an entry costs so many steps at most, where it is not the same small number for each.
    """

    name: str
    holders: tuple[str, ...]
    fillers: tuple[Filler, ...]
    cap: int
    entry_bytes: int
    full: str
    counter: str = ""
    is_logged: bool = False
    unit: str = "entries"
    steps: int = 1
    uncounted: str = ""

    @property
    def max_bytes(self) -> int:
        return self.cap if self.unit == "bytes" else self.cap * self.entry_bytes


_LINK, _MEMBER, _CALLER, _PEER = Filler.LINK, Filler.MEMBER, Filler.CALLER, Filler.PEER
_SERVER, _SA, _GUEST, _BEHIND, _LOCAL, _OWNER = (
    Filler.SERVER,
    Filler.SA,
    Filler.GUEST,
    Filler.BEHIND,
    Filler.LOCAL,
    Filler.OWNER,
)

_ENGINE: Final = (
    Table(
        "neighbours",
        (
            "proto/neigh/neighbours.py:Neighbours._entries",
            "proto/neigh/neighbours.py:Neighbours._strangers",
            "proto/neigh/neighbours.py:Neighbours._known",
            "proto/neigh/neighbours.py:Neighbours._owners",
            "proto/neigh/neighbours.py:Neighbours._unsettled",
            "proto/machine/timers.py:Timers._due",
            "proto/machine/timers.py:Timers._filed",
            "proto/machine/timers.py:Timers._heap",
        ),
        (_LINK, _LOCAL),
        limits.NEIGH_MAX,
        2800,
        "strangers go first, then those confirmed longest ago",
        "neigh_evicted",
        True,
    ),
    Table(
        "packets that wait for neighbours",
        (
            "proto/neigh/neighbours.py:Neighbours._pending",
            "proto/machine/waiting.py:Waiting._queues",
            "proto/machine/waiting.py:_Queue.packets",
        ),
        (_LOCAL,),
        limits.NEIGH_PENDING_TOTAL_BYTES,
        1,
        "the packets that wait longest go; the new one, if its neighbour has NEIGH_PENDING_BYTES",
        "neigh_pending_total_full",
        unit="bytes",
    ),
    Table(
        "packets to dead next hops that wait for other routes",
        ("endpoint/datapath/rerouting.py:Rerouting._refusals",),
        (_LOCAL,),
        limits.REROUTED_REFUSALS_MAX,
        limits.IP_PACKET_MAX_BYTES + 2000,
        "the packet is refused at once",
        unit="packets",
        uncounted="the sender hears of each by an ICMP error",
    ),
    Table(
        "advertising routers",
        ("proto/neigh/routers.py:Routers._routers",),
        (_LINK,),
        limits.ROUTERS_MAX,
        2048 + limits.ROUTER_ADVERTISEMENT_MAX_BYTES,
        "one that does not answer goes; else the new one is ignored",
        "router_evicted",
        True,
        steps=2 * limits.ROUTERS_MAX,
    ),
    Table(
        "prefixes and routes of router advertisements",
        ("proto/neigh/advertised_routes.py:Advertised._entries",),
        (_LINK,),
        limits.ADVERTISED_MAX,
        1000,
        "one that was heard once goes, and the local stack hears of it; else the new one is ignored",
        "prefix_evicted",
        True,
        steps=limits.ADVERTISED_MAX,
    ),
    Table(
        "own addresses",
        ("proto/neigh/dad.py:Addresses._addresses", "proto/neigh/dad.py:Addresses._broadcasts"),
        (_LINK, _SERVER, _LOCAL),
        limits.ADDRESSES_MAX,
        1800,
        "the new address is not added",
        "address_table_full",
        steps=limits.ADDRESSES_MAX,
    ),
    Table(
        "groups that we receive",
        ("proto/groups/groups.py:Groups._groups", "proto/groups/groups.py:_Group.users"),
        (_LOCAL, _GUEST),
        limits.GROUPS_MAX,
        1800,
        "the new group is not joined",
        "group_table_full",
        True,
    ),
    Table(
        "groups that we send to",
        ("proto/groups/groups.py:Groups._senders",),
        (_LOCAL, _GUEST),
        limits.GROUPS_MAX,
        1400,
        "the group used longest ago goes",
        "group_sender_evicted",
    ),
    Table(
        "groups of local programs",
        (
            "proto/groups/listeners.py:Listeners._interest",
            "proto/groups/listeners.py:Listeners._listed",
        ),
        (_LOCAL,),
        limits.GROUPS_MAX,
        2000 + 200 * limits.MEMBERSHIP_SOURCES_MAX,
        "the new group is not joined",
        "group_table_full",
        True,
    ),
    Table(
        "drops noted, by peer and reason",
        ("proto/machine/drops.py:Drops._noted",),
        (_LINK,),
        limits.DROPS_NOTED_MAX,
        400,
        "the one noted longest ago goes",
        uncounted="the drops themselves are counted; this is the list of whom they came from",
    ),
    Table(
        "requests of local DHCP clients",
        ("proto/dhcp/other_clients.py:DhcpClients._asked",),
        (_LOCAL,),
        limits.DHCP_REQUESTS_MAX,
        1000,
        "the oldest goes",
        "dhcp_forgotten",
    ),
    Table(
        "answers for hosts behind us that wait for their delay",
        (
            "proto/neigh/proxy_networks.py:ProxyNetworks._waiting",
            "proto/neigh/proxy_networks.py:ProxyNetworks._strangers",
        ),
        (_LINK,),
        limits.PROXY_ANSWERS_MAX,
        1500,
        "the new request gets no answer; strangers have PROXY_STRANGERS_MAX of the places",
        "proxy_answers_full",
    ),
    Table(
        "paths of the subnet administrator",
        (
            "proto/sa/path.py:PathTable._entries",
            "proto/sa/path.py:PathTable._idle",
            "proto/sa/path.py:PathTable._next_hops",
            "proto/sa/path.py:PathTable._members",
            "proto/sa/path.py:_Entry.published",
        ),
        (_LINK, _LOCAL),
        limits.SA_PATHS_MAX,
        3600,
        "a path without neighbours goes, the one used longest ago first",
        "way_evicted",
    ),
    Table(
        "packets that wait for connections",
        ("endpoint/datapath/rc_shell.py:RcShell._waiting",),
        (_LOCAL, _GUEST),
        limits.NEIGH_PENDING_TOTAL_BYTES,
        1,
        "the packets that wait longest go; the new one, if its host has NEIGH_PENDING_BYTES",
        "connection_wait_lost",
        unit="bytes",
    ),
    Table(
        "packets that wait for a path",
        ("proto/sa/path.py:PathTable._waiting",),
        (_LOCAL, _GUEST),
        limits.SA_PATH_PENDING_TOTAL_BYTES,
        1,
        "the packets that wait longest go; the new one, if its path has SA_PATH_PENDING_BYTES",
        "path_pending_full",
        unit="bytes",
    ),
)

_ETHERNET: Final = (
    Table(
        "MACs of hosts of the link",
        (
            "proto/ethernet/macs.py:Macs._macs",
            "proto/ethernet/macs.py:Macs._strangers",
            "proto/ethernet/macs.py:Macs._used",
        ),
        (_LINK,),
        limits.ETHERNET_NEIGHBOURS_MAX,
        900,
        "of those to which no guest sends, the longest silent goes",
        "ethernet_neighbour_evicted",
    ),
    Table(
        "addresses of guests",
        (
            "proto/ethernet/guests.py:Guests._bindings",
            "proto/ethernet/guests.py:Guests._loose",
            "proto/ethernet/guests.py:Guests._firm",
            "proto/ethernet/guests.py:Guests._of_mac",
            "proto/ethernet/guests.py:Guests._to_announce",
            "proto/ethernet/queue_pairs.py:QueuePairs._qpns",
            "proto/ethernet/queue_pairs.py:QueuePairs._macs",
        ),
        (_GUEST,),
        limits.ETHERNET_GUESTS_MAX,
        1600,
        "addresses that no guest has claimed go first, then those silent for longest",
        "ethernet_guest_evicted",
    ),
    Table(
        "addresses of one guest",
        (
            "proto/ethernet/guests.py:_OfGuest.loose",
            "proto/ethernet/guests.py:_OfGuest.firm",
            "proto/ethernet/guests.py:_OfGuest.others",
        ),
        (_GUEST,),
        limits.ETHERNET_GUEST_ADDRESSES_MAX,
        1600,
        "as above",
        "ethernet_guest_evicted",
    ),
    Table(
        "groups of guests",
        (
            "proto/ethernet/listeners.py:GuestListeners._interest",
            "proto/ethernet/listeners.py:GuestListeners._guests",
        ),
        (_GUEST,),
        limits.ETHERNET_MEMBERSHIPS_MAX,
        2000 + 200 * limits.MEMBERSHIP_SOURCES_MAX,
        "the new group is not joined",
        "ethernet_memberships_full",
        True,
    ),
    Table(
        "addresses that we look for among guests",
        ("proto/ethernet/host.py:EthernetHost._searches",),
        (_LINK,),
        limits.ETHERNET_WAITING_MAX,
        2000,
        "the new packet goes; each question lasts 3 s",
        "ethernet_unknown_guest",
    ),
    Table(
        "packets that wait for guests",
        ("proto/ethernet/host.py:EthernetHost._waiting",),
        (_LINK,),
        limits.ETHERNET_WAITING_TOTAL_BYTES,
        1,
        "the packets that wait longest go; the new one, if its guest has ETHERNET_WAITING_BYTES",
        "ethernet_unknown_guest",
        unit="bytes",
    ),
    Table(
        "requests of guests' DHCP clients",
        (
            "proto/ethernet/dhcp.py:GuestDhcp._asked",
            "proto/ethernet/dhcp.py:GuestDhcp._latest",
        ),
        (_GUEST,),
        limits.ETHERNET_DHCP_MAX,
        1200,
        "the oldest goes",
        "dhcp_forgotten",
    ),
    Table(
        "addresses that a guest may not use",
        ("proto/ethernet/refusals.py:Refusals._refused",),
        (_GUEST,),
        limits.ETHERNET_REFUSALS_MAX,
        700,
        "the one used longest ago goes",
        uncounted="it is refused again at the next use, and that is counted",
    ),
)

_CONNECTIONS: Final = (
    Table(
        "connections of one interface",
        (
            "proto/rc/connection.py:RcConnectionTable._all",
            "proto/rc/connection.py:RcConnectionTable._used",
            "proto/rc/connection.py:RcConnectionTable._ports",
            "proto/rc/connection.py:_Port.handles",
        ),
        (_MEMBER,),
        limits.CONNECTIONS_MAX,
        2600,
        "the one unused for longest goes, if it rests; else the new one is refused",
        "connection_full",
        steps=limits.CONNECTIONS_PER_PORT_MAX,
    ),
    Table(
        "connections of one port",
        ("proto/rc/connection.py:_Port.suspected",),
        (_MEMBER,),
        limits.CONNECTIONS_PER_PORT_MAX,
        2600,
        "the new one is refused",
        "connection_port_full",
        steps=limits.CONNECTIONS_PER_PORT_MAX,
    ),
    Table(
        "peers whose failures count",
        ("proto/rc/policy.py:RcPolicy._peers", "proto/rc/policy.py:RcPolicy._resting"),
        (_MEMBER,),
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
        (_MEMBER,),
        limits.CM_CONNECTIONS_MAX,
        2600,
        "the oldest that has ended goes; else the new one is refused",
        "cm_full",
    ),
    Table(
        "half-open requests of peers",
        ("proto/cm/cm.py:Cm._half_open",),
        (_MEMBER,),
        limits.CM_HALF_OPEN_MAX,
        2600,
        "the new one is refused",
        "cm_half_open_full",
    ),
)

_MESH: Final = (
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
        (_CALLER, _PEER),
        limits.UNICAST_PEERS_MAX,
        2400,
        "the new one is refused",
        "mesh_full",
        steps=limits.UNICAST_CONTACTS_MAX,
    ),
    Table(
        "places where peers may listen",
        ("proto/mesh/contacts.py:Contacts._all", "proto/mesh/contacts.py:Contacts._strangers"),
        (_CALLER, _PEER),
        limits.UNICAST_CONTACTS_MAX,
        2000,
        "the oldest place where nobody has answered goes",
        "mesh_contacts_full",
        True,
    ),
    Table(
        "groups of one peer, to show",
        ("proto/mesh/mesh.py:_MeshConnection.groups",),
        (_PEER,),
        limits.MESH_GROUPS_SHOWN,
        250,
        "further ones are not shown",
        uncounted="`ipoibu peers` shows as many; all of them get their packets",
    ),
    Table(
        "places as they were read",
        ("wire/mesh.py:_locator",),
        (_PEER,),
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
        (_CALLER,),
        limits.UNICAST_GREETING_MAX,
        6000,
        "the oldest goes",
        "mesh_no_answer",
    ),
    Table(
        "bytes for a peer that does not read",
        ("fabric/unicast/stream.py:Stream._unsent",),
        (_PEER,),
        limits.UNICAST_UNSENT_MAX,
        2,
        "the connection ends",
        unit="bytes of each peer",
        uncounted="one connection ends, and the log says so",
    ),
)

_MANAGEMENT: Final = (
    Table(
        "requests to the subnet administrator",
        (
            "proto/sa/requests.py:SaRequests._queue",
            "proto/sa/requests.py:SaRequests._requests",
            "proto/sa/requests.py:SaRequests._by_tid",
            "proto/sa/transaction.py:Transaction.tids",
            "fabric/sa/transport.py:SaTransport._waiting",
        ),
        (_LINK, _LOCAL),
        limits.SA_QUEUE_MAX,
        1600,
        "the new request is refused",
        "sa_queue_full",
    ),
    Table(
        "past requests to the subnet administrator",
        ("proto/sa/requests.py:SaRequests._recent",),
        (_LINK, _LOCAL),
        limits.SA_RECENT_MAX,
        300,
        "the oldest goes",
        uncounted="a list to show; the requests are counted",
    ),
    Table(
        "reports of the subnet administrator",
        ("proto/sa/requests.py:SaRequests._reports",),
        (_SA,),
        limits.SA_RECENT_MAX,
        800,
        "the oldest goes",
        uncounted="a list of the latest; each was carried out",
    ),
    Table(
        "bytes of a table of the subnet administrator",
        ("proto/sa/rmpp.py:Transfer._parts", "proto/sa/rmpp.py:Transfer._ahead"),
        (_SA,),
        limits.SA_TABLE_BYTES_MAX,
        1,
        "the transfer ends",
        "sa_failed",
        unit="bytes",
    ),
    Table(
        "events of the subnet administrator that nobody has read",
        ("fabric/sa/transport.py:SaTransport._events",),
        (_SA,),
        limits.SA_EVENTS_MAX,
        400,
        "the oldest goes",
        "sa_event_lost",
    ),
)

_HOST: Final = (
    Table(
        "clients of the control socket",
        (
            "daemon/process/client_places.py:ClientPlaces._clients",
            "daemon/process/client_places.py:ClientPlaces._waited_for",
        ),
        (_OWNER,),
        limits.CONTROL_CLIENTS_MAX,
        200_000,
        "the one that keeps us waiting the longest goes",
        uncounted="the client sees the end of its connection",
    ),
    Table(
        "bytes of a capture that its client has not read",
        ("daemon/control/server.py:_Pending._records",),
        (_OWNER, _LINK),
        limits.CAPTURE_PENDING_BYTES,
        2,
        "the new frame goes, and the client hears how many",
        unit="bytes of each capture",
        uncounted="the capture itself has the number",
    ),
    Table(
        "clients of `--metrics`",
        (),
        (_CALLER,),
        limits.METRICS_CLIENTS_MAX,
        200_000,
        "the one that keeps us waiting the longest goes",
        uncounted="the client sees the end of its connection",
    ),
    Table(
        "groups of the link, for a multicast router",
        ("endpoint/subnet/allmulticast.py:AllMulticast._held",),
        (_MEMBER, _SA),
        limits.GROUPS_MAX,
        300,
        "the new group is not received",
        "group_table_full",
    ),
    Table(
        "pings of `ipoibu ping`",
        ("proto/neigh/pings.py:Pings._asked", "endpoint/interface/pings.py:Pinger._waiting"),
        (_OWNER,),
        limits.PINGS_MAX,
        6000,
        "the new ping is refused, and says so",
        steps=limits.PINGS_MAX,
        uncounted="the command hears of it",
    ),
    Table(
        "transitions that a monitor has not read",
        ("daemon/control/event_streams.py:_Queue._waiting",),
        (_OWNER, _LINK),
        limits.EVENTS_PENDING_MAX,
        500,
        "the new transition goes, and the monitor hears how many",
        uncounted="the monitor itself has the number",
    ),
    Table(
        "duplicates of addresses",
        (
            "daemon/interface/duplicates.py:Duplicates._backoffs",
            "daemon/interface/duplicates.py:Duplicates._timers",
            "host/kernel_interface.py:KernelInterface._unwanted",
        ),
        (_LINK,),
        limits.ADDRESSES_MAX,
        800,
        "the oldest of another program goes",
        steps=limits.ADDRESSES_MAX,
        uncounted="the duplicates are counted; this is how long to wait before another try",
    ),
    Table(
        "sources of flows about whose routes the kernel was asked",
        ("host/route_query.py:RouteQuery._sources",),
        (_LOCAL,),
        limits.ROUTE_SOURCES_MAX,
        600,
        "all go",
        uncounted="a cache: the kernel is asked again",
    ),
    Table(
        "routes of the kernel",
        (
            "host/route_table.py:RouteTable._entries",
            "host/route_table.py:RouteTable._before",
            "host/route_table.py:RouteTable._ready",
        ),
        (_LOCAL,),
        limits.ROUTE_ENTRIES_MAX,
        2000,
        "the new route is ignored, and listed when an eighth of the room is free",
        "routes_left_out",
        True,
    ),
    Table(
        "routes of the kernel to one destination",
        ("host/route_order.py:Crowd._shelves", "host/route_table.py:RouteTable._short"),
        (_LOCAL, _LINK),
        limits.ROUTE_PREFIX_ENTRIES_MAX,
        2000,
        "the new route is ignored, and listed when an eighth of the room is free",
        "routes_left_out",
        True,
    ),
    Table(
        "sets of routes that prefixes share",
        ("host/route_table.py:RouteTable._shared", "host/route_table.py:RouteTable._targets"),
        (_LOCAL,),
        limits.ROUTE_SHARED_MAX,
        2000,
        "all go",
        uncounted="a cache: later prefixes share anew",
    ),
    Table(
        "forms of the kernel's messages about routes",
        ("host/route_message.py:RouteReader._known",),
        (_LOCAL, _LINK),
        limits.ROUTE_KNOWN_MAX,
        2000,
        "all go",
        uncounted="a cache: what is gone is read again",
    ),
    Table(
        "gateways of routes that we watch",
        ("proto/neigh/neighbours.py:Neighbours._gateways",),
        (_LOCAL,),
        limits.ROUTE_GATEWAYS_MAX,
        300,
        "further ones are watched as any neighbour",
        "gateway_table_full",
    ),
    Table(
        "groups of multicast routes",
        ("host/group_sync.py:GroupSync._routes",),
        (_LINK, _LOCAL),
        limits.ROUTED_GROUPS_MAX,
        300,
        "the groups that were there first stay, and others wait for their end",
        steps=4 * limits.ROUTED_GROUPS_MAX,
        uncounted="the kernel counts the packets of groups that it does not route",
    ),
    Table(
        "solicited-node groups of hosts behind us",
        ("proto/neigh/proxy_networks.py:ProxyNetworks._listened",),
        (_BEHIND,),
        limits.PROXY_GROUPS_MAX,
        2000,
        "the hosts that were there first stay",
        "proxy_groups_full",
        True,
        steps=8 * limits.PROXY_GROUPS_MAX,
    ),
    Table(
        "gateways in the kernel's answers about flows",
        ("endpoint/interface/shell.py:Shell._asked",),
        (_LOCAL,),
        limits.ROUTE_ASKED_GATEWAYS_MAX,
        300,
        "further ones are not followed",
        uncounted="the packets go out; only a dead gateway is noticed later",
    ),
)


@dataclass(frozen=True, slots=True)
class CoreTable(Table):
    """A table in C, which a C program fills to twice its cap (ext/tests/table_rows.h)."""


_CORE: Final = (
    CoreTable(
        "next hops of the pump",
        ("pump/tables/neigh.c:slots",),
        (_LINK, _LOCAL),
        limits.NEIGH_MAX + limits.GROUPS_MAX,
        86,  # 32 bytes a slot, of which 3/8 to 3/4 are in use
        "the engine makes room and tries again",
        "neigh_refused",
        True,
    ),
    CoreTable(
        "address handles",
        ("pump/tables/ah_cache.c:slots", "soft/ah.c:ah"),
        (_LINK, _LOCAL),
        limits.ADDRESS_HANDLES_MAX,
        320,
        "the longest idle goes; else the engine makes room",
        "neigh_refused",
        True,
    ),
    CoreTable(
        "routes of the pump",
        ("pump/tables/route.c:return", "pump/tables/route.c:copy"),
        (_LINK, _LOCAL),
        limits.ROUTES_MAX,
        116 + 24 * limits.ROUTE_HOPS_MAX,
        "the new route is not used",
        "commands_bad",
    ),
    CoreTable(
        "answers of the kernel about flows",
        ("pump/tables/route_answers.c:slots",),
        (_LOCAL,),
        limits.ROUTE_ANSWERS_MAX,
        214 + 24 * limits.ROUTE_HOPS_MAX,
        "all go",
        "route_answers_evicted",
    ),
    CoreTable(
        "resolutions under way",
        ("pump/tables/resolution.c:begun",),
        (_LINK, _LOCAL),
        c_limits.RESOLUTION_BEGUN_SLOTS,
        16,
        "the former address with the same hash goes; budgets bound the resolutions",
        "tx_resolution_limited",
        True,
    ),
    CoreTable(
        "hosts that have answered",
        ("pump/tables/resolution.c:known",),
        (_LINK,),
        c_limits.RESOLUTION_KNOWN_SLOTS,
        4,
        "the former address with the same hash goes",
        uncounted="the host waits among strangers, which `tx_resolution_limited` counts",
    ),
    CoreTable(
        "addresses for which we did not ask",
        ("pump/tables/resolution.c:refused",),
        (_LINK, _LOCAL),
        c_limits.RESOLUTION_REFUSED_SLOTS,
        4,
        "the former address with the same hash goes",
        uncounted="the address waits as a new one does, which `tx_resolution_limited` counts",
    ),
    CoreTable(
        "senders of ARP and ND",
        ("pump/tables/admission.h:by_sender",),
        (_LINK,),
        c_limits.ADMISSION_SLOTS,
        2,
        "senders with the same hash share a place",
        "rx_control_limited",
        True,
    ),
    CoreTable(
        "questions by ARP and ND",
        ("pump/tables/admission.h:asked",),
        (_LOCAL,),
        c_limits.ADMISSION_SLOTS,
        32,
        "the former question with the same hash goes",
        uncounted="the answer waits among strangers, which `rx_control_limited` counts",
    ),
    CoreTable(
        "senders to a saturated pump",
        ("pump/tables/write_share.h:writes",),
        (_LINK,),
        c_limits.WRITE_SHARE_SENDERS,
        32,
        "senders with the same hash share a place",
        "rx_over_share",
        True,
    ),
    CoreTable(
        "guests in the pump",
        ("core/mac_table.c:slots",),
        (_GUEST, _LINK),
        limits.ETHERNET_GUESTS_MAX,
        128,
        "the engine keeps the cap",
        "commands_bad",
    ),
    CoreTable(
        "peers of a unicast link",
        ("unicast/unicast.c:peers", "unicast/unicast.c:keys"),
        (_CALLER,),
        limits.UNICAST_PEERS_MAX,
        256,
        "the new one is refused",
        "mesh_full",
        steps=limits.UNICAST_PEERS_MAX,
    ),
    CoreTable(
        "groups of a peer",
        ("fabric/group_list.h:mgids",),
        (_PEER,),
        limits.MESH_GROUPS_SHOWN,
        16,
        "the peer gets the messages to all groups",
        uncounted="nothing is lost: the peer drops what it has not joined",
    ),
    CoreTable(
        "messages to groups of a unicast link under way",
        ("unicast/unicast_state.h:casts", "unicast/unicast_state.h:waiting"),
        (_LOCAL, _PEER),
        limits.UNICAST_CASTS_MAX,
        128,
        "the new message is lost",
        "unicast_tx_full",
        True,
    ),
    CoreTable(
        "hosts to which flows are spread over rails",
        ("rails/rails.c:peers", "rails/rails.c:keys"),
        (_LINK,),
        limits.RAIL_PEERS_MAX,
        2048,
        "a neighbour of ours takes the place of a peer without traffic; others use one rail",
        "rails_peers_full",
        True,
    ),
    CoreTable(
        "hellos under way to hosts that have answered none",
        ("rails/rails_state.h:greeted",),
        (_LINK,),
        limits.RAIL_STRANGERS_MAX,
        512,
        "the host gets none in return",
        "rails_hello_busy",
        True,
    ),
    CoreTable(
        "control messages of peers of an iWARP mesh",
        ("mesh/mesh_peers.c:event",),
        (_PEER,),
        limits.MESH_EVENTS_MAX,
        2100,
        "the connection ends",
        uncounted="one connection ends, and the log says so",
    ),
    CoreTable(
        "datagrams to queue pair 1",
        ("fabric/soft_gsi.c:in", "fabric/soft_gsi.c:out"),
        (_LINK,),
        limits.GSI_DATAGRAMS_MAX,
        600,
        "the new datagram is lost",
        "drop_gsi",
        True,
    ),
)

TABLES: Final = (
    *_ENGINE,
    *_ETHERNET,
    *_CONNECTIONS,
    *_MESH,
    *_MANAGEMENT,
    *_HOST,
    *_CORE,
)
"""Every row; names are unique."""
