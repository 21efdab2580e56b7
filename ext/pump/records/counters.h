/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_COUNTERS_H
#define IPU_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

/*
 * The pump's counters. ipoibu/daemon/metrics/counters.toml explains each of them to operators, and
 * lists in `ends` those of which a packet from the device ends in exactly one tx_*, and a packet
 * from the fabric in one rx_*. docs/understand/changing.md adds one.
 */
#define IPU_COUNTERS(X)                                                                            \
    X(tx_packets)            /* taken by the fabric */                                             \
    X(tx_bytes)              /* of IP */                                                           \
    X(tx_multicast_packets)  /* of tx_packets */                                                   \
    X(tx_malformed)          /* not an IP packet */                                                \
    X(tx_missed)             /* no entry, or no connection yet: given to the engine */             \
    X(tx_unresolved_hold)    /* resolution is under way, its queue is full */                      \
    X(tx_resolution_limited) /* no entry: too many resolutions, or questions about routes */       \
    X(tx_error_unresolved)   /* no entry: an ICMP error, which begins no resolution */             \
    X(tx_unreachable)        /* resolution failed */                                               \
    X(tx_too_big)            /* above the next hop's MTU */                                        \
    X(tx_connecting)         /* above the MTU of datagrams, too many before the connection */      \
    X(tx_no_route)           /* an unreachable route */                                            \
    X(route_answers_evicted) /* the kernel's answers that a full table forgot */                   \
    X(tx_event_ring_full)    /* the engine is behind */                                            \
    X(tx_fabric_error)       /* the queue pair was broken */                                       \
    X(tx_device_error)       /* a read of the device failed */                                     \
    X(tx_bad_csum)           /* csum_start or csum_offset outside the packet */                    \
    X(tx_bad_gso)            /* a super-frame that cannot be cut */                                \
    X(tx_super_frames)       /* cut into some of tx_packets */                                     \
    X(tx_fragmented)         /* a packet to a group, cut into some of tx_packets */                \
    X(tx_host_nd)            /* the host's own ARP or ND: the engine sends these */                \
    X(tx_not_ip)             /* a guest's frame of another protocol */                             \
    X(tx_vlan)               /* a guest's frame with a VLAN tag */                                 \
    X(tx_vlan_full)          /* the pump of the frame's VLAN is behind */                          \
    X(tx_spoofed)            /* a guest's packet from the address of another guest */              \
    X(tx_connected_packets)  /* of tx_packets: by a connection */                                  \
    X(tx_connection_full)    /* the connection has too much under way, and makes no progress */    \
    X(tx_connection_failed)  /* taken, and then the connection broke */                            \
    X(rx_packets)            /* taken by the device */                                             \
    X(rx_bytes)              /* of IP */                                                           \
    X(rx_copied)             /* of rx_packets: the application holds as many frames as it may */   \
    X(rx_merged_frames)      /* merged from some of rx_packets */                                  \
    X(rx_merged)             /* of rx_packets: in merged frames */                                 \
    X(rx_connected_messages) /* received by connections */                                         \
    X(rx_superframes)        /* of them: super-frames of the peer, whole */                        \
    X(rx_bad_superframe)     /* a vnet header that does not fit its packet */                      \
    X(rx_too_many_segments)  /* a super-frame that asks for too many or too small packets */       \
    X(rx_from_engine)        /* the engine's own packets for the host, and ND that it passes on */ \
    X(rx_control)            /* ARP, ND, membership: given to the engine */                        \
    X(rx_unconcerned)        /* ARP or ND between others, of no neighbour */                       \
    X(rx_control_limited)    /* ARP or ND: too many messages */                                    \
    X(rx_over_share)         /* single packets of a sender that has used up its share */           \
    X(rx_unknown_guest)      /* to an address that no guest has, too many in a second */           \
    X(rx_short)              /* no room for the encapsulation header */                            \
    X(rx_type)               /* a type that we do not carry (E3) */                                \
    X(rx_echo)               /* our own multicast (E8) */                                          \
    X(rx_malformed)          /* not the IP packet that its type says */                            \
    X(rx_failed)             /* flushed or in error */                                             \
    X(rx_device_full)        /* the device has no room */                                          \
    X(rx_device_error)       /* the device refused it */                                           \
    X(rx_event_ring_full)    /* the engine is behind */                                            \
    X(commands)              /* records of the command ring */                                     \
    X(commands_bad)          /* malformed, or refused for lack of room */                          \
    X(events)                /* records put on the event ring */                                   \
    X(capture_packets)       /* given to the capture ring */                                       \
    X(capture_dropped)       /* the capture ring was full */                                       \
    X(fabric_errors)         /* the queue pair broke */                                            \
    X(fabric_recoveries)     /* and came back */                                                   \
    X(send_batches)          /* calls of send */                                                   \
    X(wakeups)               /* returns from sleep */

#define IPU_COUNTERS_FIELD(name) _Atomic uint64_t name;
#define IPU_COUNTERS_INDEX(name) IPU_COUNTER_##name,

/* Each counter's place in ipu_counters_names. */
enum ipu_counter { IPU_COUNTERS(IPU_COUNTERS_INDEX) IPU_COUNTERS_N };

/* The pump's thread adds (core/counter.h), and any thread reads: each number is whole, but the
 * numbers are not all of one moment. */
struct ipu_counters {
    IPU_COUNTERS(IPU_COUNTERS_FIELD)
};

static inline _Atomic uint64_t *ipu_counters_at(struct ipu_counters *counters,
                                                enum ipu_counter counter)
{
    return (_Atomic uint64_t *)counters + counter;
}

/* Reads all values, in the order of ipu_counters_names. */
void ipu_counters_read(const struct ipu_counters *counters, uint64_t values[IPU_COUNTERS_N]);

extern const char *const ipu_counters_names[IPU_COUNTERS_N];

#endif
