/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef LAB_COMMANDS_H
#define LAB_COMMANDS_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>

/* The commands that run in the machine: a table with a cap, so nothing here grows. */
#define COMMANDS_MAX    64 /* that run, or whose background processes still hold their output */
#define COMMANDS_POLLED (2 * COMMANDS_MAX)

/* Flags of a command. */
enum { MERGED = 1, TERMINAL = 2 };

/* Starts the command of a frame: a byte of flags, then arguments that end with NUL. Answers when it
 * cannot. */
void commands_start(uint32_t id, char *payload, size_t length);

/* What the lab asks of a command; of one that is not there it asks in vain. */
void commands_type(uint32_t id, const char *payload, size_t length);
void commands_resize(uint32_t id, const char *payload, size_t length);
void commands_kill(uint32_t id, int number);

/* Reports the commands that have ended, after all of their output. */
void commands_reap(void);

/* What poll(2) is to wait for, and then the forwarding of what has come. */
void commands_poll(struct pollfd polled[COMMANDS_POLLED]);
void commands_forward(const struct pollfd polled[COMMANDS_POLLED]);

#endif
