/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>

#include "check.h"
#include "refuse.h"
#include "core/random.h"
#include "core/slab.h"

static void frames_lie_apart_aligned_and_inside_the_mapping(void)
{
    struct ipu_slab slab;
    CHECK_EQ(ipu_slab_init(&slab, 7, 2092), 0);
    CHECK_EQ((uintptr_t)slab.base % 4096, 0);
    uint8_t *last = slab.base - slab.stride_bytes;
    for (uint32_t i = 0; i < 7; i++) {
        uint8_t *frame = ipu_slab_at(&slab, i);
        CHECK_EQ(frame - last, slab.stride_bytes);
        CHECK_EQ((uintptr_t)frame % 64, 0);
        CHECK(frame + 2092 <= slab.base + slab.len);
        memset(frame, 0xA5, 2092);
        last = frame;
    }
    ipu_slab_free(&slab);
}

static void the_stride_is_an_odd_number_of_lines(void)
{
    static const uint32_t sizes[][2] = {{1, 64},      {64, 64},     {65, 192},     {2092, 2112},
                                        {4096, 4160}, {4140, 4160}, {65600, 65600}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct ipu_slab slab;
        CHECK_EQ(ipu_slab_init(&slab, 2, sizes[i][0]), 0);
        CHECK_EQ(slab.stride_bytes, sizes[i][1]);
        CHECK_EQ(slab.stride_bytes / 64 % 2, 1);
        ipu_slab_free(&slab);
    }
}

static void the_frame_put_back_last_goes_out_first(void)
{
    struct ipu_slab slab;
    CHECK_EQ(ipu_slab_init(&slab, 4, 100), 0);
    CHECK_EQ(ipu_slab_get(&slab), 0);
    CHECK_EQ(ipu_slab_get(&slab), 1);
    CHECK_EQ(ipu_slab_get(&slab), 2);
    ipu_slab_put(&slab, 0);
    ipu_slab_put(&slab, 2);
    CHECK_EQ(ipu_slab_get(&slab), 2);
    CHECK_EQ(ipu_slab_get(&slab), 0);
    CHECK_EQ(ipu_slab_get(&slab), 3);
    ipu_slab_free(&slab);
}

static void an_exhausted_slab_gives_none_until_a_frame_returns(void)
{
    struct ipu_slab slab;
    CHECK_EQ(ipu_slab_init(&slab, 2, 100), 0);
    CHECK(ipu_slab_get(&slab) != IPU_SLAB_NONE);
    uint32_t last = ipu_slab_get(&slab);
    CHECK_EQ(slab.free_frames, 0);
    CHECK_EQ(ipu_slab_get(&slab), IPU_SLAB_NONE);
    CHECK_EQ(ipu_slab_get(&slab), IPU_SLAB_NONE);
    ipu_slab_put(&slab, last);
    CHECK_EQ(ipu_slab_get(&slab), last);
    ipu_slab_free(&slab);
}

static void impossible_sizes_are_refused(void)
{
    struct ipu_slab slab;
    CHECK_EQ(ipu_slab_init(&slab, 0, 100), -EINVAL);
    CHECK_EQ(ipu_slab_init(&slab, 100, 0), -EINVAL);
    CHECK_EQ(ipu_slab_init(&slab, 1, UINT32_MAX), -EINVAL);
    CHECK_EQ(ipu_slab_init(&slab, (1u << 26) + 1, 64), -EINVAL);
    CHECK_EQ(ipu_slab_init(&slab, UINT32_MAX, UINT32_MAX), -EINVAL);
    ipu_slab_free(&slab);
    ipu_slab_free(&slab);
}

static void every_refused_allocation_is_an_error_that_leaves_nothing(void)
{
    struct ipu_slab slab;
    int n = 0;
    for (;; n++) {
        refuse_after(n);
        int result = ipu_slab_init(&slab, 16, 100);
        if (!refuse_stop()) {
            CHECK_EQ(result, 0);
            break;
        }
        CHECK_EQ(result, -ENOMEM);
        CHECK(!slab.base && !slab.stack);
        CHECK_EQ(ipu_slab_get(&slab), IPU_SLAB_NONE);
        ipu_slab_free(&slab);
    }
    CHECK_EQ(n, 4); /* stack, users, marks, mapping */
    ipu_slab_free(&slab);
}

static void put_twice(void)
{
    struct ipu_slab slab;
    CHECK_EQ(ipu_slab_init(&slab, 4, 100), 0);
    uint32_t index = ipu_slab_get(&slab);
    ipu_slab_put(&slab, index);
    ipu_slab_put(&slab, index);
}

static void put_a_stranger(void)
{
    struct ipu_slab slab;
    CHECK_EQ(ipu_slab_init(&slab, 4, 100), 0);
    (void)ipu_slab_get(&slab);
    ipu_slab_put(&slab, 4);
}

static void a_double_put_and_a_foreign_index_are_caught_in_debug_builds(void)
{
    CHECK_EQ(check_signal_of(put_twice), SIGABRT);
    CHECK_EQ(check_signal_of(put_a_stranger), SIGABRT);
}

static void a_long_random_run_never_gives_one_frame_to_two_holders(void)
{
    enum { FRAMES = 97, STEPS = 200000 };
    struct ipu_slab slab;
    uint32_t held[FRAMES], n_held = 0;
    uint8_t is_held[FRAMES] = {0};
    uint64_t random = 1;
    CHECK_EQ(ipu_slab_init(&slab, FRAMES, 64), 0);
    for (int step = 0; step < STEPS; step++) {
        if (ipu_random_below(&random, 2)) {
            uint32_t index = ipu_slab_get(&slab);
            CHECK_EQ(index == IPU_SLAB_NONE, n_held == FRAMES);
            if (index == IPU_SLAB_NONE)
                continue;
            CHECK(index < FRAMES && !is_held[index]);
            is_held[index] = 1;
            held[n_held++] = index;
        } else if (n_held > 0) {
            uint32_t at = ipu_random_below(&random, n_held);
            is_held[held[at]] = 0;
            ipu_slab_put(&slab, held[at]);
            held[at] = held[--n_held];
        }
        CHECK_EQ(slab.free_frames, FRAMES - n_held);
    }
    ipu_slab_free(&slab);
}

int main(void)
{
    RUN(frames_lie_apart_aligned_and_inside_the_mapping);
    RUN(the_stride_is_an_odd_number_of_lines);
    RUN(the_frame_put_back_last_goes_out_first);
    RUN(an_exhausted_slab_gives_none_until_a_frame_returns);
    RUN(impossible_sizes_are_refused);
    RUN(every_refused_allocation_is_an_error_that_leaves_nothing);
    RUN(a_double_put_and_a_foreign_index_are_caught_in_debug_builds);
    RUN(a_long_random_run_never_gives_one_frame_to_two_holders);
}
