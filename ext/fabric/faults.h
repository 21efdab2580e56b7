/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_FAULTS_H
#define IPU_FAULTS_H

#include <stdatomic.h>
#include <stdint.h>

#include "fabric/fabric.h"

/* A fabric that wraps another one and spoils the datagrams that it sends. The wrapper copies every
 * datagram into a pool of its own and gives the cookie back at once. So no cookie is lost, whatever
 * then happens to the copy, and the wrapper does not read the caller's memory later. When the pool
 * is exhausted, send takes fewer.
 *
 * The wrapper draws the fates in this order from one seeded generator: loss; else duplicate; then
 * for each of the copies: corrupt, then delay or else reorder. With the same seed the same sends
 * meet the same fates; the clock decides only when a delay ends, by deadline_ns().
 */
struct ipu_faults;

struct ipu_faults_config {
    double loss; /* probabilities, 0 to 1 */
    double duplicate;
    double corrupt; /* one to four bits are flipped, anywhere in the message */
    double reorder; /* held until one to four later sends, or for reorder_max_us */
    double delay;
    uint32_t delay_min_us, delay_max_us; /* uniform between the two */
    uint32_t reorder_max_us;             /* 0: 2000 */
};

/* Any thread may read them. */
struct ipu_faults_counters {
    _Atomic uint64_t sent; /* copies that the inner fabric took */
    _Atomic uint64_t lost;
    _Atomic uint64_t duplicated;
    _Atomic uint64_t corrupted;
    _Atomic uint64_t reordered;
    _Atomic uint64_t delayed;
    _Atomic uint64_t too_big;   /* longer than the MTU: lost under every configuration */
    _Atomic uint64_t pool_full; /* sends that had to wait, and duplicates that found no room */
};

/* pool_frames is the most datagrams held back or under way, 1 to 65536; 0: 1024. Only the wrapper
 * uses the inner fabric, which outlives it. Returns NULL with errno: EINVAL, ENOMEM, or the error
 * of the inner memory().
 */
struct ipu_faults *ipu_faults_create(const struct ipu_fabric *inner,
                                     const struct ipu_faults_config *config, uint32_t pool_frames,
                                     uint64_t seed);

/* The caller first destroys all address handles and stops the inner queue pair, so that it reads no
 * buffer any more. Datagrams held back are lost.
 */
void ipu_faults_destroy(struct ipu_faults *faults);

/* Any thread may call this at any time: the next send draws by the new numbers. 0 or -EINVAL. */
int ipu_faults_set(struct ipu_faults *faults, const struct ipu_faults_config *config);

/* The returned fabric lives as long as the wrapper. */
struct ipu_fabric *ipu_faults_fabric(struct ipu_faults *faults);
const struct ipu_faults_counters *ipu_faults_counters(const struct ipu_faults *faults);

#endif
