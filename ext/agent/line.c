/* SPDX-License-Identifier: BSD-2-Clause */
#include "agent/line.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static struct frame in, out;
static size_t received;
static int line;

void line_die(const char *what)
{
    fprintf(stderr, "lab agent: %s: %s\n", what, strerror(errno));
    exit(125);
}

int line_open(const char *device)
{
    if (device != NULL)
        line = open(device, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (line < 0)
        line_die(device);
    struct termios settings;
    if (tcgetattr(line, &settings) == 0) {
        cfmakeraw(&settings);
        tcsetattr(line, TCSANOW, &settings);
        ioctl(line, TIOCEXCL);
    }
    return line;
}

char *line_payload(void)
{
    return out.payload;
}

void line_send(char type, uint32_t id, size_t length)
{
    memcpy(out.magic, "LAB", 3);
    out.type = type;
    out.id = id;
    out.length = (uint32_t)length;
    const char *at = (const char *)&out;
    for (size_t left = FRAME_HEADER + length; left > 0;) {
        ssize_t done = write(line, at, left);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            line_die("the line to the lab");
        at += done;
        left -= (size_t)done;
    }
}

/* Takes the whole frames out of what has come, and skips what is none. */
static void parse(void (*obey)(struct frame *))
{
    char *start = (char *)&in;
    for (;;) {
        bool is_frame = memcmp(in.magic, "LAB", received < 3 ? received : 3) == 0;
        if (is_frame && received < FRAME_HEADER)
            return;
        if (is_frame && in.length <= PAYLOAD_MAX) {
            size_t whole = FRAME_HEADER + in.length;
            if (received < whole)
                return;
            obey(&in);
            received -= whole;
            memmove(start, start + whole, received);
        } else {
            char *next = memchr(start + 1, 'L', received - 1);
            received -= next == NULL ? received : (size_t)(next - start);
            if (next != NULL)
                memmove(start, next, received);
        }
    }
}

void line_receive(void (*obey)(struct frame *))
{
    ssize_t length = read(line, (char *)&in + received, sizeof in - received);
    if (length < 0 && errno == EINTR)
        return;
    if (length <= 0)
        line_die("the line to the lab");
    received += (size_t)length;
    parse(obey);
}
