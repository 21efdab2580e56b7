/* SPDX-License-Identifier: BSD-2-Clause */
/* The checksum over packets of usual sizes, in the cache. */
#include "bench.h"
#include "check.h"
#include "core/csum.h"

enum { TOTAL_BYTES = 1 << 30 };

int main(void)
{
    static const size_t sizes[] = {20, 64, 512, 1500, 2044, 4092, 65516};
    static uint8_t data[65536 + 64];
    memset(data, 0x5A, sizeof data);
    printf("bytes   ns a packet   GB/s\n");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t rounds = TOTAL_BYTES / (sizes[i] + 64);
        double start = bench_now_ns();
        for (size_t n = 0; n < rounds; n++)
            bench_keep(ipu_csum_finish(ipu_csum_add(n, data + 4, sizes[i])));
        double ns = (bench_now_ns() - start) / (double)rounds;
        printf("%5zu   %11.1f   %4.1f\n", sizes[i], ns, (double)sizes[i] / ns);
    }
}
