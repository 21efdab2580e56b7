/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_FUZZ_INPUT_H
#define IPU_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * A fuzzer's input is a list of actions: a byte that selects the action, then its arguments.
 * Numbers are little-endian; behind the end of the input everything is 0.
 */
struct input {
    const uint8_t *at;
    size_t left;
};

static inline uint8_t input_u8(struct input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->at++;
}

static inline uint16_t input_u16(struct input *in)
{
    uint16_t low = input_u8(in);
    return (uint16_t)(low | input_u8(in) << 8);
}

/* Reads a length of 16 bits and that many bytes, as far as the input and max reach; returns how
 * many bytes it read. */
static inline size_t input_bytes(struct input *in, void *out, size_t max)
{
    size_t n = input_u16(in);
    n = n < in->left ? n : in->left;
    size_t kept = n < max ? n : max;
    if (kept > 0)
        memcpy(out, in->at, kept);
    in->at += n;
    in->left -= n;
    return kept;
}

/* A condition that has to hold for every input; a fuzzer keeps an input that breaks it. */
#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);              \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* Reads every byte, so that AddressSanitizer sees each. */
static inline uint8_t input_touch(const void *data, size_t bytes)
{
    const uint8_t *at = data;
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < bytes; i++)
        sum = (uint8_t)(sum + at[i]);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#endif
