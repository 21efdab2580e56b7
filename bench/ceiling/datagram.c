/* SPDX-License-Identifier: BSD-2-Clause */
#include "ceiling.h"

#include <errno.h>
#include <unistd.h>

#include "core/csum.h"
#include "core/ip_header.h"
#include "device/train.h"
#include "pump/packets/segment.h"

enum {
    HEAD_BYTES = SOFT_ROCE_BTH_BYTES + SOFT_ROCE_DETH_BYTES + IPU_ENCAP_LEN,
    QKEY = 0x0B1B,
};

_Static_assert(HEAD_BYTES >= IPU_VNET_LEN, "the merger has the room of the headers");

static void write_merged(void *context, const struct iovec *iov, uint32_t packets, size_t bytes)
{
    struct ceiling *self = context;
    (void)bytes;
    if (writev(self->tun, iov, (int)packets) < 0 && errno == EBADFD)
        self->error = -errno;
}

static bool admit(void *context, uint32_t sender, uint32_t packets)
{
    (void)context, (void)sender, (void)packets;
    return true;
}

void ceiling_datagram_init(struct ceiling *self)
{
    ipu_coalesce_init(&self->merge, IPU_COALESCE_TCP | IPU_COALESCE_UDP, write_merged, admit, self);
}

static int flush(struct ceiling *self)
{
    int error = self->made_bytes == 0
                    ? 0
                    : ipu_train_send(self->udp, self->made, self->made_bytes, self->made_each);
    self->made_bytes = self->made_packets = 0;
    return error;
}

/* Makes the packet at the end of the train, where `head` bytes of the IP packet stand. Sends the
 * train when no other packet may follow. */
static int add_packet(struct ceiling *self, uint32_t head, const uint8_t *payload, uint32_t len)
{
    uint8_t *packet = self->made + self->made_bytes;
    struct soft_roce roce = {.opcode = SOFT_ROCE_UD_SEND,
                             .pad_bytes = -(head + len) & 3,
                             .pkey = 0xFFFF,
                             .dest_qpn = CEILING_QPN,
                             .psn = self->psn++,
                             .qkey = QKEY,
                             .src_qpn = CEILING_QPN};
    size_t at = soft_roce_pack(packet, &roce);
    soft_roce_put32(packet + at, IPU_TYPE_IPV4 << 16);
    size_t bytes = ceiling_seal(self, packet, HEAD_BYTES + head, payload, len);
    if (self->made_packets == 0)
        self->made_each = bytes;
    self->made_bytes += bytes;
    self->made_packets++;
    bool full = self->made_packets == CEILING_TRAIN_PACKETS || bytes < self->made_each ||
                self->made_bytes + self->made_each > CEILING_TRAIN_BYTES;
    return full ? flush(self) : 0;
}

static int send_cut(struct ceiling *self, struct ipu_segment *segment)
{
    while (segment->left > 0) {
        uint8_t *ip = self->made + self->made_bytes + HEAD_BYTES;
        const uint8_t *payload;
        uint32_t n = ipu_segment_next(segment, ip, &payload);
        int error = add_packet(self, segment->head_len, payload, n);
        if (error < 0)
            return error;
    }
    return flush(self);
}

int ceiling_datagram_send(struct ceiling *self)
{
    uint8_t *ip = self->frame + IPU_VNET_LEN;
    ssize_t len = read(self->tun, self->frame, sizeof self->frame);
    if (len < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if ((size_t)len < IPU_VNET_LEN + IPU_IPV4_HEADER || !ipu_ip_is_v4(ip))
        return 1;
    struct ipu_segment segment;
    int error = 0;
    if (ipu_segment_init(&segment, self->frame, (size_t)len, CEILING_MTU) == 0) {
        error = send_cut(self, &segment);
    } else if ((size_t)len <= IPU_VNET_LEN + CEILING_MTU &&
               ipu_csum_complete(self->frame, (size_t)len) == 0) {
        error = add_packet(self, 0, ip, (uint32_t)len - IPU_VNET_LEN);
        error = error < 0 ? error : flush(self);
    }
    return error < 0 ? error : 1;
}

int ceiling_datagram_take_untrusted(struct ceiling *self)
{
    for (size_t at = 0; at < self->train_bytes;) {
        struct soft_roce packet;
        uint8_t *payload;
        size_t bytes;
        if (!ceiling_next_untrusted(self, &at, &packet, &payload, &bytes))
            continue;
        if (packet.opcode == SOFT_ROCE_UD_SEND && packet.qkey == QKEY &&
            bytes >= IPU_ENCAP_LEN + IPU_IPV4_HEADER &&
            soft_roce_get32(payload) == IPU_TYPE_IPV4 << 16)
            ipu_coalesce_add_untrusted(&self->merge, 0, payload + IPU_ENCAP_LEN,
                                       bytes - IPU_ENCAP_LEN);
        else
            self->refused++;
    }
    ipu_coalesce_flush(&self->merge);
    return self->error;
}
