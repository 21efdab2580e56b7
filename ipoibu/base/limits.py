# SPDX-License-Identifier: BSD-2-Clause
"""All caps and timers, with their units and the sources of their numbers.

Names end in their unit: `_s` seconds, `_bytes`, `_packets`; a name without one counts things. Numbers that
C has, too, come from C (ext/python/c_limits.py).
"""

from __future__ import annotations

from typing import Final

from ipoibu.base import c_limits

# Sizes on the wire
ENCAP_LEN: Final = c_limits.ENCAP_LEN  # RFC 4391 §6
GRH_LEN: Final = (
    c_limits.GRH_LEN
)  # InfiniBand: the space before every UD receive, with or without a GRH (E4)
IB_MTUS: Final = (256, 512, 1024, 2048, 4096)
SOFT_OVERHEAD_BYTES: Final = 72  # IPv6, UDP, BTH, DETH and ICRC of a datagram of the built-in HCA
SOFT_IPV4_OVERHEAD_BYTES: Final = 52  # with IPv4 in place of IPv6
SOFT_DATAGRAM_MAX_BYTES: Final = c_limits.SOFT_MAX_DATAGRAM
ROCE_OVERHEAD_BYTES: Final = 80  # the part of the net device's MTU that rxe reserves for headers
DEFAULT_IB_MTU: Final = 2048  # RFC 4391 §7 (T1)
IPV6_MIN_MTU: Final = 1280  # RFC 8200 §5 (T3)
IPV4_MIN_MTU: Final = 68  # RFC 791 §3.2
IP_PACKET_MAX_BYTES: Final = 65535  # RFC 791 §3.1: the length has 16 bits
CONNECTED_MTU: Final = 65520  # Linux ib_ipoib, IPOIB_CM_MTU

BUSY_POLL_MAX_US: Final = 1_000_000  # more than a second would be a busy loop by mistake
CPU_LATENCY_MAX_US: Final = 1_000_000  # no CPU takes so long to wake

# Pumps of one interface. Linux has 256 (MAX_TAP_QUEUES), but one of ours
# receives for all, and is busy long before 16 others are.
QUEUES_MAX: Final = c_limits.TX_QUEUES_MAX

NEIGH_KEPT_MAX: Final = 256  # neighbours that a restart keeps; the pump learns them in one batch
CHILDREN_MAX: Final = 127  # with the parent, these fill the P_Key table of the built-in HCA

# Partition defaults without a subnet administrator
DEFAULT_QKEY: Final = 0x0B1B  # OpenSM's default for IPoIB groups
DEFAULT_SCOPE: Final = 2  # link-local, RFC 4391 §4
DEFAULT_HOP_LIMIT: Final = 64  # OpenSM's value for a routed link; RoCE needs more than 0

