/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_QPN_TABLE_H
#define IPU_QPN_TABLE_H

#include <stddef.h>

#include "fabric/fabric.h"

/* The connections that the pump knows, by the number of their queue pair: a completion names
 * nothing else. A device gives numbers out in sequence, so their low bits spread without a hash.
 * Only one thread uses a table.
 */
enum { IPU_QPN_TABLE_BUCKETS = 256 };

struct ipu_qpn_table {
    struct ipu_connection *bucket[IPU_QPN_TABLE_BUCKETS];
};

static inline struct ipu_connection *ipu_qpn_table_find(struct ipu_qpn_table *table, uint32_t qpn)
{
    struct ipu_connection *at = table->bucket[qpn % IPU_QPN_TABLE_BUCKETS];
    while (at != NULL && at->qpn != qpn)
        at = at->chain;
    return at;
}

static inline void ipu_qpn_table_add(struct ipu_qpn_table *table, struct ipu_connection *connection)
{
    struct ipu_connection **bucket = &table->bucket[connection->qpn % IPU_QPN_TABLE_BUCKETS];
    connection->chain = *bucket;
    *bucket = connection;
}

static inline void ipu_qpn_table_remove(struct ipu_qpn_table *table,
                                        struct ipu_connection *connection)
{
    struct ipu_connection **at = &table->bucket[connection->qpn % IPU_QPN_TABLE_BUCKETS];
    while (*at != NULL && *at != connection)
        at = &(*at)->chain;
    if (*at != NULL)
        *at = connection->chain;
}

#endif
