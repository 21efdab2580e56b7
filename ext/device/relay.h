/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_RELAY_H
#define IPU_RELAY_H

/* Moves frames in one direction for a turn; returns how many, or a negative errno. */
typedef int ipu_relay_move(int from, int to);

/* Lets both directions take turns, and sleeps when neither has moved a frame. Runs until a move
 * fails, and returns its negative errno. */
int ipu_relay_take_turns(int first, int second, ipu_relay_move *forth, ipu_relay_move *back);

/*
 * The least work that any program between two TUN devices has to do: it reads a frame from one and
 * writes it to the other, in both directions, super-frames whole. Its speed is the ceiling that
 * benchmarks compare with. ipoibu/host/tun.py opens both descriptors (16-byte vnet header,
 * non-blocking). Runs until a device fails, and returns its negative errno.
 */
int ipu_relay_run(int first, int second);

#endif
