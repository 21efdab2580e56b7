/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SOFT_GID_OPTION_H
#define SOFT_GID_OPTION_H

#include <arpa/inet.h>
#include <stdbool.h>
#include <string.h>

#include "hca.h"
#include "ipv4.h"

/* Reads "any", "link", "ipv4", "ipv6" or an address; false for anything else. */
static inline bool read_gid_option(const char *text, struct soft_hca_options *out)
{
    static const char *const kinds[] = {"any", "link", "ipv4", "ipv6"}; /* enum soft_gid_kind */
    struct in_addr ip4;

    for (int kind = 0; kind < 4; kind++) {
        if (strcmp(text, kinds[kind]) == 0) {
            out->kind = (enum soft_gid_kind)kind;
            return true;
        }
    }
    if (inet_pton(AF_INET, text, &ip4) == 1) {
        out->gid = soft_ipv4_mapped(ip4);
        return true;
    }
    return inet_pton(AF_INET6, text, &out->gid) == 1;
}

#endif
