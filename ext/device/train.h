/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TRAIN_H
#define IPU_TRAIN_H

#include <netinet/in.h>
#include <netinet/udp.h>
#include <stddef.h>
#include <sys/types.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103 /* Linux 4.18 */
#endif
#ifndef UDP_GRO
#define UDP_GRO 104 /* Linux 5.0 */
#endif

/*
 * Trains of datagrams of one length, of which the last may be shorter: one system call of a
 * connected UDP socket moves up to 64 KiB (UDP_SEGMENT, UDP_GRO). For the contenders of the
 * benchmark; any thread may call them.
 */

/* Sends datagrams of `each` bytes. Returns 0, or -EBADF when the socket is closed; all other
 * trouble loses the train, as a wire does. */
int ipu_train_send(int udp, const void *train, size_t bytes, size_t each);

/* Receives a train on a socket with UDP_GRO, and stores the bytes of a datagram in *each. Returns
 * the bytes of the train, -EAGAIN without one, or another negative errno. */
ssize_t ipu_train_receive(int udp, void *train, size_t size, size_t *each);

#endif
