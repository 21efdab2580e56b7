/* SPDX-License-Identifier: BSD-2-Clause */
/* Stands in for libFuzzer where a compiler has none: runs each file that the caller names once. */
#include "input.h"

enum { INPUT_MAX = 1 << 20 };

int main(int argc, char **argv)
{
    static uint8_t data[INPUT_MAX];
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        if (file == NULL) {
            perror(argv[i]);
            return 1;
        }
        size_t bytes = fread(data, 1, sizeof data, file);
        fclose(file);
        uint8_t *exact = malloc(bytes > 0 ? bytes : 1);
        MUST(exact != NULL);
        memcpy(exact, data, bytes);
        (void)LLVMFuzzerTestOneInput(exact, bytes);
        free(exact);
    }
    printf("ok %d inputs\n", argc - 1);
    return 0;
}
