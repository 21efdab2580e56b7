/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cuts a frame with any bytes in its vnet header and its headers: [MTU 2][frame]. The frame lies in
 * memory of exactly its length. Each segment that comes out must be a whole packet with a right
 * checksum, and all of them together the payload of the frame. So must be the fragments of segments
 * that an MTU of half the size takes.
 */
#include <arpa/inet.h>

#include "core/csum.h"
#include "core/ip_header.h"
#include "device/vnet.h"
#include "input.h"
#include "pump/packets/classify.h"
#include "pump/packets/fragment.h"
#include "pump/packets/segment.h"

enum { FRAME_MAX = IPU_VNET_LEN + IPU_VNET_PACKET_MAX };

static void check_head(const uint8_t *packet, uint32_t len)
{
    if (ipu_ip_is_v4(packet)) {
        MUST(ipu_ip_get16(packet + 2) == len);
        MUST(ipu_csum_finish(ipu_csum_add(0, packet, (packet[0] & 15u) * 4)) == 0);
    } else {
        MUST(ipu_ip_get16(packet + 4) + 40u == len);
    }
}

/* The checksum of the transport header is right if that of the frame was: the sum of the pseudo
 * header, as the kernel leaves it. The function judges only frames without extension headers. */
static bool seals(const uint8_t *ip, const struct ipu_segment *segment)
{
    uint16_t found, wanted;
    uint32_t field = segment->start + (segment->tcp ? IPU_TCP_CSUM : IPU_UDP_CSUM);
    uint8_t protocol = segment->tcp ? IPPROTO_TCP : IPPROTO_UDP;
    if (!ipu_ip_is_v4(ip) && segment->start != IPU_IPV6_HEADER)
        return false;
    memcpy(&found, ip + field, 2);
    wanted = (uint16_t)~ipu_csum_finish(
        ipu_csum_pseudo(ip, protocol, segment->packet_len - segment->start));
    return found == wanted;
}

static void check_segment(const uint8_t *packet, uint32_t len, const struct ipu_segment *segment,
                          bool sealed)
{
    uint8_t protocol = segment->tcp ? IPPROTO_TCP : IPPROTO_UDP;
    check_head(packet, len);
    if (!sealed)
        return;
    uint64_t sum = ipu_csum_pseudo(packet, protocol, len - segment->start);
    MUST(ipu_csum_finish(ipu_csum_add(sum, packet + segment->start, len - segment->start)) == 0);
}

static void cut(struct ipu_segment *segment, const uint8_t *frame, uint32_t mtu)
{
    uint8_t *packet = malloc(IPU_SEGMENT_HEAD_MAX + IPU_VNET_PACKET_MAX);
    uint32_t at = segment->head_len, count = segment->left;
    bool sealed = seals(frame + IPU_VNET_LEN, segment);
    MUST(packet != NULL);
    MUST(segment->head_len <= IPU_SEGMENT_HEAD_MAX);
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *payload;
        uint8_t *head = malloc(segment->head_len);
        MUST(head != NULL);
        uint32_t n = ipu_segment_next(segment, head, &payload);
        MUST(payload == frame + IPU_VNET_LEN + at);
        MUST(segment->head_len + n <= mtu);
        memcpy(packet, head, segment->head_len);
        if (n > 0)
            memcpy(packet + segment->head_len, payload, n);
        check_segment(packet, segment->head_len + n, segment, sealed);
        at += n;
        free(head);
    }
    MUST(segment->left == 0);
    MUST(at == segment->packet_len);
    free(packet);
}

static void cut_further(struct ipu_segment *segment, const uint8_t *frame, uint32_t mtu)
{
    uint32_t at = segment->head_len, segments = segment->left;
    int cut_up = ipu_fragment_segments(segment, mtu, 0);
    if (cut_up < 0)
        return;
    MUST((uint32_t)cut_up <= segments);
    MUST(segment->left >= segments + (uint32_t)cut_up);
    while (segment->left > 0) {
        const uint8_t *payload;
        uint8_t *head = malloc(IPU_SEGMENT_HEAD_MAX);
        MUST(head != NULL);
        uint32_t n = ipu_fragment_next(segment, head, &payload);
        MUST(segment->written <= IPU_SEGMENT_HEAD_MAX);
        MUST(segment->written + n <= mtu);
        MUST(payload == frame + IPU_VNET_LEN + at);
        check_head(head, segment->written + n);
        at += n;
        free(head);
    }
    MUST(segment->rest == 0);
    MUST(at == segment->packet_len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input in = {data, bytes};
    uint32_t mtu = input_u16(&in);
    size_t len = in.left < FRAME_MAX ? in.left : FRAME_MAX;
    uint8_t *frame = malloc(len > 0 ? len : 1);
    struct ipu_segment segment;
    struct ipu_flow flow;
    MUST(frame != NULL);
    if (len > 0)
        memcpy(frame, in.at, len);
    if (len >= IPU_VNET_LEN)
        (void)ipu_classify_tx(frame + IPU_VNET_LEN, len - IPU_VNET_LEN, &flow);
    if (ipu_segment_init(&segment, frame, len, mtu) == 0) {
        struct ipu_segment trimmed = segment, further = segment;
        cut(&segment, frame, mtu);
        if (!further.tcp && ipu_segment_fit(&further, mtu / 2) < 0)
            cut_further(&further, frame, mtu / 2);
        MUST(ipu_segment_trim(&trimmed) <= mtu);
    }
    (void)ipu_csum_complete(frame, len);
    free(frame);
    return 0;
}
