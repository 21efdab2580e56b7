/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdbool.h>

#include "check.h"
#include "refuse.h"
#include "core/random.h"
#include "pump/tables/ah_cache.h"

static const struct ipu_hash_seed seed = {
    {0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89}}; /* of pi */

/* A device with room for a number of address handles; it records them. */
struct device {
    struct ipu_fabric fabric;
    uint32_t room;
    uint32_t live;
    uint32_t impossible_qpn;
    int error; /* 0: errno is left alone */
    struct ipu_dest last_destroyed;
};

static void *ah_create(void *self, const struct ipu_dest *dest)
{
    struct device *device = self;
    if (device->live == device->room || dest->qpn == device->impossible_qpn) {
        if (device->error)
            errno = device->error;
        return NULL;
    }
    struct ipu_dest *ah = malloc(sizeof *ah);
    CHECK(ah);
    *ah = *dest;
    device->live++;
    return ah;
}

static void ah_destroy(void *self, void *ah)
{
    struct device *device = self;
    memcpy(&device->last_destroyed, ah, sizeof device->last_destroyed);
    device->live--;
    free(ah);
}

static const struct ipu_fabric_ops ops = {.ah_create = ah_create, .ah_destroy = ah_destroy};

static void init(struct device *device, struct ipu_ah_cache *cache, uint32_t max, uint32_t max_idle)
{
    *device = (struct device){.room = 1000000, .impossible_qpn = 999, .error = EINVAL};
    device->fabric = (struct ipu_fabric){.ops = &ops, .self = device};
    CHECK_EQ(ipu_ah_cache_init(cache, &device->fabric, max, max_idle, &seed), 0);
}

static struct ipu_dest dest(uint32_t number)
{
    return (struct ipu_dest){.gid = {.s6_addr = {0xFE, 0x80, [15] = 1}}, .qpn = number};
}

static struct ipu_ah *get(struct ipu_ah_cache *cache, uint32_t number)
{
    struct ipu_dest to = dest(number);
    struct ipu_ah *ah;
    CHECK_EQ(ipu_ah_cache_get(cache, &to, &ah), 0);
    CHECK(memcmp(&ah->dest, &to, sizeof to) == 0);
    CHECK(memcmp(ah->handle, &to, sizeof to) == 0);
    return ah;
}

static void equal_destinations_share_one_handle(void)
{
    struct device device;
    struct ipu_ah_cache cache;
    init(&device, &cache, 10, 10);
    struct ipu_ah *ah = get(&cache, 1);
    CHECK(get(&cache, 1) == ah);
    CHECK_EQ(ah->refs, 2);
    CHECK(get(&cache, 2) != ah);
    CHECK_EQ(device.live, 2);
    CHECK_EQ(cache.created, 2);
    ipu_ah_cache_free(&cache);
    CHECK_EQ(device.live, 0);
}

static void destinations_that_differ_in_any_field_are_different(void)
{
    struct device device;
    struct ipu_ah_cache cache;
    init(&device, &cache, 100, 100);
    struct ipu_dest variants[10], plain = dest(1);
    for (int i = 0; i < 10; i++)
        variants[i] = plain;
    variants[0].gid.s6_addr[0] ^= 1;
    variants[1].gid.s6_addr[15] ^= 1;
    variants[2].qpn ^= 1;
    variants[3].flow_label ^= 1;
    variants[4].dlid ^= 1;
    variants[5].sl ^= 1;
    variants[6].static_rate ^= 1;
    variants[7].hop_limit ^= 1;
    variants[8].traffic_class ^= 1;
    variants[9].pad[0] ^= 1;
    struct ipu_ah *first, *other;
    CHECK_EQ(ipu_ah_cache_get(&cache, &plain, &first), 0);
    for (int i = 0; i < 10; i++) {
        CHECK_EQ(ipu_ah_cache_get(&cache, &variants[i], &other), 0);
        CHECK_EQ(other == first, i == 9);
    }
    CHECK_EQ(cache.count, 10);
    ipu_ah_cache_free(&cache);
}

static void an_idle_handle_is_kept_for_the_next_user(void)
{
    struct device device;
    struct ipu_ah_cache cache;
    init(&device, &cache, 10, 10);
    struct ipu_ah *ah = get(&cache, 1);
    ipu_ah_cache_put(&cache, ah);
    CHECK_EQ(cache.idle, 1);
    CHECK_EQ(device.live, 1);
    CHECK(get(&cache, 1) == ah);
    CHECK_EQ(cache.idle, 0);
    CHECK_EQ(cache.created, 1);
    ipu_ah_cache_free(&cache);
}