# Neighbours
NEIGH_PERMANENT_MAX: Final = 65_536  # permanent neighbours of an administrator: never evicted
NEIGH_MAX: Final = 131_072  # twice the 65 536 nodes of the largest LID space
NEIGH_EVICTED_AT_ONCE: Final = 16  # strangers that make room when the pump refuses a neighbour
NEIGH_SUSPECTED_AT_ONCE: Final = 16  # other addresses of a host of which one has moved
NEIGH_REFUSALS_MAX: Final = QUEUES_MAX  # refusals of one neighbour: each queue may refuse it once
# Packets that wait for an answer (proto/machine/waiting.py): of each neighbour as much as Linux keeps,
# where a small packet counts as 768 bytes. A ring between engine and pump takes a full queue at once.
NEIGH_PENDING_BYTES: Final = 212_992  # Linux unres_qlen_bytes
NEIGH_PENDING_TOTAL_BYTES: Final = 8 << 20  # of all neighbours
WAITING_OVERHEAD_BYTES: Final = 512  # of each packet, beside its bytes: 332 of 128 bytes wait
RETRANS_TIMER_S: Final = 1.0  # RFC 4861 §10 RETRANS_TIMER
MAX_MULTICAST_SOLICIT: Final = 3  # RFC 4861 §10
MAX_UNICAST_SOLICIT: Final = 3  # RFC 4861 §10
DHCP_REQUESTS_MAX: Final = 64  # of local clients, whose replies we know; a client has one or two
PINGS_MAX: Final = 64  # requests of `ipoibu ping` that wait for an answer
CONTROL_CLIENTS_MAX: Final = 32  # the one that keeps us waiting the longest makes room
CONTROL_SILENCE_S: Final = 5.0  # then a command gives up a daemon that sends nothing
CONTROL_WORKING_S: Final = 1.0  # between two signs of a daemon that works on a request
# The wait for the end of a process that `ipoibu down` ends: DHCP and SA may take seconds.
DOWN_WAIT_S: Final = 15.0
CAPTURE_PENDING_BYTES: Final = 8 << 20  # unread, of a capture; we drop and count frames beyond
CAPTURES_MAX: Final = 8  # clients of one interface; with the monitors, half of all clients
MONITORS_MAX: Final = 8  # clients of one interface: each costs the engine some us a transition
EVENTS_PENDING_MAX: Final = 16_384  # unread, of a monitor: the flush of as many neighbours fits
METRICS_REQUESTS_MAX: Final = 4  # scrapes at a time: each server of Prometheus makes one
METRICS_CLIENTS_MAX: Final = 16  # with those that have not sent their request; the oldest goes
METRICS_REQUEST_S: Final = 10.0  # Prometheus' own default of scrape_timeout
DEAF_S: Final = 1.0  # without a free descriptor we accept no connection for this time
DESCRIPTORS_LOG_S: Final = 60.0  # between two log lines about that
# Without memory the daemon ends. The reserve is 16 of the interpreter's arenas, in address space alone.
EXHAUSTION_RESERVE_BYTES: Final = 16 << 20
EXHAUSTION_END_S: Final = 5.0  # for the end in order; then at once
EXHAUSTION_AGAIN_S: Final = 0.1  # between two tries of that
STATUS_PAGE: Final = 256  # neighbours in one step of a query, which takes the engine about 1 ms
REACHABLE_TIME_S: Final = 30.0  # RFC 4861 §10 REACHABLE_TIME
MIN_RANDOM_FACTOR: Final = 0.5  # RFC 4861 §10
MAX_RANDOM_FACTOR: Final = 1.5  # RFC 4861 §10
DELAY_FIRST_PROBE_S: Final = 5.0  # RFC 4861 §10 DELAY_FIRST_PROBE_TIME
ROUTER_REACHABLE_S: Final = 4.0  # REACHABLE_TIME of a router in use, so that ...
ROUTER_DELAY_S: Final = 1.0  # ... with this delay and 3 probes our host leaves it within 8 s
ROUTER_RETRY_S: Final = 5.0  # time between two solicitations of a router that does not answer
ROUTERS_MAX: Final = 64  # advertising routers; Linux has no cap, RFC 4861 §6.3.4 asks for two
ROUTERS_UNPROVEN_MAX: Final = 8  # of them never answered: a further one has to answer first
ROUTERS_OF_ONE_HOST: Final = 8  # in a full table, one with more makes room for those of others
ROUTER_TRIALS_PER_S: Final = 128.0  # routers that we ask so: the pump passes up 500 strangers, ...
ROUTER_TRIALS_BURST: Final = 128.0  # ... and each has half a second to answer before its place goes
ROUTER_ADVERTISEMENT_MAX_BYTES: Final = 4096  # of a router with a place: the longest datagram
REDIRECTS_PER_S: Final = 16.0  # new neighbours that redirects name; of others we ask
REDIRECTS_BURST: Final = 64.0
ADVERTISED_MAX: Final = 256  # prefixes and routes of advertisements; Linux makes 16 addresses
ADVERTISED_NEW_PER_S: Final = 8.0  # new ones that the local stack gets
ADVERTISED_NEW_BURST: Final = 256.0  # as many as fit, when an interface starts
ADVERTISED_REPEATED_S: Final = 3.0  # RFC 4861 §10 MIN_DELAY_BETWEEN_RAS: a second advertisement
AUTOCONF_UNPROVEN_MAX: Final = 8  # of the 16 addresses, for routers that have never answered
AUTOCONF_LASTS_S: Final = 7200.0  # RFC 4862 §5.5.3 e: an address stays so long without its prefix
ADVERTISED_SILENT_S: Final = 3600.0  # twice the longest interval of RFC 4861 §6.2.1
NEIGH_FAILED_HOLD_S: Final = 1.0  # negative cache: the time before a failed resolution starts again
NEIGH_STALE_KEEP_S: Final = 3600.0  # the time after which an unused entry is removed
ANNOUNCE_COUNT: Final = 3  # gratuitous ARP, unsolicited NA: RFC 4861 §10 MAX_NEIGHBOR_ADVERTISEMENT
ANNOUNCE_INTERVAL_S: Final = 1.0  # RFC 4861 §10 RETRANS_TIMER
# For so long after we have moved, we announce our addresses again when another host announces its own.
MOVES_WINDOW_S: Final = 3.0
MOVES_AGAIN_S: Final = 0.005  # after our move at least; then twice as long each time
DAD_TRANSMITS: Final = 1  # RFC 4862 §5.1 DupAddrDetectTransmits
HOST_ADDRESSES_MAX: Final = 1024  # of other interfaces; the engine logs and ignores further ones
# Proxy entries and anycast addresses; the engine logs and ignores further ones.
PROXIES_MAX: Final = 1024
PROXY_NETWORKS_MAX: Final = 1024  # networks of `--proxy` and `ipoibu neigh add proxy`
PROXY_GROUPS_MAX: Final = 1024  # solicited-node groups that we join for hosts behind us
PROXY_ENUMERATED_MAX: Final = 256  # addresses of an IPv6 network whose groups we join all
PROXY_ANSWERS_MAX: Final = 64  # answers that wait for their delay; Linux proxy_qlen
PROXY_STRANGERS_MAX: Final = 48  # of them, to hosts that have never answered us
# Questions about routes to hosts behind us: half of the strangers' messages that the pump passes up.
PROXY_STRANGERS_PER_S: Final = 250.0
PROXY_STRANGERS_BURST: Final = 250.0
PROXY_DELAY_MAX_S: Final = 60.0  # a larger value of proxy_delay counts as this
ADDRESSES_MAX: Final = 1024  # own addresses; the engine refuses, counts and logs a further one
ARP_PROBES: Final = 3  # RFC 5227 §1.1 PROBE_NUM
# RFC 5227's 1..2 s is for Ethernet bridges that learn slowly; a restarted host must be reachable in 3 s.
ARP_PROBE_INTERVAL_MIN_S: Final = 0.2
ARP_PROBE_INTERVAL_MAX_S: Final = 0.3
DEFEND_INTERVAL_S: Final = 10.0  # RFC 5227 §1.1
# After another host took over an address that we keep: how often to check whether it gave it up.
CONTEST_CHECKS: Final = 2
CONTEST_INTERVAL_S: Final = 1.0
DUPLICATE_RETRY_MIN_S: Final = 10.0  # by then an administrator has ended the clone of a machine
DUPLICATE_RETRY_MAX_S: Final = 3600.0

