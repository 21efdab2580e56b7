/* SPDX-License-Identifier: BSD-2-Clause */
#include "ceiling.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "core/ip_header.h"
#include "device/train.h"

enum {
    PSN_MASK = 0xFFFFFF,
    PSN_HALF = 0x800000,
    NAK_SEQUENCE = 0x60, /* syndromes of the AETH */
    NAK_BITS = 0xE0,
};
#define RESEND_NS 100000000u

static uint32_t packet_stride(uint32_t packet_bytes)
{
    return SOFT_ROCE_BTH_BYTES + packet_bytes + SOFT_ICRC_BYTES;
}

static uint32_t train_packets(uint32_t packet_bytes)
{
    uint32_t packets = CEILING_TRAIN_BYTES / packet_stride(packet_bytes);
    return packets < CEILING_TRAIN_PACKETS ? packets : CEILING_TRAIN_PACKETS;
}

uint32_t ceiling_mtu(uint32_t packet_bytes)
{
    return packet_bytes == 0 ? CEILING_MTU
                             : train_packets(packet_bytes) * packet_bytes - IPU_VNET_LEN;
}

void ceiling_connected_init(struct ceiling *self)
{
    uint32_t most = (CEILING_FRAME + self->packet_bytes - 1) / self->packet_bytes;
    self->train_packets = train_packets(self->packet_bytes);
    self->most_packets = most;
    self->slot_bytes = most * packet_stride(self->packet_bytes);
}

/* ---- the sender ------------------------------------------------------------------------------ */

/* Returns where the next message goes; CEILING_WINDOW: there is no room. */
static uint32_t next_slot(const struct ceiling *self)
{
    uint32_t first = self->kept[self->oldest].at, end = self->next_at + self->slot_bytes;
    if (self->waiting == 0)
        return 0;
    if (self->waiting + self->most_packets > CEILING_KEPT)
        return CEILING_WINDOW;
    if (self->next_at <= first)
        return end <= first ? self->next_at : CEILING_WINDOW;
    if (end <= CEILING_WINDOW)
        return self->next_at;
    return self->slot_bytes <= first ? 0 : CEILING_WINDOW;
}

bool ceiling_has_room(const struct ceiling *self)
{
    return next_slot(self) != CEILING_WINDOW;
}

static uint8_t opcode_of(uint32_t i, uint32_t packets)
{
    if (packets == 1)
        return SOFT_ROCE_RC_SEND_ONLY;
    if (i == 0)
        return SOFT_ROCE_RC_SEND_FIRST;
    return i < packets - 1 ? SOFT_ROCE_RC_SEND_MIDDLE : SOFT_ROCE_RC_SEND_LAST;
}

static int send_train(struct ceiling *self, const struct ceiling_train *train)
{
    return ipu_train_send(self->udp, self->window + train->at, train->bytes,
                          packet_stride(self->packet_bytes));
}

static int end_train(struct ceiling *self, struct ceiling_train *train)
{
    self->kept[(self->oldest + self->waiting++) % CEILING_KEPT] = *train;
    int error = send_train(self, train);
    *train = (struct ceiling_train){.at = train->at + train->bytes, .psn = self->psn};
    return error;
}

/* Makes packets of the message whose payloads stand at their places from `at` on. */
static int send_message(struct ceiling *self, uint32_t at, uint32_t len)
{
    uint32_t packets = (len + self->packet_bytes - 1) / self->packet_bytes;
    struct ceiling_train train = {.at = at, .psn = self->psn};
    int error = 0;
    for (uint32_t i = 0; i < packets && error == 0; i++) {
        uint8_t *packet = self->window + at + i * packet_stride(self->packet_bytes);
        uint32_t rest = len - i * self->packet_bytes;
        uint32_t n = rest < self->packet_bytes ? rest : self->packet_bytes;
        bool last = ++train.packets == self->train_packets || i == packets - 1;
        struct soft_roce roce = {.opcode = opcode_of(i, packets),
                                 .ack_request = last,
                                 .pad_bytes = -n & 3,
                                 .pkey = 0xFFFF,
                                 .dest_qpn = CEILING_QPN,
                                 .psn = self->psn};
        size_t head = soft_roce_pack(packet, &roce);
        train.bytes += (uint32_t)ceiling_seal(self, packet, head + n, NULL, 0);
        self->psn = (self->psn + 1) & PSN_MASK;
        error = last ? end_train(self, &train) : 0;
    }
    self->next_at = (train.at + 63) / 64 * 64;
    return error;
}

