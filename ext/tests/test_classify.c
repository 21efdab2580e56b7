/* SPDX-License-Identifier: BSD-2-Clause */
/* What becomes of each type of ICMPv6 message: the numbers here are those of the RFCs. */
#include <string.h>

#include "check.h"
#include "core/frame.h"
#include "core/ip_header.h"
#include "pump/packets/classify.h"

enum { LEN = IPU_IPV6_HEADER + 8 };

/* Writes a message of this type from fe80::1 to ff02::1, or to fe80::2. */
static void write_message(uint8_t *ip, uint8_t type, bool to_group)
{
    memset(ip, 0, LEN);
    ip[0] = 0x60;
    ip[5] = LEN - IPU_IPV6_HEADER;
    ip[IPU_IPV6_NEXT_HEADER] = IPPROTO_ICMPV6;
    ip[IPU_IPV6_SOURCE] = 0xfe, ip[IPU_IPV6_SOURCE + 1] = 0x80, ip[IPU_IPV6_SOURCE + 15] = 1;
    memcpy(ip + IPU_IPV6_DESTINATION, to_group ? "\xff\x02" : "\xfe\x80", 2);
    ip[IPU_IPV6_DESTINATION + 15] = to_group ? 1 : 2;
    ip[IPU_IPV6_HEADER] = type;
}

static bool is_mld(int type) /* RFC 2710 §3, RFC 3810 §5.2 */
{
    return (type >= 130 && type <= 132) || type == 143;
}

static void the_engine_sends_solicitations_and_follows_mld_to_groups(void)
{
    uint8_t ip[LEN];
    struct ipu_flow flow;
    for (int type = 0; type <= UINT8_MAX; type++)
        for (int to_group = 0; to_group <= 1; to_group++) {
            write_message(ip, (uint8_t)type, to_group);
            enum ipu_tx_class expected = type == 135 || type == 136 ? IPU_TX_ND
                                         : is_mld(type) && to_group ? IPU_TX_HOST
                                                                    : IPU_TX_FORWARD;
            CHECK_EQ(ipu_classify_tx(ip, LEN, &flow), expected);
        }
}

static void the_engine_gets_neighbour_discovery_alone(void)
{
    uint8_t frame[IPU_ENCAP_LEN + LEN] = {IPU_TYPE_IPV6 >> 8, IPU_TYPE_IPV6 & 0xff};
    for (int type = 0; type <= UINT8_MAX; type++) {
        bool is_nd = type >= 133 && type <= 137; /* RFC 4861 §4 */
        write_message(frame + IPU_ENCAP_LEN, (uint8_t)type, true);
        CHECK_EQ(ipu_classify_rx_untrusted(frame, sizeof frame),
                 is_nd ? IPU_RX_ENGINE : IPU_RX_DELIVER);
        CHECK_EQ(ipu_classify_is_nd(frame + IPU_ENCAP_LEN, LEN), is_nd);
    }
}

static void another_protocol_is_no_message(void)
{
    uint8_t frame[IPU_ENCAP_LEN + LEN] = {IPU_TYPE_IPV6 >> 8, IPU_TYPE_IPV6 & 0xff};
    struct ipu_flow flow;
    write_message(frame + IPU_ENCAP_LEN, 135, true);
    frame[IPU_ENCAP_LEN + IPU_IPV6_NEXT_HEADER] = IPPROTO_UDP;
    CHECK_EQ(ipu_classify_rx_untrusted(frame, sizeof frame), IPU_RX_DELIVER);
    CHECK_EQ(ipu_classify_tx(frame + IPU_ENCAP_LEN, LEN, &flow), IPU_TX_FORWARD);
}

int main(void)
{
    RUN(the_engine_sends_solicitations_and_follows_mld_to_groups);
    RUN(the_engine_gets_neighbour_discovery_alone);
    RUN(another_protocol_is_no_message);
    return 0;
}
