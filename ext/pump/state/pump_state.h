/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_PUMP_STATE_H
#define IPU_PUMP_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "core/clock.h"
#include "core/counter.h"
#include "core/csum.h"
#include "core/frame.h"
#include "core/guests.h"
#include "core/ring.h"
#include "core/slab.h"
#include "device/device.h"
#include "fabric/fabric.h"
#include "pump/packets/capture.h"
#include "pump/packets/classify.h"
#include "pump/packets/coalesce.h"
#include "pump/packets/flow_key.h"
#include "pump/packets/segment.h"
#include "pump/records/counters.h"
#include "pump/records/pump_abi.h"
#include "pump/state/host_side.h"
#include "pump/tables/admission.h"
#include "pump/tables/ah_cache.h"
#include "pump/tables/neigh.h"
#include "pump/tables/resolution.h"
#include "pump/tables/route.h"
#include "pump/tables/route_answers.h"
#include "pump/tables/write_share.h"

/*
 * The pump's inside: its state, which the files of the districts below share, and the packet that
 * they pass on to each other. Only the pump's thread touches it.
 */
enum {
    IPU_NS_PER_US = 1000,
    IPU_BATCH = 64,
    /* Room in the batch for the engine's frames alone, so that a saturated device does not block
     * them. */
    IPU_BATCH_ENGINE = 16,
    IPU_COMMAND_WAIT_NS = 250000, /* a command waits so long for the round to end by itself */
};

struct ipu_budget {
    uint64_t second;
    uint32_t left;
};

/* Connected mode: connection.c. Frames of `rx` are [pad 12][encapsulation header 4][IP]: the head
 * of a message starts at byte 12 (behind tap_room), so that a vnet header fits in front, or is
 * there already. */
struct ipu_connection_state {
    struct ipu_slab rx;
    uint32_t *idle;
    uint32_t idle_count;
    struct ipu_connection *all;
    /* No connections: they mark address handles in the modes UD_NOTIFY and UD_CONNECTING. */
    struct ipu_connection notify, connecting;
    uint32_t leaving;

    /* Messages waiting for one doorbell, all to the same connection. */
    struct ipu_send batch[IPU_BATCH];
    struct ipu_connection *to;
    int pending;
    uint32_t pending_bytes;

    /* The connection for which the pump does not read the device, or NULL; since when, or 0: it has
     * not asked the clock yet; and how often it has looked since without a message that ended. */
    struct ipu_connection *held_by;
    uint64_t held_since_ns;
    uint32_t held_looks;
};

/* A write to the device, with the data to count it: its packets, and what made them one frame. */
enum ipu_delivery_kind { IPU_DELIVERY_PLAIN, IPU_DELIVERY_MERGED, IPU_DELIVERY_WHOLE };

struct ipu_delivery {
    enum ipu_delivery_kind kind;
    uint32_t packets;
    size_t bytes;
};

/* The source that ended the sleep before this round; none if there was no sleep of a calm pump. */
enum ipu_woken_by { IPU_WOKEN_NOT, IPU_WOKEN_BY_DEVICE, IPU_WOKEN_BY_OTHERS };

struct ipu_pump {
    struct ipu_fabric *fabric;
    struct ipu_device *device;
    const struct ipu_host_side *host; /* by the kind of frames that the device has */
    uint32_t mtu;                     /* by datagram */
    uint32_t device_mtu;              /* of the device; larger than mtu in connected mode */
    uint32_t read_len;                /* bytes of the longest frame of the device */
    uint32_t recv_len;                /* bytes of one posted receive */
    uint64_t busy_poll_ns;
    bool adaptive;

    struct ipu_slab tx;    /* frames between the device and a completed send */
    uint32_t tap_room;     /* bytes in front of each, and of messages: of the host side */
    struct ipu_slab heads; /* headers of segments, until their send has completed */
    struct ipu_slab rx;    /* frames posted to the fabric or being delivered */
    bool is_tx_wide;       /* the frames have asked for huge pages, those to send */
    bool is_rx_wide;       /* and those to receive */
    struct ipu_neigh_table neigh;
    struct ipu_route_table route;
    struct ipu_route_answers answers;
    struct ipu_ah_cache ahs;
    struct ipu_admission admission;
    struct ipu_resolution resolution;
    struct ipu_guests guests; /* behind a TAP; empty for ever where the device has IP packets */
    struct ipu_ring commands, events, captured;
    struct ipu_capture tap;
    struct ipu_counters counters;

    /* Frames waiting for one doorbell; [0, pending) is filled, all of tx slab. */
    struct ipu_send batch[IPU_BATCH + IPU_BATCH_ENGINE];
    int pending;
    uint32_t pending_packets; /* those of super-frames included */

    /* When this round first saw that a command waits; 0: it has seen none. */
    uint64_t command_seen_ns;

    /* Packets of the engine wait in the command ring: for their turn or for room, which the first
     * of them needs since then (0: it has not waited) and may need for so long. Meanwhile the pump
     * does not read the device, so that no later packet overtakes them. */
    struct {
        bool wait;
        uint64_t room_since_ns, room_left_ns;
        bool room_refused; /* one of them waited in vain, and no send has ended since */
    } engines;

    /* Messages, including those of connections, that the fabric has taken and not reported as
     * ended; whether the last sleep ended without an event; and what ended it, for one round. */
    uint32_t sending;
    bool overdue;
    enum ipu_woken_by woken_by;

