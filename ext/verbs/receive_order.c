/* SPDX-License-Identifier: BSD-2-Clause */
#include "verbs/receive_order.h"

#include <errno.h>
#include <stdlib.h>

int ipu_receive_order_init(struct ipu_receive_order *order, uint32_t depth)
{
    *order = (struct ipu_receive_order){.lag = IPU_RECEIVE_ORDER_LAG * depth};
    TAILQ_INIT(&order->posted);
    TAILQ_INIT(&order->idle);
    order->slots = calloc(depth, sizeof *order->slots);
    if (order->slots == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < depth; i++)
        TAILQ_INSERT_TAIL(&order->idle, &order->slots[i], queue);
    return 0;
}

void ipu_receive_order_free(struct ipu_receive_order *order)
{
    free(order->slots);
}

static void release(struct ipu_receive_order *order, struct ipu_receive_slot *slot)
{
    TAILQ_REMOVE(&order->posted, slot, queue);
    TAILQ_INSERT_HEAD(&order->idle, slot, queue);
}

uint32_t ipu_receive_order_put(struct ipu_receive_order *order, uint64_t cookie)
{
    struct ipu_receive_slot *slot = TAILQ_FIRST(&order->idle);
    TAILQ_REMOVE(&order->idle, slot, queue);
    TAILQ_INSERT_TAIL(&order->posted, slot, queue);
    slot->cookie = cookie;
    slot->number = order->next++;
    return (uint32_t)(slot - order->slots);
}

void ipu_receive_order_withdraw(struct ipu_receive_order *order)
{
    release(order, TAILQ_LAST(&order->posted, ipu_receive_slots));
    order->next--;
}

uint64_t ipu_receive_order_end(struct ipu_receive_order *order, uint32_t slot, uint64_t *cookie)
{
    struct ipu_receive_slot *ended = &order->slots[slot];
    *cookie = ended->cookie;
    if (ended->number >= order->passed)
        order->passed = ended->number + 1;
    if (order->seen < order->lag)
        order->seen++;
    release(order, ended);
    return ended->number;
}

bool ipu_receive_order_look(struct ipu_receive_order *order, uint64_t *oldest)
{
    const struct ipu_receive_slot *slot = TAILQ_FIRST(&order->posted);
    if (order->seen < order->lag || slot == NULL || slot->number + order->lag >= order->passed)
        return false;
    order->seen = 0;
    *oldest = slot->number;
    return true;
}

bool ipu_receive_order_reclaim(struct ipu_receive_order *order, uint64_t floor, uint64_t *cookie)
{
    struct ipu_receive_slot *oldest = TAILQ_FIRST(&order->posted);
    if (oldest == NULL || oldest->number >= floor)
        return false;
    *cookie = oldest->cookie;
    release(order, oldest);
    return true;
}
