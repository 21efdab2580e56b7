/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_RELAY_H
#define IPU_RELAY_H

/*
 * The least work that any program between two TUN devices has to do: it reads a frame from one and
 * writes it to the other, in both directions, super-frames whole. Its speed is the ceiling that
 * benchmarks compare with. ipoibu/host/tun.py opens both descriptors (16-byte vnet header,
 * non-blocking). Runs until a device fails, and returns its negative errno.
 */
int ipu_relay_run(int first, int second);

#endif