# DHCP client, RFC 2131
DHCP_RETRY_MIN_S: Final = 4.0  # §4.1: before the first retransmission, then doubled ...
DHCP_RETRY_MAX_S: Final = 64.0  # ... up to here,
DHCP_RETRY_JITTER_S: Final = 1.0  # each up to a second sooner or later
DHCP_RENEW_RETRY_S: Final = 60.0  # §4.4.5: the shortest time between two renewals without an answer
DHCP_RENEW_JITTER: Final = 0.1  # part of that time, up or down: spreads clients of one server
DHCP_REQUEST_TRIES: Final = 4  # §3.1, step 4: 60 s in all
DHCP_REBOOT_TRIES: Final = 2  # 12 s, then the lease that we know counts
DHCP_PAUSE_S: Final = 10.0  # §3.1, step 5: after an address that another host has
DHCP_RELEASE_S: Final = 0.5  # for the server's hardware address, before we forget ours
DHCP_LINK_MTU: Final = 576  # §2: the least that a host has to accept
LEASE_MIN_S: Final = 4.0  # a shorter lease would be renewed more than once in 2 s
LEASE_LIST_MAX: Final = 64  # routes and name servers of one lease; we ignore further ones
LEASE_SKEW_S: Final = 60.0  # a stored lease from later than this is of another clock
LEASE_WAIT_S: Final = 10.0  # of `ipoibu up`, before it says that it is up without a lease
HOST_NAME_MAX: Final = 63  # RFC 1035 §2.3.4: a label

# DHCPv6 client, RFC 8415 §7.6, unless another clause is named
DHCP6_DELAY_S: Final = 1.0  # SOL_MAX_DELAY, CNF_MAX_DELAY: before the first message
DHCP6_JITTER: Final = 0.1  # §15: RAND, part of a wait, up or down
DHCP6_SOL_TIMEOUT_S: Final = 1.0
DHCP6_SOL_MAX_RT_S: Final = 3600.0
DHCP6_MAX_RT_LEAST_S: Final = 60.0  # §21.24: of a server's SOL_MAX_RT; we ignore others
DHCP6_MAX_RT_MOST_S: Final = 86400.0
DHCP6_REQ_TIMEOUT_S: Final = 1.0
DHCP6_REQ_MAX_RT_S: Final = 30.0
DHCP6_REQ_MAX_RC: Final = 10
DHCP6_CNF_TIMEOUT_S: Final = 1.0
DHCP6_CNF_MAX_RT_S: Final = 4.0
DHCP6_CNF_MAX_RD_S: Final = 10.0
DHCP6_REN_TIMEOUT_S: Final = 10.0  # of a renewal, and of rebinding
DHCP6_REN_MAX_RT_S: Final = 600.0
DHCP6_END_TIMEOUT_S: Final = 1.0  # DEC_TIMEOUT, REL_TIMEOUT
DHCP6_END_MAX_RC: Final = 4  # DEC_MAX_RC, REL_MAX_RC
DHCP6_RELEASE_S: Final = 2.5  # of our own: the end of an interface waits no longer for a reply

ICMP_ERRORS_PER_S: Final = 100.0  # Linux: 1000 a second for all, 1 per peer (icmp_ratelimit)
ICMP_ERRORS_BURST: Final = 50.0  # Linux icmp_msgs_burst

