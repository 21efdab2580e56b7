/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/guests.h"

#include <errno.h>
#include <string.h>

#include "core/ip_header.h"

int ipu_guests_init(struct ipu_guests *guests)
{
    *guests = (struct ipu_guests){0};
    int error = ipu_mac_table_init(&guests->guests, IPU_GUESTS_MAX);
    if (error == 0)
        error = ipu_mac_table_init(&guests->hosts, IPU_HOSTS_MAX);
    if (error == 0)
        error = ipu_mac_table_init(&guests->qpns, IPU_GUEST_QPNS_MAX);
    if (error == 0)
        error = ipu_mac_table_init(&guests->macs, IPU_GUEST_QPNS_MAX);
    return error;
}

void ipu_guests_free(struct ipu_guests *guests)
{
    ipu_mac_table_free(&guests->guests);
    ipu_mac_table_free(&guests->hosts);
    ipu_mac_table_free(&guests->qpns);
    ipu_mac_table_free(&guests->macs);
}

bool ipu_guests_destination(const struct ipu_guests *guests, uint32_t qpn, const uint8_t *ip,
                            uint8_t mac[IPU_MAC_LEN])
{
    static const struct in6_addr none;
    struct in6_addr address = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    if (ipu_ip_is_v4(ip)) {
        const uint8_t *to = ip + 16;
        if ((to[0] & to[1] & to[2] & to[3]) == 0xff) {
            memset(mac, 0xff, IPU_MAC_LEN);
            return true;
        }
        if ((to[0] & 0xf0) == 0xe0) {
            const uint8_t group[IPU_MAC_LEN] = {0x01, 0x00, 0x5e, to[1] & 0x7f, to[2], to[3]};
            memcpy(mac, group, IPU_MAC_LEN);
            return true;
        }
        memcpy(address.s6_addr + 12, to, 4);
    } else {
        if (ip[24] == 0xff) {
            mac[0] = mac[1] = 0x33;
            memcpy(mac + 2, ip + 36, 4);
            return true;
        }
        memcpy(&address, ip + 24, sizeof address);
    }
    const struct ipu_mac_entry *guest = NULL;
    if (guests->qpns.count > 0 && qpn != 0)
        guest = ipu_mac_table_find(&guests->qpns, &none, qpn);
    if (guest == NULL)
        guest = ipu_mac_table_find(&guests->guests, &address, 0);
    if (guest != NULL)
        memcpy(mac, guest->mac, IPU_MAC_LEN);
    return guest != NULL;
}

const uint8_t *ipu_guests_source(const struct ipu_guests *guests, const struct in6_addr *gid,
                                 uint32_t qpn)
{
    const struct ipu_mac_entry *host = ipu_mac_table_find(&guests->hosts, gid, qpn);
    return host != NULL ? host->mac : guests->own;
}

static struct in6_addr key_of(const uint8_t mac[IPU_MAC_LEN])
{
    struct in6_addr key = IN6ADDR_ANY_INIT;
    memcpy(key.s6_addr, mac, IPU_MAC_LEN);
    return key;
}

int ipu_guests_set_qpn(struct ipu_guests *guests, const uint8_t mac[IPU_MAC_LEN], uint32_t qpn)
{
    static const struct in6_addr none;
    const struct in6_addr key = key_of(mac);
    ipu_guests_delete_qpn(guests, mac);
    if (ipu_mac_table_find(&guests->qpns, &none, qpn) != NULL)
        return -EEXIST;
    int error = ipu_mac_table_set(&guests->macs, &key, 0, mac, false);
    if (error == 0)
        error = ipu_mac_table_set(&guests->qpns, &none, qpn, mac, false);
    if (error == 0)
        ipu_mac_table_note(&guests->macs, &key, qpn);
    return error;
}

void ipu_guests_delete_qpn(struct ipu_guests *guests, const uint8_t mac[IPU_MAC_LEN])
{
    static const struct in6_addr none;
    const struct in6_addr key = key_of(mac);
    uint32_t qpn = ipu_guests_qpn(guests, mac);
    if (qpn == 0)
        return;
    ipu_mac_table_delete(&guests->qpns, &none, qpn);
    ipu_mac_table_delete(&guests->macs, &key, 0);
}

uint32_t ipu_guests_qpn(const struct ipu_guests *guests, const uint8_t mac[IPU_MAC_LEN])
{
    if (guests->macs.count == 0)
        return 0;
    const struct in6_addr key = key_of(mac);
    const struct ipu_mac_entry *guest = ipu_mac_table_find(&guests->macs, &key, 0);
    return guest != NULL ? guest->qpn : 0;
}
