# SPDX-License-Identifier: BSD-2-Clause
"""Every cap and timer, with its unit and where the number comes from.

Names end in their unit: `_s` seconds, `_bytes`, `_packets`; a name without one counts things.
"""

from __future__ import annotations

from typing import Final

# Sizes on the wire
ENCAP_LEN: Final = 4  # RFC 4391 §6
GRH_LEN: Final = 40  # InfiniBand: space in front of every UD receive, used or not (E4)
IB_MTUS: Final = (256, 512, 1024, 2048, 4096)
ROCE_OVERHEAD_BYTES: Final = 80  # rxe keeps this much of the net device's MTU for headers
DEFAULT_IB_MTU: Final = 2048  # RFC 4391 §7 (T1)
IPV6_MIN_MTU: Final = 1280  # RFC 8200 §5 (T3)
IPV4_MIN_MTU: Final = 68  # RFC 791 §3.2
IP_PACKET_MAX_BYTES: Final = 65535  # RFC 791 §3.1: what a length of 16 bits can say
CONNECTED_MTU: Final = 65520  # Linux ib_ipoib, IPOIB_CM_MTU

BUSY_POLL_MAX_US: Final = 1_000_000  # beyond a second it is a busy loop by mistake
CPU_LATENCY_MAX_US: Final = 1_000_000  # no CPU sleeps as deep

# Pumps of one interface (IPU_LANES_MAX). Linux has 256 (MAX_TAP_QUEUES), but one of ours receives for
# all: it is busy long before 16 others are.
QUEUES_MAX: Final = 16

# Partition defaults where no subnet administrator gives them
DEFAULT_QKEY: Final = 0x0B1B  # OpenSM's default for IPoIB groups
DEFAULT_SCOPE: Final = 2  # link-local, RFC 4391 §4
DEFAULT_HOP_LIMIT: Final = (
    64  # as OpenSM's broadcast group on a routed link; RoCE needs one above 0
)

# Neighbours
NEIGH_MAX: Final = 131_072  # twice the 65 536 nodes of the largest LID space
NEIGH_PENDING_PACKETS: Final = 16  # per neighbour; Linux unres_qlen is bytes, 101 small packets
NEIGH_PENDING_TOTAL_PACKETS: Final = 4096  # over all neighbours
RETRANS_TIMER_S: Final = 1.0  # RFC 4861 §10 RETRANS_TIMER
MAX_MULTICAST_SOLICIT: Final = 3  # RFC 4861 §10
MAX_UNICAST_SOLICIT: Final = 3  # RFC 4861 §10
REACHABLE_TIME_S: Final = 30.0  # RFC 4861 §10 REACHABLE_TIME
MIN_RANDOM_FACTOR: Final = 0.5  # RFC 4861 §10
MAX_RANDOM_FACTOR: Final = 1.5  # RFC 4861 §10
DELAY_FIRST_PROBE_S: Final = 5.0  # RFC 4861 §10 DELAY_FIRST_PROBE_TIME
NEIGH_FAILED_HOLD_S: Final = 1.0  # negative cache: a failed resolution is not repeated sooner
NEIGH_STALE_KEEP_S: Final = 3600.0  # an entry nobody used for so long is forgotten
ANNOUNCE_COUNT: Final = (
    3  # gratuitous ARP and unsolicited NA at start (RFC 4861 §10 MAX_NEIGHBOR_ADVERTISEMENT)
)
ANNOUNCE_INTERVAL_S: Final = 1.0  # RFC 4861 §10 RETRANS_TIMER
DAD_TRANSMITS: Final = 1  # RFC 4862 §5.1 DupAddrDetectTransmits
ADDRESSES_MAX: Final = 1024  # own addresses; beyond it a counted refusal and a log line
ARP_PROBES: Final = 3  # RFC 5227 §1.1 PROBE_NUM
ARP_PROBE_INTERVAL_MIN_S: Final = (
    0.2  # RFC 5227's 1..2 s is for Ethernet bridges that learn slowly;
)
ARP_PROBE_INTERVAL_MAX_S: Final = 0.3  # a restarted host is to be reached again within 3 s
DEFEND_INTERVAL_S: Final = 10.0  # RFC 5227 §1.1
ICMP_ERRORS_PER_S: Final = 100.0  # Linux: 1000 a second for all, 1 per peer (icmp_ratelimit)
ICMP_ERRORS_BURST: Final = 50.0  # Linux icmp_msgs_burst