# The pump's own budgets, with their reasons: ext/pump/tables/{admission,resolution,write_share}.h. These
# bound the second and third broadcasts for strangers; the pump bounds the first ones (resolution.h).
RESOLUTION_REPEATS_PER_S: Final = 160.0
RESOLUTION_REPEATS_BURST: Final = 1024.0
PEER_LOGS_PER_S: Final = 0.2  # lines of one kind that peers can cause; journald takes 333 a second
PEER_LOGS_BURST: Final = 5.0  # lines of one kind at once
# Lines of one kind below a warning: neighbours learnt, groups joined. A start of many groups fits.
EVENT_LOGS_PER_S: Final = 1.0
EVENT_LOGS_BURST: Final = 50.0
DROPS_QUIET_S: Final = 60.0  # the time without another note of the same peer and counter
DROP_LOOK_S: Final = 5.0  # time between two looks at the drop counters of pump and fabric
# The time between two lines about one reason of drops, doubled while it goes on.
DROP_LOG_MIN_S: Final = 60.0
DROP_LOG_MAX_S: Final = 3600.0
DROPS_NOTED_MAX: Final = 1024  # pairs of peer and counter that we remember

# Ethernet hand-off
ETHERNET_NEIGHBOURS_MAX: Final = (
    c_limits.HOSTS_MAX
)  # MACs of hosts of the link; a pump has as many sources
ETHERNET_PUBLISH_S: Final = 30.0  # a destination that is heard is published anew after this time
ETHERNET_GUESTS_MAX: Final = c_limits.GUESTS_MAX  # addresses of guests
ETHERNET_GUEST_ADDRESSES_MAX: Final = 1024  # of one guest, which may route for others
ETHERNET_STATIC_MAX: Final = 4096  # addresses that an administrator binds to guests
# A guest probes so long for an address, after its last probe; then it has announced the address.
ETHERNET_PROBE_S: Final = 4.0  # RFC 5227 §1.1 PROBE_MAX and ANNOUNCE_WAIT
ETHERNET_DAD_S: Final = 2.0  # RFC 4862 §5.4: the retransmission timer, and a second to spare
ETHERNET_CHECK_S: Final = 300.0  # between two questions whether a guest still has an address
ETHERNET_ANSWER_S: Final = 1.0  # a guest's time to answer; RFC 4861 §10 RETRANS_TIMER
ETHERNET_CHECKS: Final = 3  # RFC 4861 §10 MAX_UNICAST_SOLICIT
ETHERNET_ASKS_PER_S: Final = 256.0  # questions to guests: all of them within a minute
ETHERNET_ASKS_BURST: Final = 256.0
ETHERNET_ANNOUNCED_AT_ONCE: Final = 32  # addresses of guests when the link comes up, and then ...
ETHERNET_ANNOUNCE_S: Final = 0.1  # ... after this time as many: a broadcast each
ETHERNET_WAITING_BYTES: Final = NEIGH_PENDING_BYTES  # for an address that no guest has named
ETHERNET_WAITING_TOTAL_BYTES: Final = NEIGH_PENDING_TOTAL_BYTES
ETHERNET_WAITING_MAX: Final = 256  # addresses that no guest has named, at a time
ETHERNET_SEARCHES_PER_S: Final = 64.0  # for hosts of the link by an unknown MAC, and for guests
ETHERNET_SEARCHES_BURST: Final = 64.0
ETHERNET_DHCP_MAX: Final = 1024  # requests of guests whose replies we know
ETHERNET_MEMBERSHIPS_MAX: Final = 8192  # pairs of guest and group
VLAN_MAX: Final = 4094  # IEEE 802.1Q; 0 is none, and 4095 reserved
GUEST_QUEUE_PAIRS_MAX: Final = c_limits.GUEST_QPNS_MAX  # of one interface
GUEST_QUEUE_PAIRS: Final = 64  # the default: the guests of a usual host
ETHERNET_REFUSALS_MAX: Final = 256  # pairs of a guest and an address that it may not use
ETHERNET_QUERY_S: Final = 125.0  # between two general queries to guests; RFC 3376 §8.2
ETHERNET_QUERY_RESPONSE_S: Final = 10.0  # RFC 3376 §8.3
# RFC 3376 §8.8: the time for the other guests of a group that one leaves.
ETHERNET_LAST_MEMBER_S: Final = 2.0
# RFC 3376 §8.8: their time to answer; also from the first general query to the second, then doubled
ETHERNET_QUERY_FAST_S: Final = 1.0
ETHERNET_MEMBERSHIP_S: Final = 260.0  # RFC 3376 §8.4: 2 queries and a response

