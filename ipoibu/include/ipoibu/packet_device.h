/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPOIBU_PACKET_DEVICE_H
#define IPOIBU_PACKET_DEVICE_H

#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The IP packets of an ipoibu endpoint, in C. docs/use/c-device.md explains the two ways:
 *
 * - a packet device, which the application makes and the data path's thread calls;
 * - the packet queue, which ipoibu makes and two threads of the application call.
 *
 * Both travel through Python as capsules with these names. What is declared here stays as it is;
 * another version gets another name.
 */
#define IPOIBU_PACKET_DEVICE_V1 "ipoibu.packet_device.v1"
#define IPOIBU_PACKET_QUEUE_V1  "ipoibu.packet_queue.v1"

/*
 * A frame is [vnet 16][IP packet]. The first 10 bytes of vnet are struct virtio_net_hdr of
 * <linux/virtio_net.h> in the byte order of the machine. All of it is 0 in front of a packet that
 * fits the MTU and has its checksum.
 */
#define IPOIBU_VNET_BYTES 16u
#define IPOIBU_NO_FRAME   UINT32_MAX

/* Super-frames of up to 65535 bytes, which ipoibu cuts when they leave, and merges when they
 * arrive. */
#define IPOIBU_OFFLOAD_TCP 1u
#define IPOIBU_OFFLOAD_UDP 2u

/* ---- the packet device ----------------------------------------------------------------------- */

/* The frames of a data path that a device may use in place, from start() on. The transmit frames
 * have the numbers 0 to count - 1, and all are the device's at first. */
struct ipoibu_frames_v1 {
    uint8_t *first;        /* frame n is at first + n * stride_bytes */
    uint32_t stride_bytes; /* from frame to frame */
    uint32_t count;        /* 0 without lent_bytes */
    uint32_t packet_bytes; /* longest packet of a frame */
    uint32_t mtu_bytes;    /* of the interface */
    void *memory;          /* a reference to the memory of all frames */
    /* Any thread: the memory lasts until the last holder drops it, also after stop(). */
    void (*hold)(void *memory);
    void (*drop)(void *memory);
};

/* The functions get `self`. None may block, take Python's GIL or call ipoibu. They return 0, a
 * length or a negative errno; -EAGAIN: there is no packet; -EAGAIN and -ENOBUFS: there is no room;
 * -EBADFD from read() or give(): the device has failed for good. NULL is allowed where it says so.
 */
struct ipoibu_packet_device_v1 {
    void *self;
    uint32_t offload;    /* IPOIBU_OFFLOAD_*: super-frames that the device gives and takes */
    uint32_t lent_bytes; /* it wants about so much of transmit frames for give(); or 0 */

    /* A data path begins, or has ended; nothing else runs meanwhile. start() may come again at
     * once, after stop(). NULL is allowed. */
    int (*start)(void *self, const struct ipoibu_frames_v1 *frames);
    void (*stop)(void *self);

    /* Fills `frame` with the next frame to send; returns its length. NULL with give(). */
    ssize_t (*read)(void *self, void *frame, size_t bytes);
    /* Names the lent frame that holds the next frame to send, and returns its length; 0: read() has
     * it. The frame is ipoibu's until ended(). Both NULL without lent_bytes. */
    ssize_t (*give)(void *self, uint32_t *frame);
    void (*ended)(void *self, uint32_t frame);

    /* Takes a received frame, in one piece or more (at most 64, with `offload`), which are ipoibu's
     * again after the call. */
    int (*write)(void *self, const struct iovec *pieces, int count);
    /* Keeps a received packet where it lies: 0. An error: write() gets it. NULL is allowed, with
     * back(). */
    int (*keep)(void *self, uint32_t frame, const uint8_t *packet, size_t bytes);
    /* Names a kept frame that the device does not need any more, or IPOIBU_NO_FRAME. */
    uint32_t (*back)(void *self);
    /* A batch of received packets has ended. NULL is allowed. */
    void (*flush)(void *self);

    /* Is readable when there is a frame to send; asked once for each data path. */
    int (*fd)(void *self);
    /* Makes fd() readable at the next frame; 1: there may be a frame now. NULL where fd() is
     * readable as long as there is a frame. */
    int (*arm)(void *self);
    /* When read() or give() is to be called at the latest, in nanoseconds of CLOCK_MONOTONIC;
     * INT64_MAX: never. NULL is allowed. */
    int64_t (*deadline_ns)(void *self);
};

/* ---- the packet queue ------------------------------------------------------------------------ */

/* An IP packet: of the data path's memory from reserve() to send() or cancel(), or from receive()
 * to release(). It stays readable whatever happens to the endpoint. */
struct ipoibu_packet_v1 {
    uint8_t *data;
    uint32_t bytes; /* after reserve(): what fits; before send(): the packet's length */
    uint32_t frame;
    void *memory;
};

/* One thread calls the functions that send, one those that receive; the same one may do both. No
 * function blocks, and all may be called while the endpoint closes or gets another queue pair. */
struct ipoibu_packet_queue_v1 {
    void *self;
    int send_fd, receive_fd;

    /* Returns how many packets it reserved; 0: ipoibu is sending all frames; -ENETDOWN: the
     * endpoint is not open, or gets another queue pair. */
    int (*reserve)(void *self, struct ipoibu_packet_v1 *packets, int max);
    /* Sends reserved packets in their order, and takes all of them. Returns how many it queued; it
     * drops the others. */
    int (*send)(void *self, struct ipoibu_packet_v1 *packets, int count);
    void (*cancel)(void *self, struct ipoibu_packet_v1 *packets, int count);
    /* 1: reserve() has frames. 0: it has none; send_fd becomes readable when it has. */
    int (*await_frames)(void *self);

    /* Returns how many packets it received, perhaps 0. */
    int (*receive)(void *self, struct ipoibu_packet_v1 *packets, int max);
    void (*release)(void *self, struct ipoibu_packet_v1 *packets, int count);
    /* 1: receive() has packets. 0: it has none; receive_fd becomes readable when it has. */
    int (*await_packets)(void *self);
};

#ifdef __cplusplus
}
#endif

#endif
