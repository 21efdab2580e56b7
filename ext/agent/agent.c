/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The agent of a lab machine: runs commands for the lab, which is on the host.
 *
 *     agent [DEVICE]    DEVICE is a serial line; without it, the line is stdin, a socket
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "agent/commands.h"
#include "agent/line.h"

/* A machine has no source of randomness, and programs wait for it. */
static void seed(const char *payload, size_t length)
{
    struct {
        struct rand_pool_info info;
        char bytes[256];
    } pool;
    if (length > sizeof pool.bytes)
        length = sizeof pool.bytes;
    pool.info.entropy_count = (int)length * 8;
    pool.info.buf_size = (int)length;
    memcpy(pool.info.buf, payload, length);
    int random = open("/dev/random", O_WRONLY | O_CLOEXEC);
    if (random >= 0) {
        ioctl(random, RNDADDENTROPY, &pool);
        close(random);
    }
}

static void obey(struct frame *it)
{
    switch (it->type) {
    case 'S':
        seed(it->payload, it->length);
        break;
    case 'R':
        commands_start(it->id, it->payload, it->length);
        break;
    case 'I':
        commands_type(it->id, it->payload, it->length);
        break;
    case 'W':
        commands_resize(it->id, it->payload, it->length);
        break;
    case 'K':
        if (it->length == 1)
            commands_kill(it->id, it->payload[0]);
        break;
    case 'Q':
        sync(); /* into the files that the host keeps */
        line_send('Q', 0, 0);
        exit(0);
    }
}

int main(int argc, char **argv)
{
    int line = line_open(argc > 1 ? argv[1] : NULL);
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, NULL);
    signal(SIGPIPE, SIG_IGN);
    int ends = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
    if (ends < 0)
        line_die("signalfd");
    line_send('H', 0, 0);
    for (;;) {
        struct pollfd polled[2 + COMMANDS_POLLED] = {{line, POLLIN, 0}, {ends, POLLIN, 0}};
        commands_poll(polled + 2);
        if (poll(polled, 2 + COMMANDS_POLLED, -1) < 0)
            continue;
        commands_forward(polled + 2);
        struct signalfd_siginfo information;
        if (polled[1].revents && read(ends, &information, sizeof information) > 0)
            commands_reap();
        if (polled[0].revents)
            line_receive(obey);
    }
}
