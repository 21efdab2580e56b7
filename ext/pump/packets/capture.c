/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/packets/capture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "core/frame.h"
#include "pump/records/pump_abi.h"

enum {
    GRH_VERSION = 6,
    GRH_NEXT_BTH = 0x1b,        /* InfiniBand: the header behind the GRH is a transport header */
    TRANSPORT_LEN = 12 + 8 + 4, /* BTH, DETH, ICRC: the GRH's payload length counts them */
};

/* Copies as many bytes as there is room for; returns the room left. */
static size_t keep(uint8_t **to, size_t room, const void *data, size_t len)
{
    size_t n = len < room ? len : room;
    if (n > 0)
        memcpy(*to, data, n);
    *to += n;
    return room - n;
}

static int record(const struct ipu_capture *tap, bool outgoing, const void *grh,
                  const struct ipu_send *frame)
{
    struct timespec now;
    size_t wire_len = IPU_GRH_LEN + frame->head_len + frame->len;
    size_t kept = wire_len < tap->snap_len ? wire_len : tap->snap_len;
    struct ipu_captured *head = ipu_ring_reserve(tap->ring, (uint32_t)(sizeof *head + kept));
    if (head == NULL)
        return -ENOSPC;
    clock_gettime(CLOCK_REALTIME, &now);
    *head = (struct ipu_captured){
        .time_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec,
        .outgoing = outgoing,
        .wire_len = (uint32_t)wire_len,
        .len = (uint32_t)kept,
    };
    uint8_t *data = (uint8_t *)(head + 1);
    if (grh != NULL)
        memcpy(data, grh, IPU_GRH_LEN);
    else
        memset(data, 0, IPU_GRH_LEN);
    data += IPU_GRH_LEN;
    size_t room = keep(&data, kept - IPU_GRH_LEN, frame->head, frame->head_len);
    keep(&data, room, frame->addr, frame->len);
    ipu_ring_commit(tap->ring, (uint32_t)(sizeof *head + kept));
    return 0;
}

int ipu_capture_received(const struct ipu_capture *tap, const void *grh, const void *frame,
                         size_t len)
{
    return record(tap, false, grh, &(struct ipu_send){.addr = frame, .len = (uint32_t)len});
}

int ipu_capture_sent(const struct ipu_capture *tap, const struct in6_addr *our_gid,
                     const struct ipu_dest *dest, const struct ipu_send *send)
{
    uint8_t grh[IPU_GRH_LEN];
    uint32_t flow = htonl((uint32_t)GRH_VERSION << 28 | (uint32_t)dest->traffic_class << 20 |
                          (dest->flow_label & 0xfffff));
    uint16_t payload_len = htons((uint16_t)(send->head_len + send->len + TRANSPORT_LEN));
    memcpy(grh, &flow, 4);
    memcpy(grh + 4, &payload_len, 2);
    grh[6] = GRH_NEXT_BTH;
    grh[7] = dest->hop_limit;
    memcpy(grh + 8, our_gid, 16);
    memcpy(grh + 24, &dest->gid, 16);
    return record(tap, true, grh, send);
}