static void the_longest_idle_goes_first_when_there_are_too_many(void)
{
    struct device device;
    struct ipu_ah_cache cache;
    init(&device, &cache, 10, 2);
    struct ipu_ah *a = get(&cache, 1), *b = get(&cache, 2), *c = get(&cache, 3);
    ipu_ah_cache_put(&cache, a);
    ipu_ah_cache_put(&cache, b);
    ipu_ah_cache_put(&cache, get(&cache, 1)); /* used again: b is the oldest now */
    CHECK_EQ(cache.idle, 2);
    ipu_ah_cache_put(&cache, c);
    CHECK_EQ(cache.idle, 2);
    CHECK_EQ(device.last_destroyed.qpn, 2);
    CHECK_EQ(cache.evicted, 1);
    ipu_ah_cache_put(&cache, NULL); /* NULL does nothing */
    ipu_ah_cache_free(&cache);
}

static void with_no_idle_allowed_the_last_put_destroys(void)
{
    struct device device;
    struct ipu_ah_cache cache;
    init(&device, &cache, 10, 0);
    ipu_ah_cache_put(&cache, get(&cache, 1));
    CHECK_EQ(device.live, 0);
    CHECK_EQ(cache.count, 0);
    ipu_ah_cache_free(&cache);
}

static void at_the_cap_an_idle_handle_makes_room_and_without_one_it_is_enospc(void)
{
    struct device device;
    struct ipu_ah_cache cache;
    init(&device, &cache, 2, 2);
    struct ipu_ah *a = get(&cache, 1), *b = get(&cache, 2), *none;
    struct ipu_dest third = dest(3);
    CHECK_EQ(ipu_ah_cache_get(&cache, &third, &none), -ENOSPC);
    CHECK(none == NULL);
    CHECK_EQ(cache.failed, 1);
    CHECK(get(&cache, 2) == b); /* known ones still work */
    ipu_ah_cache_put(&cache, a);
    CHECK_EQ(get(&cache, 3)->dest.qpn, 3);
    CHECK_EQ(device.last_destroyed.qpn, 1);
    CHECK_EQ(device.live, 2);
    ipu_ah_cache_free(&cache);
}

static void a_full_device_is_tried_again_after_giving_up_one_idle_handle(void)
{
    struct device device;
    struct ipu_ah_cache cache;
    init(&device, &cache, 100, 100);
    device.room = 3;
    for (uint32_t i = 0; i < 3; i++)
        ipu_ah_cache_put(&cache, get(&cache, i));
    struct ipu_ah *ah = get(&cache, 7);
    CHECK_EQ(ah->dest.qpn, 7);
    CHECK_EQ(device.last_destroyed.qpn, 0);
    CHECK_EQ(cache.count, 3);
    CHECK_EQ(cache.failed, 0);
    ipu_ah_cache_free(&cache);
}

static void an_impossible_destination_costs_one_idle_handle_and_reports_its_error(void)
{
    struct device device;
    struct ipu_ah_cache cache;
    init(&device, &cache, 100, 100);
    for (uint32_t i = 0; i < 5; i++)
        ipu_ah_cache_put(&cache, get(&cache, i));
    struct ipu_dest impossible = dest(999);
    struct ipu_ah *none;
    device.error = EHOSTUNREACH;
    CHECK_EQ(ipu_ah_cache_get(&cache, &impossible, &none), -EHOSTUNREACH);
    CHECK(none == NULL);
    CHECK_EQ(cache.idle, 4);
    CHECK_EQ(device.live, 4);
    device.error = 0; /* a fabric that does not set errno */
    CHECK_EQ(ipu_ah_cache_get(&cache, &impossible, &none), -EIO);
    CHECK_EQ(cache.failed, 2);
    ipu_ah_cache_free(&cache);
}

static void freeing_destroys_the_idle_and_the_used_and_may_be_repeated(void)
{
    struct device device;
    struct ipu_ah_cache cache;
    init(&device, &cache, 10, 10);
    (void)get(&cache, 1);
    ipu_ah_cache_put(&cache, get(&cache, 2));
    CHECK_EQ(device.live, 2);
    ipu_ah_cache_free(&cache);
    CHECK_EQ(device.live, 0);
    ipu_ah_cache_free(&cache);
}

static void every_refused_allocation_is_an_error_that_leaves_nothing(void)
{
    struct device device;
    struct ipu_ah_cache cache;
    struct ipu_ah *ah;
    init(&device, &cache, 1000, 1000);
    ipu_ah_cache_free(&cache);
    CHECK_EQ(ipu_ah_cache_init(&cache, &device.fabric, 0, 0, &seed), -EINVAL);
    CHECK_EQ(ipu_ah_cache_init(&cache, &device.fabric, (1u << 24) + 1, 0, &seed), -EINVAL);
    for (int n = 0; n < 2; n++) { /* getrandom, slots */
        refuse_after(n);
        CHECK_EQ(ipu_ah_cache_init(&cache, &device.fabric, 10, 10, NULL),
                 n == 0 ? -ENOSYS : -ENOMEM);
        CHECK(refuse_stop());
        ipu_ah_cache_free(&cache);
    }
    init(&device, &cache, 1000, 1000);
    for (uint32_t i = 0; i < 48; i++)
        (void)get(&cache, i);
    struct ipu_dest to = dest(48);
    for (int n = 0; n < 2; n++) { /* growth, ah */
        refuse_after(n);
        CHECK_EQ(ipu_ah_cache_get(&cache, &to, &ah), -ENOMEM);
        CHECK(refuse_stop());
        CHECK_EQ(device.live, 48);
        CHECK_EQ(cache.count, 48);
    }
    (void)get(&cache, 48);
    CHECK_EQ(cache.failed, 2);
    ipu_ah_cache_free(&cache);
    CHECK_EQ(device.live, 0);
}

