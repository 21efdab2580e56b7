/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests which frames of a pump get huge pages: those of a direction that has a stream. */
#include <stdatomic.h>
#include <sys/eventfd.h>

#include "check.h"
#include "fake_fabric.h"
#include "pump/loop/pump.h"
#include "pump/state/pump_state.h"

enum { MTU = 2044, MS = 1000 };

static int fabric_fd, device_fd;

static int fd_of(void *self)
{
    return *(int *)self;
}

static const struct ipu_fabric_ops fabric_ops = {
    FAKE_FABRIC_OPS,        .send = fake_send_all,     .post = fake_post,
    .sent = fake_none_sent, .received = fake_received, .fd = fd_of,
};
static struct ipu_fabric fabric = {
    .ops = &fabric_ops, .self = &fabric_fd, .qpn = 0x48, .mtu = MTU + IPU_ENCAP_LEN};

static ssize_t read_none(void *self, void *buf, size_t cap)
{
    (void)self, (void)buf, (void)cap;
    return -EAGAIN;
}

static const struct ipu_device_ops device_ops = {.read = read_none, .fd = fd_of};
static struct ipu_device device = {.ops = &device_ops, .self = &device_fd};

/* Has a pump move so many bytes between two sleeps, and checks the frames of both directions. */
static void check_wide(uint64_t tx_bytes, uint64_t rx_bytes, bool tx, bool rx)
{
    struct ipu_pump *pump;
    struct ipu_pump_config config = {
        .fabric = &fabric,
        .device = &device,
        .mtu = MTU,
        .tx_frames = 16,
        .rx_frames = 16,
        .neigh_max = 16,
        .route_max = 16,
        .ah_max = 16,
        .command_bytes = 1 << 16,
        .event_bytes = 1 << 15,
        .capture_bytes = 1 << 16,
    };
    fabric_fd = eventfd(0, EFD_NONBLOCK);
    device_fd = eventfd(0, EFD_NONBLOCK);
    CHECK_EQ(ipu_pump_create(&config, &pump), 0);
    atomic_store(&pump->counters.tx_bytes, tx_bytes);
    atomic_store(&pump->counters.rx_bytes, rx_bytes);
    CHECK_EQ(ipu_pump_start(pump), 0);
    while (atomic_load(&pump->counters.wakeups) == 0) { /* until it has slept */
        eventfd_write(device_fd, 1);
        usleep(MS);
    }
    ipu_pump_stop(pump);
    CHECK_EQ(pump->is_tx_wide, tx);
    CHECK_EQ(pump->is_rx_wide, rx);
    ipu_pump_destroy(pump);
    close(fabric_fd);
    close(device_fd);
}

static void a_stream_widens_the_frames_of_its_direction(void)
{
    check_wide(1 << 20, 0, true, false);
    check_wide(0, 1 << 20, false, true);
    check_wide(1 << 20, 1 << 20, true, true);
    check_wide(1 << 15, 1 << 10, false, false);
}

static void acknowledgements_are_no_stream(void)
{
    check_wide(1 << 17, 1 << 24, false, true);
    check_wide(1 << 24, 1 << 17, true, false);
}

static void frames_that_an_adapter_pins_are_wide_from_the_start(void)
{
    fabric.pins_memory = true;
    check_wide(0, 0, true, true);
    fabric.pins_memory = false;
}

int main(void)
{
    RUN(a_stream_widens_the_frames_of_its_direction);
    RUN(acknowledgements_are_no_stream);
    RUN(frames_that_an_adapter_pins_are_wide_from_the_start);
    return 0;
}