int ceiling_connected_send(struct ceiling *self, uint64_t now_ns)
{
    uint32_t at = next_slot(self);
    if (at == CEILING_WINDOW)
        return 0;
    struct iovec iov[CEILING_PIECES];
    uint8_t *payload = self->window + at + SOFT_ROCE_BTH_BYTES;
    for (uint32_t i = 0; i < self->most_packets; i++)
        iov[i] =
            (struct iovec){payload + i * packet_stride(self->packet_bytes), self->packet_bytes};
    ssize_t len = readv(self->tun, iov, (int)self->most_packets);
    if (len < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if ((size_t)len < IPU_VNET_LEN + IPU_IPV4_HEADER || !ipu_ip_is_v4(payload + IPU_TX_IP))
        return 1;
    soft_roce_put32(payload + IPU_TX_ENCAP, IPU_TYPE_IPV4 << 16);
    if (self->waiting == 0)
        self->since_ns = now_ns;
    int error = send_message(self, at, (uint32_t)len);
    return error < 0 ? error : 1;
}

static int resend(struct ceiling *self, uint64_t now_ns)
{
    self->since_ns = now_ns;
    for (uint32_t i = 0; i < self->waiting; i++) {
        int error = send_train(self, &self->kept[(self->oldest + i) % CEILING_KEPT]);
        if (error < 0)
            return error;
        self->resent++;
    }
    return 0;
}

int ceiling_resend_due(struct ceiling *self, uint64_t now_ns)
{
    return self->waiting > 0 && now_ns - self->since_ns >= RESEND_NS ? resend(self, now_ns) : 0;
}

/* Forgets the trains whose packets all come before `psn`. */
static void acknowledge(struct ceiling *self, uint32_t psn, uint64_t now_ns)
{
    while (self->waiting > 0) {
        const struct ceiling_train *train = &self->kept[self->oldest];
        if (((psn - (train->psn + train->packets)) & PSN_MASK) >= PSN_HALF)
            return;
        self->oldest = (self->oldest + 1) % CEILING_KEPT;
        self->waiting--;
        self->since_ns = now_ns;
    }
}

/* ---- the receiver ---------------------------------------------------------------------------- */

static int answer(struct ceiling *self, uint8_t syndrome, uint32_t psn)
{
    uint8_t packet[SOFT_ROCE_BTH_BYTES + SOFT_ROCE_AETH_BYTES + SOFT_ICRC_BYTES];
    struct soft_roce roce = {.opcode = SOFT_ROCE_RC_ACK,
                             .pkey = 0xFFFF,
                             .dest_qpn = CEILING_QPN,
                             .psn = psn & PSN_MASK,
                             .syndrome = syndrome,
                             .msn = self->msn};
    ceiling_seal(self, packet, soft_roce_pack(packet, &roce), NULL, 0);
    return ipu_train_send(self->udp, packet, sizeof packet, sizeof packet);
}

static int write_message(struct ceiling *self)
{
    const struct iovec *first = &self->iov[0];
    self->msn++;
    if (self->pieces == 0 || first->iov_len < IPU_VNET_LEN + IPU_IPV4_HEADER ||
        soft_roce_get32((uint8_t *)first->iov_base + IPU_TX_ENCAP) != IPU_TYPE_IPV4 << 16) {
        self->refused++;
        return 0;
    }
    bool failed = writev(self->tun, self->iov, (int)self->pieces) < 0 && errno == EBADFD;
    return failed ? -EBADFD : 0;
}

/* Adds a packet's payload to the message, and writes the message after its last packet. */
static int take_payload(struct ceiling *self, const struct soft_roce *packet, uint8_t *payload,
                        size_t bytes)
{
    int error = 0;
    if (packet->opcode == SOFT_ROCE_RC_SEND_FIRST || packet->opcode == SOFT_ROCE_RC_SEND_ONLY)
        self->pieces = 0, self->collected = 0;
    if (self->pieces < CEILING_PIECES)
        self->iov[self->pieces++] = (struct iovec){payload, bytes};
    if (packet->opcode == SOFT_ROCE_RC_SEND_LAST || packet->opcode == SOFT_ROCE_RC_SEND_ONLY) {
        error = write_message(self);
        self->pieces = 0, self->collected = 0;
    }
    return error;
}

/* Keeps the pieces of a message that goes on in the next train. */
static void collect(struct ceiling *self)
{
    for (uint32_t i = self->collected > 0; i < self->pieces; i++) {
        size_t n = self->iov[i].iov_len;
        if (self->collected + n > sizeof self->rest)
            break;
        memcpy(self->rest + self->collected, self->iov[i].iov_base, n);
        self->collected += n;
    }
    self->pieces = 1;
    self->iov[0] = (struct iovec){self->rest, self->collected};
}

static int take_request(struct ceiling *self, const struct soft_roce *packet, uint8_t *payload,
                        size_t bytes)
{
    uint32_t ahead = (packet->psn - self->expected_psn) & PSN_MASK;
    if (ahead >= PSN_HALF) /* a second time */
        return packet->ack_request ? answer(self, 0, self->expected_psn - 1) : 0;
    if (ahead > 0) {
        bool known = self->gap;
        self->gap = true;
        return known ? 0 : answer(self, NAK_SEQUENCE, self->expected_psn);
    }
    self->gap = false;
    self->expected_psn = (self->expected_psn + 1) & PSN_MASK;
    int error = take_payload(self, packet, payload, bytes);
    if (error == 0 && packet->ack_request)
        error = answer(self, 0, packet->psn);
    return error;
}

int ceiling_connected_take_untrusted(struct ceiling *self, uint64_t now_ns)
{
    int error = 0;
    for (size_t at = 0; at < self->train_bytes && error == 0;) {
        struct soft_roce packet;
        uint8_t *payload;
        size_t bytes;
        if (!ceiling_next_untrusted(self, &at, &packet, &payload, &bytes))
            continue;
        if (packet.opcode <= SOFT_ROCE_RC_SEND_ONLY &&
            packet.opcode != SOFT_ROCE_RC_SEND_LAST_IMM) {
            error = take_request(self, &packet, payload, bytes);
        } else if (packet.opcode == SOFT_ROCE_RC_ACK) {
            bool nak = (packet.syndrome & NAK_BITS) != 0;
            acknowledge(self, packet.psn + !nak, now_ns);
            error = nak ? resend(self, now_ns) : 0;
        } else {
            self->refused++;
        }
    }
    if (self->pieces > 0)
        collect(self);
    return error;
}
