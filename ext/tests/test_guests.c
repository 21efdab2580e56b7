/* SPDX-License-Identifier: BSD-2-Clause */
/* Tables of MACs, and the MACs by which packets go to guests and come to them. */
#include "core/guests.h"

#include <arpa/inet.h>
#include <errno.h>

#include "check.h"

enum { MAX = 1000 };

static const uint8_t first[IPU_MAC_LEN] = {2, 0, 0, 0, 0, 1}, second[IPU_MAC_LEN] = {2, [5] = 2};
static const struct in6_addr none = IN6ADDR_ANY_INIT;

static struct in6_addr address(uint32_t number)
{
    struct in6_addr ip = {.s6_addr = {0xfd, [15] = 1}};
    memcpy(ip.s6_addr + 8, &number, sizeof number);
    return ip;
}

static void an_address_has_one_mac_which_may_change(void)
{
    struct ipu_mac_table table;
    struct in6_addr ip = address(7);
    CHECK_EQ(ipu_mac_table_init(&table, MAX), 0);
    CHECK(ipu_mac_table_find(&table, &ip, 0) == NULL);
    CHECK_EQ(ipu_mac_table_set(&table, &ip, 0, first, true), 0);
    CHECK_EQ(memcmp(ipu_mac_table_find(&table, &ip, 0)->mac, first, IPU_MAC_LEN), 0);
    CHECK(ipu_mac_table_find(&table, &ip, 0)->firm);
    CHECK_EQ(ipu_mac_table_set(&table, &ip, 0, second, false), 0);
    CHECK_EQ(memcmp(ipu_mac_table_find(&table, &ip, 0)->mac, second, IPU_MAC_LEN), 0);
    CHECK(!ipu_mac_table_find(&table, &ip, 0)->firm);
    CHECK(ipu_mac_table_find(&table, &ip, 7) == NULL); /* a host of the link, by its queue pair */
    CHECK(ipu_mac_table_find(&table, &none, 0) == NULL);
    CHECK_EQ(table.count, 1);
    ipu_mac_table_delete(&table, &ip, 0);
    ipu_mac_table_delete(&table, &ip, 0);
    CHECK(ipu_mac_table_find(&table, &ip, 0) == NULL);
    CHECK_EQ(table.count, 0);
    ipu_mac_table_free(&table);
}

static void a_full_table_refuses_new_entries_and_changes_known_ones(void)
{
    struct ipu_mac_table table;
    struct in6_addr ip;
    CHECK_EQ(ipu_mac_table_init(&table, MAX), 0);
    for (uint32_t i = 0; i < MAX; i++) {
        ip = address(i / 2);
        CHECK_EQ(ipu_mac_table_set(&table, &ip, i % 2, i % 2 ? second : first, true), 0);
    }
    ip = address(MAX);
    CHECK_EQ(ipu_mac_table_set(&table, &ip, 0, first, true), -ENOSPC);
    CHECK(ipu_mac_table_find(&table, &ip, 0) == NULL);
    ip = address(3);
    CHECK_EQ(ipu_mac_table_set(&table, &ip, 0, first, true), 0);
    for (uint32_t i = 0; i < MAX / 2; i++) {
        ip = address(i);
        ipu_mac_table_delete(&table, &ip, i % 2);
    }
    for (uint32_t i = 0; i < MAX; i++) {
        ip = address(i / 2);
        const struct ipu_mac_entry *entry = ipu_mac_table_find(&table, &ip, i % 2);
        CHECK_EQ(entry != NULL, i / 2 % 2 != i % 2);
        CHECK(entry == NULL || memcmp(entry->mac, i % 2 ? second : first, IPU_MAC_LEN) == 0);
    }
    CHECK_EQ(table.count, MAX / 2);
    ipu_mac_table_free(&table);
}

static void check_mac(const struct ipu_guests *guests, int family, const char *to, const char *mac)
{
    uint8_t ip[40] = {0}, got[IPU_MAC_LEN], wanted[IPU_MAC_LEN];
    ip[0] = family == AF_INET ? 0x45 : 0x60;
    CHECK_EQ(inet_pton(family, to, ip + (family == AF_INET ? 16 : 24)), 1);
    if (mac == NULL) {
        CHECK(!ipu_guests_destination(guests, 0, ip, got));
        return;
    }
    CHECK_EQ(sscanf(mac, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", wanted, wanted + 1, wanted + 2,
                    wanted + 3, wanted + 4, wanted + 5),
             6);
    CHECK(ipu_guests_destination(guests, 0, ip, got));
    CHECK_EQ(memcmp(got, wanted, sizeof got), 0);
}

