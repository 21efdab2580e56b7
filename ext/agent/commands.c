/* SPDX-License-Identifier: BSD-2-Clause */
#include "agent/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "agent/line.h"

#define CHUNK     4096    /* of output in a frame: what the serial line takes at once */
#define INPUT_MAX 16384   /* that a terminal has not taken */
#define ARGUMENTS 1024    /* of a command */
#define DRAIN_MAX 1048576 /* of output that is read after a command's end: the largest pipe */

struct command {
    bool used;
    bool ended; /* the lab knows its status */
    uint32_t id;
    pid_t pid;
    int output; /* a pipe's end or a terminal's; -1 after its end */
    int errors;
    bool terminal;
    size_t waiting; /* input that the terminal has not taken */
    char input[INPUT_MAX];
};

static struct command commands[COMMANDS_MAX];

static void refuse(uint32_t id, const char *why)
{
    size_t length = strlen(why);
    memcpy(line_payload(), why, length);
    line_send('N', id, length);
}

static struct command *find(uint32_t id)
{
    for (struct command *it = commands; it < commands + COMMANDS_MAX; it++)
        if (it->used && it->id == id)
            return it;
    return NULL;
}

/* Forgets a command that has ended and whose output nobody holds any more. */
static void settle(struct command *it)
{
    if (it->ended && it->output < 0 && it->errors < 0)
        it->used = false;
}

static void close_end(int *end)
{
    if (*end >= 0)
        close(*end);
    *end = -1;
}

/* Forwards one piece of output; returns its length, 0 when there is none now. */
static size_t forward(struct command *it, int *end, char type)
{
    if (*end < 0)
        return 0;
    ssize_t length = read(*end, line_payload(), CHUNK - FRAME_HEADER);
    if (length > 0) {
        line_send(type, it->id, (size_t)length);
        return (size_t)length;
    }
    if (length == 0 || (errno != EAGAIN && errno != EINTR)) /* a terminal ends with EIO */
        close_end(end);
    return 0;
}

static void drain(struct command *it, int *end, char type)
{
    size_t length, total = 0;
    while (total < DRAIN_MAX && (length = forward(it, end, type)) > 0)
        total += length;
}

/* What a command has written before its end comes before its status. */
void commands_reap(void)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (struct command *it = commands; it < commands + COMMANDS_MAX; it++) {
            if (!it->used || it->ended || it->pid != pid)
                continue;
            drain(it, &it->output, 'O');
            drain(it, &it->errors, 'E');
            uint32_t code = WIFSIGNALED(status) ? 128u + (uint32_t)WTERMSIG(status)
                                                : (uint32_t)WEXITSTATUS(status);
            memcpy(line_payload(), &code, sizeof code);
            it->ended = true;
            line_send('X', it->id, sizeof code);
            if (it->terminal)
                close_end(&it->output);
            settle(it);
        }
    }
}

/* In the child: becomes the command, with `output` and `errors`, or with the terminal `output`. */
static void become(char **arguments, int input, int output, int errors, bool terminal)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    if (terminal)
        ioctl(output, TIOCSCTTY, 0);
    if (dup2(input, 0) >= 0 && dup2(output, 1) >= 0 && dup2(errors, 2) >= 0)
        execvp(arguments[0], arguments);
    fprintf(stderr, "%s: %s\n", arguments[0], strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

static int terminal_pair(int *other)
{
    int unlock = 0, number;
    char name[32];
    int end = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (end < 0)
        return -1;
    if (ioctl(end, TIOCSPTLCK, &unlock) == 0 && ioctl(end, TIOCGPTN, &number) == 0) {
        snprintf(name, sizeof name, "/dev/pts/%d", number);
        *other = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (*other >= 0)
            return end;
    }
    close(end);
    return -1;
}

static int pipe_end(int *other)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    *other = ends[1];
    return ends[0];
}

