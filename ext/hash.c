/* SPDX-License-Identifier: BSD-2-Clause */
#include "hash.h"

#include <errno.h>
#include <sys/random.h>

int ipu_hash_seed_random(struct ipu_hash_seed *seed)
{
    ssize_t got;
    do {
        got = getrandom(seed->word, sizeof seed->word, 0);
    } while (got < 0 && errno == EINTR);
    /* Up to 256 bytes come whole (getrandom(2)). */
    return got < 0 ? -errno : 0;
}
