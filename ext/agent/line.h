/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef LAB_LINE_H
#define LAB_LINE_H

#include <stddef.h>
#include <stdint.h>

/*
 * The line to the lab. Both sides send frames: "LAB", a type, a number of a command, a length (32
 * bits each, of this processor's byte order), and so many bytes. ipoibu/lab/machines/agent.py has
 * the other side, and says what the types mean. Whatever else comes along the line, such as the
 * output of a program that writes into it, is skipped. A frame is one write(2), so nothing else
 * stands in its middle.
 */
#define PAYLOAD_MAX 65536

struct frame {
    char magic[3];
    char type;
    uint32_t id;
    uint32_t length;
    char payload[PAYLOAD_MAX];
};

#define FRAME_HEADER offsetof(struct frame, payload)

/* Ends the program: without its line nobody hears it. */
void line_die(const char *what);

/* Opens a device as the line, or takes stdin for NULL. Returns its descriptor. */
int line_open(const char *device);

/* Returns the place for the payload of the next frame. */
char *line_payload(void);

/* Sends the next frame, with so many bytes of payload. */
void line_send(char type, uint32_t id, size_t length);

/* Reads what has come, and calls `obey` for each whole frame. */
void line_receive(void (*obey)(struct frame *));

#endif