void commands_start(uint32_t id, char *payload, size_t length)
{
    static char *arguments[ARGUMENTS + 1];
    if (length < 2 || payload[length - 1] != 0 || find(id) != NULL)
        return refuse(id, "the agent does not understand the command");
    size_t count = 0;
    for (char *at = payload + 1; at < payload + length; at += strlen(at) + 1) {
        if (count == ARGUMENTS)
            return refuse(id, "the command has too many arguments");
        arguments[count++] = at;
    }
    arguments[count] = NULL;
    struct command *it = commands;
    while (it < commands + COMMANDS_MAX && it->used)
        it++;
    if (it == commands + COMMANDS_MAX)
        return refuse(id, "the machine runs as many commands as it can");
    bool terminal = payload[0] & TERMINAL, merged = payload[0] & MERGED;
    int output = -1, errors = -1;
    it->ended = false;
    it->id = id;
    it->terminal = terminal;
    it->errors = -1;
    it->waiting = 0;
    it->output = terminal ? terminal_pair(&output) : pipe_end(&output);
    int input = terminal ? dup(output) : open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (!terminal && !merged)
        it->errors = pipe_end(&errors);
    else
        errors = dup(output);
    if (output >= 0 && errors >= 0 && input >= 0)
        it->pid = fork();
    else
        it->pid = -1;
    if (it->pid == 0)
        become(arguments, input, output, errors, terminal);
    const char *why = strerror(errno);
    close_end(&input);
    close_end(&output);
    close_end(&errors);
    if (it->pid > 0) {
        it->used = true;
        return;
    }
    close_end(&it->output);
    close_end(&it->errors);
    refuse(id, why);
}

static void write_input(struct command *it)
{
    ssize_t done = write(it->output, it->input, it->waiting);
    if (done <= 0)
        return;
    it->waiting -= (size_t)done;
    memmove(it->input, it->input + done, it->waiting);
}

/* Bytes beyond the cap are lost, as on a serial line without flow control. */
void commands_type(uint32_t id, const char *payload, size_t length)
{
    struct command *it = find(id);
    if (it == NULL || !it->terminal || it->output < 0)
        return;
    size_t room = sizeof it->input - it->waiting;
    if (length > room)
        length = room;
    memcpy(it->input + it->waiting, payload, length);
    it->waiting += length;
    write_input(it);
}

void commands_resize(uint32_t id, const char *payload, size_t length)
{
    struct command *it = find(id);
    uint16_t size[2];
    if (it == NULL || !it->terminal || it->output < 0 || length != sizeof size)
        return;
    memcpy(size, payload, sizeof size);
    struct winsize window = {.ws_row = size[0], .ws_col = size[1]};
    ioctl(it->output, TIOCSWINSZ, &window);
}

/* The command's session gets the signal, with what the command left in the background. */
void commands_kill(uint32_t id, int number)
{
    struct command *it = find(id);
    if (it != NULL && kill(-it->pid, number) != 0 && !it->ended)
        kill(it->pid, number); /* it has no session yet */
}

void commands_poll(struct pollfd polled[COMMANDS_POLLED])
{
    for (size_t i = 0; i < COMMANDS_MAX; i++) {
        struct command *it = &commands[i];
        short input = it->waiting > 0 ? POLLOUT : 0;
        polled[2 * i] = (struct pollfd){it->used ? it->output : -1, POLLIN | input, 0};
        polled[2 * i + 1] = (struct pollfd){it->used ? it->errors : -1, POLLIN, 0};
    }
}

void commands_forward(const struct pollfd polled[COMMANDS_POLLED])
{
    for (size_t i = 0; i < COMMANDS_MAX; i++) {
        struct command *it = &commands[i];
        if (polled[2 * i].revents & POLLOUT)
            write_input(it);
        if (polled[2 * i].revents & ~POLLOUT)
            forward(it, &it->output, 'O');
        if (polled[2 * i + 1].revents)
            forward(it, &it->errors, 'E');
        if (it->used)
            settle(it);
    }
}
