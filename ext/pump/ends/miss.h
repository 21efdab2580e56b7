/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_MISS_H
#define IPU_MISS_H

#include "pump/state/pump_state.h"

/* Each of these packets ends here. The engine gets it in an event, or else the function counts it.
 */

/* Gives the engine a packet that it translates or follows, and sends later; returns false. */
bool ipu_miss_pass(struct ipu_pump *pump, const struct ipu_outbound *packet);

/* Gives the engine a packet whose next hop, route or sender it finds out about and which it sends
 * later, if there were few such events lately. */
void ipu_miss_resolve(struct ipu_pump *pump, uint32_t type, const struct ipu_outbound *packet,
                      const struct in6_addr *next_hop);

/* Gives the engine a packet that a datagram cannot carry, until there is a connection. */
void ipu_miss_wait(struct ipu_pump *pump, const struct ipu_outbound *packet,
                   const struct in6_addr *next_hop);

/* Emits an event about a packet; of a super-frame the engine gets the first segment. False: there
 * is no event, and the function has counted the packet; otherwise the caller does. */
bool ipu_miss_emit(struct ipu_pump *pump, uint32_t type, const struct ipu_outbound *packet,
                   const struct in6_addr *next_hop, uint32_t mtu);

/* Asks the engine to resolve a hop whose flows go by another hop meanwhile. */
void ipu_miss_want(struct ipu_pump *pump, const struct in6_addr *hop);

#endif
