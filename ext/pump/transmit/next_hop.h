/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_NEXT_HOP_H
#define IPU_NEXT_HOP_H

#include "pump/state/pump_state.h"

/* Chooses the next hop of a packet whose route is of a kind from IPU_ROUTE_UNREACHABLE on. False:
 * the packet ends here, counted. */
bool ipu_next_hop_choose(struct ipu_pump *pump, const struct ipu_outbound *packet,
                         enum ipu_route_kind kind, struct in6_addr *next_hop);

/* Stores the kernel's answer about the packet's flow. 0 or negative errno. */
int ipu_next_hop_answer(struct ipu_pump *pump, const struct ipu_route_answer_set *set,
                        const struct ipu_hop *hops, const struct ipu_outbound *packet);

#endif