    /* The current super-frame: tx_users[index] sends read its frame and, while segments are left,
     * so does cut(). The pump does not read the device before the last segment is in the batch. */
    struct {
        struct ipu_segment segment;
        uint32_t index;
        const struct ipu_ah *ah;
        uint32_t flow, source_qpn;
        struct ipu_connection *connection; /* NULL: by datagram */
    } cut;
    uint32_t fragment_id; /* of the next packet that is cut into fragments */
    uint16_t *tx_users;

    /* By frame of `tx`: a super-frame that the fabric cuts. NULL: it cuts none. */
    struct ipu_super {
        struct ipu_segment segment;
        struct ipu_cut cut;
    } * supers;
    uint32_t uncut_packets; /* of these super-frames */

    /* A frame of the device that waits for room on its connection or for the next commands;
     * IPU_SLAB_NONE: no frame waits. Each round looks up its next hop again, so the frame holds no
     * reference to an address handle. */
    struct {
        uint32_t index;
        size_t len;
        bool before;      /* the current frame has waited once, so commands do not delay it again */
        uint64_t left_ns; /* how long it, or the current super-frame, may still wait; or 0 */
    } held;

    struct ipu_coalesce coalesce;
    struct ipu_write_share share;

    /* The writes that the device has queued. */
    struct {
        struct ipu_delivery frames[IPU_DEVICE_WRITES];
        int count;
    } writing;

    /* The number of frames of `tx` that only the engine uses: the pump reads the device into the
     * others. */
    uint32_t engine_frames;

    /* The frames of `tx`, the first ones, that belong to the device. */
    struct {
        uint32_t frames;
        uint32_t sending; /* how many of them the device has given us */
    } lent;
    bool attached;

    /* The current receive frame, as numbered in device.h; IPU_SLAB_NONE: there is none, or the
     * device has kept it. */
    uint32_t rx_index;

    /* Receive frames to post to the fabric. */
    struct {
        uint32_t *frames;
        uint32_t count;
    } idle_rx;

    struct ipu_connection_state connected;

    bool broken; /* the fabric failed: we send nothing until it has recovered */
    struct {
        uint64_t at_ns;
        uint32_t wait_ms;
    } recovery;
    bool device_failed;

    /* Of events that a peer or a local program can cause. */
    struct {
        struct ipu_budget unreachable, too_big, dhcp, dropped;
        struct ipu_budget unknown;    /* packets of the link to unknown guests */
        struct ipu_budget connecting; /* long packets that wait for connections */
        struct ipu_budget spoofed;    /* packets of guests from addresses of others */
    } budgets;

    /* What the message that we handle came by. */
    struct {
        uint64_t id;  /* its connection; 0: a datagram */
        uint32_t qpn; /* the queue pair to which the datagram came; 0: ours alone can be */
    } receiving;

    /* The engine has changed a DHCP request, so that it wants to see the replies, and the requests
     * to one server. */
    bool dhcp_watched;

    /* What ends a sleep. */
    struct {
        int epoll_fd;
        int device_fds[2]; /* readable when the device has a frame; -1: none */
        bool device_watched;
    } sources;

    struct {
        pthread_t id;
        bool runs;
        atomic_bool stops;
    } thread;
};

#define IPU_ADD(pump, name, n) ipu_counter_add(&(pump)->counters.name, (n))
#define IPU_COUNT(pump, name)  IPU_ADD(pump, name, 1)

/* Returns whether a command has waited for so long that the round has to end. */
static inline bool ipu_round_is_over(struct ipu_pump *pump)
{
    if (!ipu_ring_has_record(&pump->commands))
        return false;
    uint64_t now_ns = ipu_clock_ns();
    if (pump->command_seen_ns == 0)
        pump->command_seen_ns = now_ns;
    return now_ns - pump->command_seen_ns >= IPU_COMMAND_WAIT_NS;
}

/*
 * A packet to send. `engines`: the engine sends it, and the pump never holds it. The pump drops it
 * where it misses, unless it `may_miss`, and where the kernel has to be asked for its route, unless
 * it `may_ask`: otherwise what the engine's answer does not help would go back and forth.
 */
struct ipu_outbound {
    uint8_t *frame; /* [vnet][IP], of `tx` */
    uint32_t index; /* of the frame */
    bool engines, may_miss, may_ask;
    bool again; /* set: the engine's packet has to wait for room on its connection */
    size_t ip_len;
    struct ipu_segment *segment; /* how to cut a super-frame; else NULL */
    struct ipu_flow flow;
    uint32_t flow_hash;  /* where the fabric spreads flows; else 0 */
    uint32_t source_qpn; /* a guest's own; else 0 */
};

/* Returns a frame of `tx`: [vnet][IP]. */
static inline uint8_t *ipu_tx_frame(const struct ipu_pump *pump, uint32_t index)
{
    return ipu_slab_at(&pump->tx, index) + pump->tap_room;
}

/* Completes a checksum that the device left incomplete. False: it cannot, and the packet ends here,
 * counted. */
static inline bool ipu_tx_complete(struct ipu_pump *pump, const struct ipu_outbound *packet)
{
    if (ipu_csum_complete(packet->frame, IPU_VNET_LEN + packet->ip_len) == 0)
        return true;
    IPU_COUNT(pump, tx_bad_csum);
    return false;
}

#endif