# iWARP mesh
MESH_MTU_MAX: Final = CONNECTED_MTU  # of an IP packet, one message each
MESH_PORT: Final = 4792  # of RDMA-CM over TCP, next to RoCEv2's; not registered
MESH_PEERS_MAX: Final = 48  # each holds 40 receives of 64 KiB
MESH_CONTACTS_MAX: Final = 256  # places where a station may listen
MESH_FAILURES_MAX: Final = 8  # in a row, then a place that only peers told of is forgotten
MESH_ANSWER_S: Final = 10.0  # until a connection is there
MESH_BACKOFF_MIN_S: Final = 1.0  # between attempts, doubled ...
MESH_BACKOFF_MAX_S: Final = 16.0  # ... up to here
MESH_FILE_S: Final = 2.0  # how often the peers file is looked at
MESH_RESOLVE_S: Final = 30.0  # and names are resolved anew

# Multicast groups
GROUPS_MAX: Final = 4096  # counted drop and a log line beyond; Linux has no cap, rxe has 8192
GROUP_SEND_ONLY_IDLE_S: Final = 60.0  # M8
GROUP_LEAVE_DELAY_S: Final = 1.0  # a group left and joined again within it stays joined
GROUP_BACKOFF_MIN_S: Final = 1.0  # Linux ipoib_multicast: 1 s, doubled ...
GROUP_BACKOFF_MAX_S: Final = 16.0  # ... up to IPOIB_MAX_BACKOFF_SECONDS
ALL_GROUPS_LIST_S: Final = 30.0  # M7: a report that was lost costs so long at most
MEMBERSHIP_SOURCES_MAX: Final = 256  # kept per source-specific group; Linux mld_max_msf is 64

# Rings between the pump and Python, of a further queue; the first has those of `Pump`
TX_QUEUE_EVENT_RING_BYTES: Final = 256 << 10  # it says less, as it receives nothing
TX_QUEUE_CAPTURE_RING_BYTES: Final = 1 << 20

# Subnet administrator
SA_PATHS_MAX: Final = NEIGH_MAX + GROUPS_MAX  # paths and groups that are sent to, under an SA
SA_PATH_PENDING_PACKETS: Final = (
    3  # frames and packets that wait for a way; Linux IPOIB_MAX_PATH_REC_QUEUE
)
SA_TIMEOUT_S: Final = 1.0  # before the first retry, then doubled; Linux ipoib gives each 1 s
SA_ATTEMPTS: Final = 4  # 15 s in all: a standby SM takes over within about 10 s of silence
SA_JITTER: Final = 0.25  # of a time-out, up or down: clients that lost the same SA spread out
SA_OUTSTANDING_MAX: Final = 16  # requests on the wire; OpenSM queues what comes faster
SA_QUEUE_MAX: Final = 2 * GROUPS_MAX  # requests that wait their turn: every group, both ways
SA_PROBE_MIN_S: Final = 1.0  # an SA that does not answer is asked again after 1 s, doubled ...
SA_PROBE_MAX_S: Final = 16.0  # ... up to Linux's IPOIB_MAX_BACKOFF_SECONDS
SA_RECENT_MAX: Final = 1024  # transactions remembered to tell a late answer from a foreign one
SA_EVENTS_MAX: Final = 1024  # notices that nobody has read yet; the oldest go, counted
SA_TABLE_BYTES_MAX: Final = 16 << 20  # 262 144 path records: more than one port can use
SA_WINDOW_SEGMENTS: Final = 64  # RMPP segments on the way before the sender waits for us