# Routes
ROUTES_MAX: Final = 131_072  # `route_max` of a pump, which refuses and counts a further route
ROUTE_HOPS_MAX: Final = c_limits.HOPS_MAX  # next hops of one route; we count further ones
ROUTE_ENTRIES_MAX: Final = 2 * ROUTES_MAX  # of the kernel that we follow; RouteTable lists anew
ROUTE_PREFIX_ENTRIES_MAX: Final = 4096  # of them to one prefix; the pump uses ROUTE_HOPS_MAX
# A prefix with more routes has a table of its own; fewer are a shared tuple.
ROUTE_CROWD: Final = 16
ROUTE_SHARED_MAX: Final = 16_384  # different sets of routes to one prefix; a full table forgets all
ROUTE_KNOWN_MAX: Final = 16_384  # different routes without their prefix; a full table forgets all
ROUTE_ANSWERS_MAX: Final = 65_536  # flows with an answer of the kernel; a full table forgets all
ROUTE_SOURCES_MAX: Final = 4096  # sources of such flows; a full table forgets all
ROUTE_GATEWAYS_MAX: Final = 16_384  # gateways of routes whose end we notice soon
ROUTE_ASKED_GATEWAYS_MAX: Final = 1024  # gateways in such answers whose end we notice soon
# Prefixes that changed at once; of more, all packets that wait are looked up.
REROUTED_PREFIXES_MAX: Final = 4096
# Packets to dead next hops that wait for routes on their way to us.
REROUTED_REFUSALS_MAX: Final = 64
# The time that such a packet waits, and a pump has to confirm new routes.
REROUTED_WAIT_S: Final = 1.0
ROUTE_CHANGES_PER_CALL: Final = 512  # changes that the engine's thread takes at a time: about 1 ms
NOTICE_BUFFER_BYTES: Final = 8 << 20  # the kernel's buffer: room for 10 000 notices of routes

# Packets that wait in a TUN for the pump. A full ring drops, and what is in it is no sender's memory.
TX_RING_BYTES: Final = 1000 * IP_PACKET_MAX_BYTES  # bench/notes/tun-ring.md
TX_RING_MIN_PACKETS: Final = 1000  # Linux gives a TUN 500
TX_RING_MAX_PACKETS: Final = 4000  # a TCP window of 8 MB in packets of 2 kB

# Meshes: iWARP, and links without multicast
MESH_MTU_MAX: Final = CONNECTED_MTU  # iWARP: the MTU for an IP packet, which is one message
MESH_PORT: Final = 4792  # of TCP, also by RDMA-CM; next to that of RoCEv2; not registered
MESH_PEERS_MAX: Final = 48  # iWARP: each peer has 40 receives of 64 KiB
MESH_CONTACTS_MAX: Final = 256  # iWARP: places where a host may listen
MESH_LOCATORS_KEPT: Final = 8192  # parsed places: every new peer names the same ones
MESH_FAILURES_MAX: Final = 8  # in a row: then we remove a contact that only peers named ...
MESH_STRANGER_FAILURES_MAX: Final = 3  # ... and so soon one where no host has ever answered
MESH_NAMED_BURST: Final = 64  # strangers that one connection may make us dial at once, then ...
MESH_NAMED_PER_S: Final = 16.0  # ... so many a second: a whole list of UNICAST_PEERS_MAX ...
MESH_NAMED_WAIT_S: Final = 60.0  # ... has its turns within this time; we ignore what has none
MESH_NAMED_TOTAL_PER_S: Final = 64.0  # of all connections together, after twice the peers at once
MESH_OURSELVES_S: Final = 60.0  # before we dial a seed again where we ourselves answered
MESH_GROUPS_SHOWN: Final = (
    c_limits.GROUP_LIST_MAX
)  # of one peer, by `ipoibu peers`; as many as the core tells apart
MESH_NEWS_S: Final = 0.2  # we collect new peers for so long before we name them to the others
MESH_ANSWER_S: Final = 10.0  # the time for a connection to open
MESH_BACKOFF_MIN_S: Final = 1.0  # between two attempts, doubled ...
MESH_BACKOFF_MAX_S: Final = 16.0  # ... up to here
MESH_FILE_S: Final = 2.0  # time between two checks of the peers file
MESH_RESOLVE_S: Final = 30.0  # time between two resolutions of its names
MESH_RESOLVE_SOON_S: Final = 5.0  # when a name has no address, or a peer has gone
UNICAST_PEERS_MAX: Final = 1024  # a TCP connection each
UNICAST_CONTACTS_MAX: Final = 4096
# TCP connections of hosts that have not greeted us; the oldest goes.
UNICAST_GREETING_MAX: Final = 64
UNICAST_SILENCE_S: Final = 20  # the time after which TCP gives up a silent host
UNICAST_UNSENT_MAX: Final = 1 << 20  # bytes that wait for one peer; with more we end its connection
UNICAST_CASTS_MAX: Final = c_limits.UNICAST_CASTS  # messages to groups under way
MESH_EVENTS_MAX: Final = (
    c_limits.MESH_EVENTS_MAX
)  # iWARP: messages of peers that our thread has not read

