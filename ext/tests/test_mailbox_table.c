/* SPDX-License-Identifier: BSD-2-Clause */
/* The buffers of queue pair 1 of the built-in HCA, which the test gives packets without a socket.
 */
#include "fabric/soft_gsi.h"
#include "soft/icrc.h"
#include "soft/objects.h"
#include "table_rows.h"

enum { PACKET = SOFT_ROCE_HEAD_MAX + IPU_SOFT_GSI_MAD_LEN + SOFT_ROCE_TAIL_MAX };

static struct soft_hca *hca;
static struct ipu_soft_gsi mailbox;

static void open_mailbox(void)
{
    struct soft_hca_attr attr = {
        .gid = address(1), .active_mtu_bytes = 4096, .datagram_bytes = 4096};
    CHECK_EQ(soft_hca_create(&attr, &hca), 0);
    CHECK_EQ(ipu_soft_gsi_init(&mailbox, &hca), 0);
}

static void close_mailbox(void)
{
    ipu_soft_gsi_free(&mailbox);
    soft_hca_close(hca);
}

/* Delivers a datagram of the host of this number. */
static void add_datagram(uint32_t number)
{
    uint8_t data[PACKET] = {0};
    const struct soft_roce head = {.opcode = SOFT_ROCE_UD_SEND,
                                   .pkey = 0xffff,
                                   .dest_qpn = 1,
                                   .qkey = SOFT_QKEY_GSI,
                                   .src_qpn = 1};
    struct soft_udp_packet packet = {
        .data = data, .src = address(number + 2), .dst = address(1), .src_port = SOFT_UDP_PORT};
    packet.bytes = soft_roce_pack(data, &head) + IPU_SOFT_GSI_MAD_LEN + SOFT_ICRC_BYTES;
    soft_lock_acquire(hca);
    soft_progress_take(hca, &packet, true);
    soft_lock_release(hca);
}

static uint32_t count_datagrams(void)
{
    return soft_cq_count(mailbox.cq);
}

static uint64_t datagrams_lost(void)
{
    struct soft_hca_counters counters;
    soft_hca_counters(hca, &counters);
    return counters.value[SOFT_C_DROP_GSI];
}

/* Reads all, and waits until buffers are posted again. */
static bool admits_datagram(void)
{
    struct ipu_soft_mad mad;
    const struct in6_addr honest = address(HONEST + 2);
    while (ipu_soft_gsi_receive(&mailbox, &mad) == 1)
        continue;
    mailbox.refilled_ns = 0;
    CHECK_EQ(ipu_soft_gsi_receive(&mailbox, &mad), 0);
    uint64_t before = datagrams_lost();
    add_datagram(HONEST);
    return datagrams_lost() == before && ipu_soft_gsi_receive(&mailbox, &mad) == 1 &&
           memcmp(&mad.sgid, &honest, sizeof honest) == 0;
}

static const struct row row = {"datagrams to queue pair 1",
                               IPU_SOFT_GSI_DEPTH,
                               open_mailbox,
                               add_datagram,
                               count_datagrams,
                               datagrams_lost,
                               admits_datagram,
                               close_mailbox,
                               0,
                               false};

int main(void)
{
    fill_tables(&row, 1);
    return 0;
}
