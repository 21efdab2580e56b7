/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/guests.h"

#include <string.h>

#include "core/ip_header.h"

int ipu_guests_init(struct ipu_guests *guests)
{
    *guests = (struct ipu_guests){0};
    int error = ipu_mac_table_init(&guests->guests, IPU_GUESTS_MAX);
    return error < 0 ? error : ipu_mac_table_init(&guests->hosts, IPU_HOSTS_MAX);
}

void ipu_guests_free(struct ipu_guests *guests)
{
    ipu_mac_table_free(&guests->guests);
    ipu_mac_table_free(&guests->hosts);
}

bool ipu_guests_destination(const struct ipu_guests *guests, const uint8_t *ip,
                            uint8_t mac[IPU_MAC_LEN])
{
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
    const struct ipu_mac_entry *guest = ipu_mac_table_find(&guests->guests, &address, 0);
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