# Multicast groups
GROUPS_MAX: Final = 4096  # the engine refuses, counts and logs more; Linux has no cap, rxe 8192
# Handles of a pump: one for each neighbour and group, and spare ones for answers to strangers
ADDRESS_HANDLES_MAX: Final = NEIGH_MAX + GROUPS_MAX + 1024
GROUP_SEND_ONLY_IDLE_S: Final = 60.0  # M8
GROUP_LEAVE_DELAY_S: Final = 1.0  # a group that gets a user again within this time stays joined
GROUP_BACKOFF_MIN_S: Final = 1.0  # Linux ipoib_multicast: 1 s, doubled ...
GROUP_BACKOFF_MAX_S: Final = 16.0  # ... up to IPOIB_MAX_BACKOFF_SECONDS
ALL_GROUPS_LIST_S: Final = 30.0  # M7: the longest effect of a lost report
# The longest effect of a change of which the kernel sends no notice.
KERNEL_GROUPS_LIST_S: Final = 10.0
# An interface that moves to another namespace again while it is followed.
MOVE_RETRY_S: Final = 0.05
NAMESPACE_LOOK_S: Final = 1.0  # time between two checks that the namespace of --netns has its name
SYSCTL_POLL_S: Final = 2.0  # arp_ignore and its like: the kernel sends no notice of a change
# Groups of the kernel's multicast routes; a router logs further ones.
ROUTED_GROUPS_MAX: Final = 1024
KERNEL_GROUPS_POLL_S: Final = 1.0  # the time between lists before Linux 6.14, without notices
MEMBERSHIP_SOURCES_MAX: Final = 256  # kept per source-specific group; Linux mld_max_msf is 64

# Opening a device that is not ready. Duplicate detection of a new link-local address takes up to 2 s
# (RFC 4862 §5.4.2: a delay of up to a second, and a probe), and a net device's carrier some more.
OPEN_RETRY_S: Final = 0.1
OPEN_WAIT_S: Final = 5.0  # the time that `ipoibu up` waits for the address
OPEN_WAIT_MAX_S: Final = 86_400
RAIL_POLL_S: Final = 0.02  # between two looks at the ports of an interface with several
RAIL_REOPEN_S: Final = 1.0  # between two attempts to open the device of a rail that is absent
RAIL_UPDELAY_MAX_MS: Final = 3_600_000
RAIL_MONITOR_S: Final = 0.1  # a round of questions to the neighbours that a monitor asks
RAIL_MISSES: Final = 3  # rounds without an answer that make a rail suspect
# How long a suspect rail is avoided at first; twice as long each time.
RAIL_SUSPECT_MIN_S: Final = 1.0
RAIL_SUSPECT_MAX_S: Final = 64.0
# A rail that reaches fewer hosts than another for so long is not active; twice as long each time, and as at
# first again where it has reached them all for the longest time.
RAIL_POOR_S: Final = 1.0
RAIL_POOR_MAX_S: Final = 64.0
RAILS_JOINED_MAX: Final = c_limits.RAILS_MAX  # rails with a queue pair each, of one interface
RAIL_PEERS_MAX: Final = 256  # hosts to which flows are spread over rails; further ones use one rail
RAIL_STRANGERS_MAX: Final = (
    c_limits.RAILS_STRANGERS
)  # hellos under way to hosts that have answered none
RAIL_TARGETS_MAX: Final = 16  # as the bonding driver's arp_ip_target
OPEN_WAIT_LOGGED_S: Final = 2.0  # a longer wait gets a line in the log

# File descriptors of the daemon, counted with `ls /proc/PID/fd`
INTERFACE_DESCRIPTORS: Final = 26  # a child on the built-in HCA has at most 18
TX_QUEUE_DESCRIPTORS: Final = 15  # for each further TX queue, which has 13
PROCESS_SPARE_DESCRIPTORS: Final = 40  # the 32 clients of a control socket, and short-lived files

# Rings between Python and the pump of a further TX queue; the first queue has those of `Pump`
TX_QUEUE_EVENT_RING_BYTES: Final = 512 << 10  # fewer events: the queue receives nothing
TX_QUEUE_ORIGINS_MAX: Final = 32_768  # packets that wait, whose queue we remember: all small ones
TX_QUEUE_CAPTURE_RING_BYTES: Final = 1 << 20

# Subnet administrator
SA_PATHS_MAX: Final = NEIGH_MAX + GROUPS_MAX  # paths, and groups that we send to, under an SA
# What waits for a path; Linux keeps 3 packets (IPOIB_MAX_PATH_REC_QUEUE), and lost a burst with that. The
# queues of two neighbours behind one port fit, with the questions and answers between them.
SA_PATH_PENDING_BYTES: Final = 2 * NEIGH_PENDING_BYTES
SA_PATH_PENDING_TOTAL_BYTES: Final = NEIGH_PENDING_TOTAL_BYTES
SA_TIMEOUT_S: Final = 1.0  # before the first retry, then doubled; Linux ipoib waits 1 s each time
SA_ATTEMPTS: Final = 4  # 15 s in all: a standby SM takes over within about 10 s of silence
SA_JITTER: Final = 0.25  # part of a time-out, up or down: spreads the clients that lost the same SA
SA_OUTSTANDING_MAX: Final = 16  # requests on the wire; OpenSM queues further ones
SA_QUEUE_MAX: Final = 2 * GROUPS_MAX  # requests that wait: every group, to receive and to send
SA_PROBE_MIN_S: Final = 1.0  # the client asks a silent SA again after 1 s, doubled ...
SA_PROBE_MAX_S: Final = 16.0  # ... up to Linux's IPOIB_MAX_BACKOFF_SECONDS
SA_ROUND: Final = 64  # datagrams that the client reads before it does other work, and then ...
SA_PAUSE_S: Final = 0.01  # ... pauses: 6400 a second, which is half of a CPU; a table has 2800
SA_RECENT_MAX: Final = 1024  # transactions remembered to recognise late answers
SA_EVENTS_MAX: Final = 1024  # unread notices; with more the client drops and counts the oldest
SA_TABLE_BYTES_MAX: Final = 16 << 20  # 262 144 path records: more than one port can use
SA_WINDOW_SEGMENTS: Final = 64  # RMPP segments that the sender sends before it waits for our ACK

