/* SPDX-License-Identifier: BSD-2-Clause */
/* A token goes round a ring of ranks, all sum their numbers, and each exchanges 1 MB with the next.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 10, BYTES = 1 << 20 };

static void expect(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s is wrong\n", what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv)
{
    int rank, ranks, token = 0, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    expect(ranks > 1, "the number of ranks");
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    for (int round = 0; round < ROUNDS; round++) {
        if (rank == 0)
            token++, MPI_Send(&token, 1, MPI_INT, next, 0, MPI_COMM_WORLD);
        MPI_Recv(&token, 1, MPI_INT, previous, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank != 0)
            MPI_Send(&token, 1, MPI_INT, next, 0, MPI_COMM_WORLD);
    }
    expect(token == ROUNDS, "the token");
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    expect(sum == ranks * (ranks - 1) / 2, "the sum");
    char *mine = malloc(BYTES), *theirs = malloc(BYTES);
    memset(mine, rank + 1, BYTES);
    MPI_Sendrecv(mine, BYTES, MPI_CHAR, next, 1, theirs, BYTES, MPI_CHAR, previous, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int at = 0; at < BYTES; at++)
        expect(theirs[at] == previous + 1, "a byte");
    MPI_Finalize();
    return 0;
}
