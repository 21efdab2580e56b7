/* SPDX-License-Identifier: BSD-2-Clause */
/* A TUN packet by packet, with pipes in the place of its queues. */
#include "device/tun.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>

#include "check.h"
#include "core/frame.h"

enum { COUNT = 4, PACKET = 28, FRAME = IPU_VNET_LEN + PACKET };

struct bed {
    int in[COUNT], out[COUNT]; /* the test reads in[], and the device has out[] */
    struct ipu_tun tun;
    const struct ipu_device_ops *ops;
};

static void make(struct bed *bed)
{
    for (int i = 0; i < COUNT; i++) {
        int ends[2];
        CHECK_EQ(pipe2(ends, O_NONBLOCK), 0);
        bed->in[i] = ends[0];
        bed->out[i] = ends[1];
    }
    CHECK_EQ(ipu_tun_init(&bed->tun, bed->out, COUNT, IPU_DEVICE_TCP), 0);
    bed->ops = bed->tun.device.ops;
}

static void end(struct bed *bed)
{
    for (int i = 0; i < COUNT; i++) {
        close(bed->in[i]);
        close(bed->out[i]);
    }
}

/* [vnet][IPv4][ports] */
static void put_udp(uint8_t *frame, uint8_t port)
{
    memset(frame, 0, FRAME);
    uint8_t *ip = frame + IPU_VNET_LEN;
    ip[0] = 0x45;
    ip[9] = IPPROTO_UDP;
    ip[21] = port;
}

/* Whole or in pieces, all frames of a flow go to the one chosen descriptor. */
static void a_frame_is_written_to_the_queue_of_its_flow(void)
{
    struct bed bed;
    make(&bed);
    for (uint8_t port = 0; port < 64; port++) {
        uint8_t frame[FRAME], got[256];
        put_udp(frame, port);
        struct iovec pieces[2] = {{frame, FRAME}, {"payload", 7}};
        CHECK_EQ(bed.ops->write(&bed.tun, frame, FRAME), 0);
        CHECK_EQ(bed.ops->writev(&bed.tun, pieces, 2), 0);
        uint32_t queue = ipu_tun_queues_choose(&bed.tun.queues, frame + IPU_VNET_LEN, PACKET);
        CHECK_EQ(read(bed.in[queue], got, sizeof got), 2 * FRAME + 7);
        CHECK_EQ(memcmp(got, frame, FRAME), 0);
        CHECK_EQ(memcmp(got + 2 * FRAME, "payload", 7), 0);
    }
    CHECK_EQ(bed.ops->write(&bed.tun, "short", 5), 0); /* the kernel refuses such frames, not we */
    CHECK_EQ(bed.tun.device.offload, IPU_DEVICE_TCP);
    end(&bed);
}

static void it_reads_and_watches_its_first_queue(void)
{
    struct bed bed;
    make(&bed);
    uint8_t got[16];
    CHECK_EQ(ipu_tun_init(&bed.tun, bed.in, COUNT, 0), 0);
    CHECK_EQ(bed.ops->fd(&bed.tun), bed.in[0]);
    CHECK_EQ(bed.ops->read(&bed.tun, got, sizeof got), -EAGAIN);
    CHECK_EQ(write(bed.out[1], "other", 5), 5);
    CHECK_EQ(bed.ops->read(&bed.tun, got, sizeof got), -EAGAIN);
    CHECK_EQ(write(bed.out[0], "ours", 4), 4);
    CHECK_EQ(bed.ops->read(&bed.tun, got, sizeof got), 4);
    CHECK_EQ(memcmp(got, "ours", 4), 0);
    end(&bed);
}

static void the_errors_of_the_kernel_are_passed_on(void)
{
    struct bed bed;
    make(&bed);
    struct iovec piece = {"x", 1};
    signal(SIGPIPE, SIG_IGN);
    close(bed.in[0]);
    CHECK_EQ(bed.ops->write(&bed.tun, "x", 1), -EPIPE);
    CHECK_EQ(bed.ops->writev(&bed.tun, &piece, 1), -EPIPE);
    bed.in[0] = dup(bed.in[1]);
    end(&bed);
}

static void impossible_numbers_of_queues_are_refused(void)
{
    struct ipu_tun tun;
    const int fds[IPU_TX_QUEUES_MAX] = {0};
    CHECK_EQ(ipu_tun_init(&tun, fds, 0, 0), -EINVAL);
    CHECK_EQ(ipu_tun_init(&tun, fds, IPU_TX_QUEUES_MAX + 1, 0), -EINVAL);
}

int main(void)
{
    RUN(a_frame_is_written_to_the_queue_of_its_flow);
    RUN(it_reads_and_watches_its_first_queue);
    RUN(the_errors_of_the_kernel_are_passed_on);
    RUN(impossible_numbers_of_queues_are_refused);
    return 0;
}