# Connected mode
CONNECTIONS_MAX: Final = 4096  # queue pairs of one interface; Linux IPOIB_CM_MAX_CONN_QP
CONNECTIONS_PER_PORT_MAX: Final = 64  # connections made by all UD queue pairs of one remote port
CONNECTION_PEERS_MAX: Final = 16_384  # peers whose failures the policy remembers
CONNECTION_IDLE_S: Final = 512.0  # C10; Linux IPOIB_CM_RX_TIMEOUT; unless configured
CONNECTION_IDLE_MIN_S: Final = 2.0
CONNECTION_IDLE_MAX_S: Final = 86400.0
CONNECTION_ACTIVITY_S: Final = 16.0  # time between two reports of the connections in use
CONNECTION_EVICTABLE_S: Final = 64.0  # a connection unused for this time makes room for another
CONNECTION_SETTLED_S: Final = 64.0  # a connection that fails sooner counts as a failure
CONNECTION_DISMISSALS_PER_S: Final = 1  # connections that a peer may end sooner, in good order
CONNECTION_DISMISSALS_BURST: Final = 8
CONNECTION_BACKOFF_MIN_S: Final = 1.0  # packets go by datagram for this time; doubled ...
CONNECTION_BACKOFF_MAX_S: Final = 64.0  # ... up to here
CONNECTION_BACKOFF_JITTER: Final = 0.25  # up or down: spreads the hosts that lost the same peer
CONNECTION_RETRIES: Final = 0  # C11: of each packet, also after RNR: we drop rather than stall TCP
FRAMES_MAX: Final = 1024  # receives of datagrams; other frames are in proportion
FRAMES_MIN: Final = 64
CONNECTED_FRAMES: Final = 128  # receives of 64 KiB, shared by all connections of an interface
SOFT_ACK_TIMEOUT_CODE: Final = 14  # 67 ms: the built-in HCA's network loses packets, so
SOFT_RETRIES: Final = 7  # it sends a lost packet again; Linux's ipoib gives the connection up
SOFT_RNR_RETRIES: Final = 6  # 7 would be for ever
UNDERLAY_PEERS_MAX: Final = 16  # named peers whose routes choose the GID
UNDERLAY_RESOLVE_S: Final = 3.0  # for the names among them, at the start
SOFT_ROUTES_S: Final = 5.0  # time between two looks at these routes
SOFT_OWN_ROUTES_S: Final = 1.0  # the same for the device's routes to groups and to its link
SOFT_CARRIER_LOOK_S: Final = 0.2  # who looks at a port at least so often wants to know at once
SOFT_MOVED_S: Final = 3.0  # without our address, beside another one: a renewal by DHCP takes less
SOFT_TRAIN_BYTES: Final = 65507  # ext/soft/udp.c: the longest payload of UDP over IPv4
SOFT_DATAGRAM_HEADER_BYTES: Final = 24  # BTH 12, DETH 8, ICRC 4
SUPERFRAME_HEADER_BYTES: Final = 16  # vnet header 10, padding 2, encapsulation 4
KERNEL_FRAME_BYTES: Final = 65536  # Linux GSO_LEGACY_MAX_SIZE
KERNEL_TCP_ROOM_BYTES: Final = 193  # of a frame: Linux MAX_TCP_HEADER + 1 at least; 321 with WLAN
UDP_FRAME_BYTES: Final = 64000  # frames of UDP up to here stay whole: whole-super-frames.md
SUPERFRAME_BYTES_MAX: Final = SUPERFRAME_HEADER_BYTES + KERNEL_FRAME_BYTES

# Queue pairs of a program that sends datagrams itself (`fabric.raw_queue_pair`)
RAW_SENDS: Final = 32  # datagrams under way
RAW_RECEIVES: Final = 256  # posted for datagrams; a flood of one test fits
RAW_MESSAGES: Final = 16  # frames of 64 KiB for connections, in each direction
RAW_SEND_S: Final = 2.0  # a send waits so long for room, as for an adapter that is busy

CONFORM_MEET_S: Final = 30.0  # a tester on a link without multicast waits so long for its peers,
CONFORM_MEET_LOOK_S: Final = 0.05  # and looks so often

