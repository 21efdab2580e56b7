/* SPDX-License-Identifier: BSD-2-Clause */
/* The MACs of hosts, by GID and queue pair number. */
#include "core/host_macs.h"

#include <errno.h>

#include "check.h"

enum { MAX = 1000 };

static const struct in6_addr gid = {.s6_addr = {0xfe, 0x80, [15] = 1}};

static void mac_of(uint32_t number, uint8_t mac[IPU_MAC_LEN])
{
    memset(mac, 2, IPU_MAC_LEN);
    memcpy(mac + 1, &number, sizeof number);
}

static void hosts_differ_in_gid_and_queue_pair(void)
{
    struct ipu_host_macs macs;
    struct in6_addr other = gid;
    uint8_t mac[IPU_MAC_LEN];
    other.s6_addr[7] = 1;
    CHECK_EQ(ipu_host_macs_init(&macs, MAX), 0);
    mac_of(7, mac);
    CHECK_EQ(ipu_host_macs_set(&macs, &gid, 7, mac), 0);
    CHECK_EQ(ipu_host_macs_set(&macs, &gid, 0, mac), -EINVAL);
    CHECK_EQ(memcmp(ipu_host_macs_find(&macs, &gid, 7), mac, IPU_MAC_LEN), 0);
    CHECK(ipu_host_macs_find(&macs, &gid, 8) == NULL);
    CHECK(ipu_host_macs_find(&macs, &other, 7) == NULL);
    mac_of(8, mac);
    CHECK_EQ(ipu_host_macs_set(&macs, &gid, 7, mac), 0);
    CHECK_EQ(memcmp(ipu_host_macs_find(&macs, &gid, 7), mac, IPU_MAC_LEN), 0);
    CHECK_EQ(macs.count, 1);
    ipu_host_macs_delete(&macs, &gid, 7);
    ipu_host_macs_delete(&macs, &gid, 7);
    CHECK(ipu_host_macs_find(&macs, &gid, 7) == NULL);
    CHECK_EQ(macs.count, 0);
    ipu_host_macs_free(&macs);
}

static void a_full_table_refuses_new_hosts(void)
{
    struct ipu_host_macs macs;
    uint8_t mac[IPU_MAC_LEN];
    CHECK_EQ(ipu_host_macs_init(&macs, MAX), 0);
    for (uint32_t qpn = 1; qpn <= MAX; qpn++) {
        mac_of(qpn, mac);
        CHECK_EQ(ipu_host_macs_set(&macs, &gid, qpn, mac), 0);
    }
    CHECK_EQ(ipu_host_macs_set(&macs, &gid, MAX + 1, mac), -ENOSPC);
    for (uint32_t qpn = 1; qpn <= MAX; qpn += 2)
        ipu_host_macs_delete(&macs, &gid, qpn);
    for (uint32_t qpn = 1; qpn <= MAX; qpn++) {
        const uint8_t *found = ipu_host_macs_find(&macs, &gid, qpn);
        mac_of(qpn, mac);
        CHECK_EQ(found != NULL, qpn % 2 == 0);
        CHECK(found == NULL || memcmp(found, mac, IPU_MAC_LEN) == 0);
    }
    ipu_host_macs_free(&macs);
}

int main(void)
{
    RUN(hosts_differ_in_gid_and_queue_pair);
    RUN(a_full_table_refuses_new_hosts);
    return 0;
}
