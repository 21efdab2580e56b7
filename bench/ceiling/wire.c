/* SPDX-License-Identifier: BSD-2-Clause */
#include "ceiling.h"

#include <errno.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>

#include "soft/crc32.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103 /* Linux 4.18 */
#endif
#ifndef UDP_GRO
#define UDP_GRO 104 /* Linux 5.0 */
#endif

enum { ROCE_PORT = 4791 };

/* A train has one or two lengths, and few other lengths are frequent. */
static uint32_t seed_of(struct ceiling *self, bool received, size_t bytes)
{
    struct ceiling_seed *kept = &self->seeds[received][bytes / 4 % CEILING_SEEDS];
    if (kept->bytes != bytes) {
        kept->bytes = (uint32_t)bytes;
        kept->seed = soft_icrc_seed(&self->ends[received], &self->ends[!received], ROCE_PORT,
                                    ROCE_PORT, (uint16_t)bytes);
    }
    return kept->seed;
}

size_t ceiling_seal(struct ceiling *self, uint8_t *packet, size_t head, const uint8_t *payload,
                    size_t bytes)
{
    size_t len = head + bytes, pad = -len & 3;
    uint32_t crc = seed_of(self, false, len + pad + SOFT_ICRC_BYTES);
    uint8_t masked = packet[SOFT_ROCE_MASKED_BYTE];
    packet[SOFT_ROCE_MASKED_BYTE] = 0xFF;
    crc = soft_crc32_update(crc, packet, head);
    packet[SOFT_ROCE_MASKED_BYTE] = masked;
    if (bytes > 0)
        crc = soft_crc32_copy(crc, packet + head, payload, bytes);
    memset(packet + len, 0, pad);
    if (pad > 0)
        crc = soft_crc32_update(crc, packet + len, pad);
    soft_roce_put32le(packet + len + pad, crc);
    return len + pad + SOFT_ICRC_BYTES;
}

int ceiling_send(const struct ceiling *self, const void *train, size_t bytes, size_t each)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(uint16_t))] = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)train, .iov_len = bytes};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (bytes > each) {
        uint16_t segment = (uint16_t)each;
        msg.msg_control = control;
        msg.msg_controllen = sizeof control;
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_UDP;
        c->cmsg_type = UDP_SEGMENT;
        c->cmsg_len = CMSG_LEN(sizeof segment);
        memcpy(CMSG_DATA(c), &segment, sizeof segment);
    }
    return sendmsg(self->udp, &msg, 0) < 0 && errno == EBADF ? -EBADF : 0;
}

int ceiling_receive(struct ceiling *self)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct iovec iov = {.iov_base = self->train, .iov_len = sizeof self->train};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t len = recvmsg(self->udp, &msg, 0);
    if (len < 0)
        return errno == EAGAIN || errno == EINTR || errno == ECONNREFUSED ? 0 : -errno;
    self->train_bytes = self->each = (size_t)len;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c != NULL; c = CMSG_NXTHDR(&msg, c)) {
        int each;
        if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO) {
            memcpy(&each, CMSG_DATA(c), sizeof each);
            self->each = (size_t)each;
        }
    }
    return 1;
}

bool ceiling_next_untrusted(struct ceiling *self, size_t *at, struct soft_roce *packet,
                            uint8_t **payload, size_t *bytes)
{
    uint8_t *start = self->train + *at;
    size_t left = self->train_bytes - *at;
    size_t len = left < self->each ? left : self->each;
    const uint8_t *found;
    *at += len;
    bool good = soft_roce_parse_bth_untrusted(start, len, packet) == SOFT_ROCE_OK &&
                packet->dest_qpn == CEILING_QPN && packet->pkey == 0xFFFF &&
                soft_roce_parse_rest_untrusted(start, len, packet, &found, bytes) == SOFT_ROCE_OK &&
                soft_icrc_check(seed_of(self, true, len), start, len);
    if (!good) {
        self->refused++;
        return false;
    }
    *payload = start + (found - start);
    return true;
}