# Communication manager; a code stands for 4.096 µs times 2 to its power
CM_RESPONSE_TIMEOUT_CODE: Final = 18  # 1.07 s before a message is repeated; Linux ipoib 20, 4.3 s
CM_RETRIES: Final = 7  # retries of one message; Linux ipoib 15
CM_WAIT_MIN_S: Final = 0.1  # the bounds of a peer's time-outs
CM_WAIT_MAX_S: Final = 4.3  # Linux's own
CM_SERVICE_TIMEOUT_CODE: Final = 20  # 4.3 s: the time that our MRA asks for; we send one MRA
CM_RESPITE_MAX_S: Final = 10.0  # the longest time that we give a peer that sends MRA
CM_TIMEWAIT_S: Final = 4.0  # longer than a datagram lives on any fabric
CM_ACK_TIMEOUT_CODE: Final = 18  # 1.07 s until a packet without ACK breaks the queue pair
CM_CONNECTIONS_MAX: Final = 2 * CONNECTIONS_MAX  # time-wait included
CM_HALF_OPEN_MAX: Final = 128  # peers' requests that are not established yet
CM_HALF_OPEN_PER_PORT_MAX: Final = 16  # requests under way of one remote port
CM_ANSWERS_PER_S: Final = 100.0  # answers to datagrams about no connection
RDMACM_ACK_TIMEOUT_CODE: Final = 14  # 67 ms until a packet is sent again; the kernel's is 17
RDMACM_RETRIES: Final = 6  # of each packet: software adapters lose some; with 7 rxe never ends
RDMACM_RNR_RETRIES: Final = 6  # 7 is for ever
RDMACM_RESOLVE_S: Final = 2.0  # the kernel's time to resolve an address, and a route
RDMACM_ANSWER_S: Final = 10.0  # a peer's time to answer; rdma_cm itself would wait for a minute
GSI_DATAGRAMS_MAX: Final = c_limits.SOFT_GSI_DEPTH  # of queue pair 1 of the built-in HCA
CM_ROUND: Final = 64  # datagrams handled before timers and requests get a turn
CM_ANSWERS_BURST: Final = 100.0

# Lab machines
MACHINE_FILE_MAX_BYTES: Final = 2 << 30  # of each file that a machine writes on its host
MACHINE_FILES_MAX: Final = 16384  # of all machines of a lab together, directories too
MACHINE_FILES_MAX_BYTES: Final = 8 << 30  # of these files together

# Sockets of an application (ipoibu/aio)
AIO_BATCH: Final = 64  # packets between two turns of the event loop, or for one call of `recv_many`
AIO_LOOK_S: Final = (
    1.0  # so often a host of sockets looks for a closed endpoint, and for old entries
)
AIO_RETRY_S: Final = 0.0005  # after a full queue: the pump empties it in less
AIO_FLOWS_MAX: Final = 4096  # flows whose sockets are known; a further one forgets all
AIO_DESTINATIONS_MAX: Final = 4096  # destinations of a socket whose headers are ready, likewise
AIO_RECEIVE_BYTES: Final = (
    212_992  # Linux net.core.rmem_default: what a blocking socket keeps unread
)
AIO_RECEIVE_OVERHEAD_BYTES: Final = 512  # that each of its datagrams counts in addition
AIO_LOCAL_MAX: Final = 1024  # datagrams under way from the endpoint to itself
AIO_WRITE_HIGH_BYTES: Final = 65_536  # asyncio's own limits: a protocol is paused above this ...
AIO_WRITE_LOW_BYTES: Final = 16_384  # ... and goes on below this
AIO_WRITE_HEADER_BYTES: Final = 8  # that a waiting datagram counts in addition, as Python 3.13 does
AIO_PORT_FIRST: Final = 49_152  # RFC 6335 §6: ports for sockets that name none, up to 65535
AIO_PORT_TRIES: Final = 64  # RFC 6056 §3.3.1: random ports, before the search goes on one by one
AIO_ECHO_PER_S: Final = 1000.0  # answers to ICMP echo; Linux icmp_msgs_per_sec
AIO_ECHO_BURST: Final = 1000.0
AIO_UNREACHABLE_PER_S: Final = 100.0  # port unreachable; RFC 1812 §4.3.2.8 asks for a limit
AIO_UNREACHABLE_BURST: Final = 50.0  # Linux icmp_msgs_burst
AIO_MEMBERSHIPS_MAX: Final = 256  # groups of one socket
AIO_SOURCES_MAX: Final = 64  # sources of one group of a socket; Linux igmp_max_msf has 10
PATH_MTU_MAX: Final = 1024  # destinations with a path MTU of their own; the oldest goes
PATH_MTU_S: Final = 600.0  # RFC 1191 §6.3, RFC 8201 §5.3: then try the link's MTU again
PATH_MTU_IPV4_MIN_BYTES: Final = 552  # Linux min_pmtu: a smaller one may be an attack
REASSEMBLY_MAX: Final = 256  # datagrams with fragments missing; the oldest goes
REASSEMBLY_BYTES: Final = 4 << 20  # of their payloads; Linux ipfrag_high_thresh
REASSEMBLY_PARTS_MAX: Final = 128  # fragments of one: 65535 bytes at an MTU of 576 have 119
REASSEMBLY_S: Final = 60.0  # RFC 1122 §3.3.2, RFC 8200 §4.5
