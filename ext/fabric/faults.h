/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_FAULTS_H
#define IPU_FAULTS_H

#include <stdatomic.h>
#include <stdint.h>

#include "fabric/fabric.h"

/*
 * A fabric around a fabric that spoils what is sent. Every datagram is copied into a pool of the
 * wrapper's and its cookie is given back at once, so whatever then happens to the copy, no cookie
 * is lost and nothing of the caller's is read later. When the pool is exhausted, send takes fewer.
 *
 * The fates are drawn in this order from one seeded generator: loss; else duplicate; then for each
 * of the copies: corrupt, then delay or else reorder. With the same seed the same sends meet the
 * same fates; only when a delay ends is up to the clock, by deadline_ns().
 */
struct ipu_faults;

struct ipu_faults_config {
    double loss; /* probabilities, 0 to 1 */
    double duplicate;
    double corrupt; /* one to four bits are flipped, anywhere in the message */
    double reorder; /* held until one to four more were sent, or for reorder_max_us */
    double delay;
    uint32_t delay_min_us, delay_max_us; /* uniform in between */
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
    _Atomic uint64_t too_big;   /* above the MTU: lost, whatever the configuration */
    _Atomic uint64_t pool_full; /* sends put off, and duplicates not made */
};

/*
 * pool_frames: datagrams held back or on the way, 1 to 65536; 0: 1024. Only the wrapper uses the
 * inner fabric, which outlives it. NULL with errno: EINVAL, ENOMEM, or the error of the inner
 * memory().
 */
struct ipu_faults *ipu_faults_create(const struct ipu_fabric *inner,
                                     const struct ipu_faults_config *config, uint32_t pool_frames,
                                     uint64_t seed);

/*
 * All address handles were destroyed and the inner fabric reads no buffer any more: stop its queue
 * pair first. Datagrams held back are lost.
 */
void ipu_faults_destroy(struct ipu_faults *faults);

/* Any thread, at any time: the next send draws by the new numbers. 0, or -EINVAL. */
int ipu_faults_set(struct ipu_faults *faults, const struct ipu_faults_config *config);

/* Lives as long as the wrapper. */
struct ipu_fabric *ipu_faults_fabric(struct ipu_faults *faults);
const struct ipu_faults_counters *ipu_faults_counters(const struct ipu_faults *faults);

#endif