# Connected mode
CONNECTIONS_MAX: Final = 4096  # queue pairs of one interface; Linux IPOIB_CM_MAX_CONN_QP
CONNECTIONS_PER_PORT_MAX: Final = 64  # that one port has made to us, with whatever UD queue pairs
CONNECTION_PEERS_MAX: Final = 16_384  # stations whose failures are remembered
CONNECTION_IDLE_S: Final = 512.0  # C10; Linux IPOIB_CM_RX_TIMEOUT; unless configured
CONNECTION_IDLE_MIN_S: Final = 2.0
CONNECTION_IDLE_MAX_S: Final = 86400.0
CONNECTION_ACTIVITY_S: Final = 16.0  # how seldom at most the endpoint tells which ones were used
CONNECTION_EVICTABLE_S: Final = 64.0  # unused for so long, one makes room for another
CONNECTION_SETTLED_S: Final = 64.0  # one that ends sooner was a failure
CONNECTION_BACKOFF_MIN_S: Final = 1.0  # by datagrams meanwhile; doubled ...
CONNECTION_BACKOFF_MAX_S: Final = 64.0  # ... up to here
CONNECTION_BACKOFF_JITTER: Final = 0.25  # up or down: a crowd that lost one peer spreads out
CONNECTION_RETRIES: Final = 0  # C11: of a packet and after RNR; drop rather than stall TCP
CONNECTED_FRAMES: Final = 128  # receives of 64 KiB that all connections of an interface share
SOFT_ACK_TIMEOUT_CODE: Final = 14  # 67 ms: the built-in HCA's peers are programs, on lossy wires,
SOFT_RETRIES: Final = 7  # so a lost packet is sent again; Linux's own mode gives a connection up
SOFT_RNR_RETRIES: Final = 6  # 7 is for ever
SUPERFRAME_HEADER_BYTES: Final = 16  # vnet header 10, padding 2, encapsulation 4
SUPERFRAME_BYTES_MAX: Final = SUPERFRAME_HEADER_BYTES + 65536  # Linux GSO_LEGACY_MAX_SIZE

# CmService manager; a code stands for 4.096 µs times 2 to its power
CM_RESPONSE_TIMEOUT_CODE: Final = 18  # 1.07 s before a message is repeated; Linux ipoib 20, 4.3 s
CM_RETRIES: Final = 7  # of one message; Linux ipoib 15
CM_WAIT_MIN_S: Final = 0.1  # what a peer's time-outs are bounded by
CM_WAIT_MAX_S: Final = 4.3  # Linux's own
CM_SERVICE_TIMEOUT_CODE: Final = 20  # 4.3 s: the respite that our MRA asks for, once
CM_RESPITE_MAX_S: Final = 10.0  # the one that a peer's MRA gets
CM_TIMEWAIT_S: Final = 4.0  # longer than a datagram lives on any fabric
CM_ACK_TIMEOUT_CODE: Final = 18  # 1.07 s until a packet without ACK breaks the queue pair
CM_CONNECTIONS_MAX: Final = 2 * CONNECTIONS_MAX  # those in time-wait included
CM_HALF_OPEN_MAX: Final = 128  # requests of peers that are not connections yet
CM_HALF_OPEN_PER_PORT_MAX: Final = 16  # and of one port
CM_ANSWERS_PER_S: Final = 100.0  # to datagrams that belong to no connection
RDMACM_ACK_TIMEOUT_CODE: Final = 14  # 67 ms until a packet is sent again; the kernel's is 17
RDMACM_RETRIES: Final = 6  # of a packet: a software adapter loses some; with 7 rxe never gives up
RDMACM_RNR_RETRIES: Final = 6  # 7 is for ever
RDMACM_RESOLVE_S: Final = 2.0  # for the kernel to find an address, and a route
RDMACM_ANSWER_S: Final = 10.0  # for a peer to answer; rdma_cm itself would wait for a minute
CM_ROUND: Final = 64  # datagrams handled before timers and requests have a turn
CM_ANSWERS_BURST: Final = 100.0