static void put_once_too_often(void)
{
    struct device device;
    struct ipu_ah_cache cache;
    init(&device, &cache, 10, 10);
    struct ipu_ah *ah = get(&cache, 1);
    ipu_ah_cache_put(&cache, ah);
    ipu_ah_cache_put(&cache, ah);
}

static void a_put_too_many_is_caught_in_debug_builds(void)
{
    CHECK_EQ(check_signal_of(put_once_too_often), SIGABRT);
}

static void a_long_random_run_keeps_every_cap_and_every_reference(void)
{
    enum { KEYS = 500, MAX = 200, MAX_IDLE = 50, STEPS = 300000, HELD = 1000 };
    static struct ipu_ah *held[HELD];
    static uint32_t refs[KEYS];
    struct device device;
    struct ipu_ah_cache cache;
    uint64_t random = 11;
    uint32_t n_held = 0, used = 0;
    init(&device, &cache, MAX, MAX_IDLE);
    device.room = MAX - 20; /* lower than the cap, at times */
    for (int step = 0; step < STEPS; step++) {
        bool growing = step / 20000 % 2 == 0;
        if (n_held < HELD && ipu_random_below(&random, 8) < (growing ? 5u : 3u)) {
            uint32_t key = ipu_random_below(&random, KEYS);
            struct ipu_dest to = dest(key);
            struct ipu_ah *ah;
            int result = ipu_ah_cache_get(&cache, &to, &ah);
            if (result != 0) {
                CHECK(refs[key] == 0 && ah == NULL);
                CHECK_EQ(result, -EINVAL); /* the device's, it is full first */
                CHECK_EQ(used, device.room);
                CHECK_EQ(cache.idle, 0);
                continue;
            }
            CHECK_EQ(ah->dest.qpn, key);
            used += refs[key]++ == 0;
            CHECK_EQ(ah->refs, refs[key]);
            held[n_held++] = ah;
        } else if (n_held > 0) {
            uint32_t at = ipu_random_below(&random, n_held);
            used -= --refs[held[at]->dest.qpn] == 0;
            ipu_ah_cache_put(&cache, held[at]);
            held[at] = held[--n_held];
        }
        CHECK_EQ(cache.count, used + cache.idle);
        CHECK_EQ(cache.count, device.live);
        CHECK(cache.idle <= MAX_IDLE);
        CHECK(cache.count <= MAX);
        CHECK_EQ(cache.created - cache.evicted, device.live);
    }
    ipu_ah_cache_free(&cache);
    CHECK_EQ(device.live, 0);
}

static void a_queue_pair_is_known_by_any_path_while_a_handle_is_kept(void)
{
    struct device device;
    struct ipu_ah_cache cache;
    init(&device, &cache, 100, 1);
    for (uint32_t number = 1; number <= 100; number++)
        get(&cache, number);
    struct ipu_dest known = dest(7), unknown = dest(200);
    struct in6_addr gid = {.s6_addr = {0xFE, 0x80, [15] = 2}};
    uint32_t hash = ipu_ah_cache_hash(&cache, &known.gid, 7);
    CHECK(ipu_ah_cache_knows(&cache, &known.gid, 7, hash));
    hash = ipu_ah_cache_hash(&cache, &unknown.gid, 200);
    CHECK(!ipu_ah_cache_knows(&cache, &unknown.gid, 200, hash));
    hash = ipu_ah_cache_hash(&cache, &gid, 7);
    CHECK(!ipu_ah_cache_knows(&cache, &gid, 7, hash));
    ipu_ah_cache_free(&cache);
}

int main(void)
{
    RUN(equal_destinations_share_one_handle);
    RUN(destinations_that_differ_in_any_field_are_different);
    RUN(an_idle_handle_is_kept_for_the_next_user);
    RUN(the_longest_idle_goes_first_when_there_are_too_many);
    RUN(with_no_idle_allowed_the_last_put_destroys);
    RUN(at_the_cap_an_idle_handle_makes_room_and_without_one_it_is_enospc);
    RUN(a_full_device_is_tried_again_after_giving_up_one_idle_handle);
    RUN(an_impossible_destination_costs_one_idle_handle_and_reports_its_error);
    RUN(freeing_destroys_the_idle_and_the_used_and_may_be_repeated);
    RUN(every_refused_allocation_is_an_error_that_leaves_nothing);
    RUN(a_queue_pair_is_known_by_any_path_while_a_handle_is_kept);
    RUN(a_put_too_many_is_caught_in_debug_builds);
    RUN(a_long_random_run_keeps_every_cap_and_every_reference);
}