static void a_packet_goes_to_the_mac_of_its_group_or_guest(void)
{
    struct ipu_guests guests;
    struct in6_addr mapped = {.s6_addr = {[10] = 0xff, [11] = 0xff, 10, 0, 0, 7}}, ip;
    CHECK_EQ(ipu_guests_init(&guests), 0);
    CHECK_EQ(ipu_mac_table_set(&guests.guests, &mapped, 0, first, true), 0);
    CHECK_EQ(inet_pton(AF_INET6, "fd00::7", &ip), 1);
    CHECK_EQ(ipu_mac_table_set(&guests.guests, &ip, 0, second, true), 0);
    check_mac(&guests, AF_INET, "10.0.0.7", "02:00:00:00:00:01");
    check_mac(&guests, AF_INET, "10.0.0.8", NULL);
    check_mac(&guests, AF_INET, "255.255.255.255", "ff:ff:ff:ff:ff:ff");
    check_mac(&guests, AF_INET, "10.0.0.255", NULL);
    check_mac(&guests, AF_INET, "224.0.0.251", "01:00:5e:00:00:fb");
    check_mac(&guests, AF_INET, "239.255.1.2", "01:00:5e:7f:01:02"); /* 23 bits of the group */
    check_mac(&guests, AF_INET6, "fd00::7", "02:00:00:00:00:02");
    check_mac(&guests, AF_INET6, "fd00::8", NULL);
    check_mac(&guests, AF_INET6, "ff02::1:ff12:3456", "33:33:ff:12:34:56");
    ipu_guests_free(&guests);
}

static void a_packet_comes_from_the_mac_of_its_host_or_of_the_interface(void)
{
    struct ipu_guests guests;
    struct in6_addr gid = address(1);
    CHECK_EQ(ipu_guests_init(&guests), 0);
    memcpy(guests.own, second, IPU_MAC_LEN);
    CHECK_EQ(ipu_mac_table_set(&guests.hosts, &gid, 7, first, false), 0);
    CHECK_EQ(memcmp(ipu_guests_source(&guests, &gid, 7), first, IPU_MAC_LEN), 0);
    CHECK_EQ(memcmp(ipu_guests_source(&guests, &gid, 8), second, IPU_MAC_LEN), 0);
    ipu_guests_free(&guests);
}

static void a_guest_has_at_most_one_queue_pair_and_a_queue_pair_one_guest(void)
{
    struct ipu_guests guests;
    uint8_t got[IPU_MAC_LEN], to[40] = {0x45, [16] = 10, 0, 0, 7}, group[40] = {0x45, [16] = 239};
    CHECK_EQ(ipu_guests_init(&guests), 0);
    CHECK_EQ(ipu_guests_qpn(&guests, first), 0);
    CHECK(!ipu_guests_sends_as(&guests, 0x50));
    CHECK_EQ(ipu_guests_set_qpn(&guests, first, 0x50), 0);
    CHECK_EQ(ipu_guests_set_qpn(&guests, second, 0x50), -EEXIST);
    CHECK_EQ(ipu_guests_set_qpn(&guests, second, 0x51), 0);
    CHECK_EQ(ipu_guests_qpn(&guests, first), 0x50);
    CHECK(ipu_guests_sends_as(&guests, 0x50) && ipu_guests_sends_as(&guests, 0x51));
    CHECK(ipu_guests_destination(&guests, 0x51, to, got)); /* whoever has the address */
    CHECK_EQ(memcmp(got, second, sizeof got), 0);
    CHECK(!ipu_guests_destination(&guests, 0x52, to, got));
    CHECK(ipu_guests_destination(&guests, 0x51, group, got));
    CHECK_EQ(got[0], 1);                                    /* the MAC of the group */
    CHECK_EQ(ipu_guests_set_qpn(&guests, second, 0x52), 0); /* in place of the first one */
    CHECK(!ipu_guests_sends_as(&guests, 0x51));
    ipu_guests_delete_qpn(&guests, second);
    ipu_guests_delete_qpn(&guests, second);
    CHECK_EQ(ipu_guests_qpn(&guests, second), 0);
    CHECK(!ipu_guests_sends_as(&guests, 0x52));
    ipu_guests_free(&guests);
}

static void queue_pairs_for_guests_end_at_their_limit(void)
{
    struct ipu_guests guests;
    CHECK_EQ(ipu_guests_init(&guests), 0);
    for (uint32_t i = 0; i <= IPU_GUEST_QPNS_MAX; i++) {
        const uint8_t mac[IPU_MAC_LEN] = {2, [4] = (uint8_t)(i >> 8), (uint8_t)i};
        int error = ipu_guests_set_qpn(&guests, mac, 0x100 + i);
        CHECK_EQ(error, i < IPU_GUEST_QPNS_MAX ? 0 : -ENOSPC);
        CHECK_EQ(ipu_guests_qpn(&guests, mac), i < IPU_GUEST_QPNS_MAX ? 0x100 + i : 0);
    }
    ipu_guests_free(&guests);
}

int main(void)
{
    RUN(an_address_has_one_mac_which_may_change);
    RUN(a_full_table_refuses_new_entries_and_changes_known_ones);
    RUN(a_packet_goes_to_the_mac_of_its_group_or_guest);
    RUN(a_packet_comes_from_the_mac_of_its_host_or_of_the_interface);
    RUN(a_guest_has_at_most_one_queue_pair_and_a_queue_pair_one_guest);
    RUN(queue_pairs_for_guests_end_at_their_limit);
    return 0;
}
