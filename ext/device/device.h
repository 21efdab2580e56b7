/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_DEVICE_H
#define IPU_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "core/slab.h"

/* The packet device: the source and sink of IP packets; a TUN or the application's queue. A frame
 * is [vnet 16][IP packet]. Only the pump's thread calls these functions, and none of them blocks. A
 * device travels to Python as a capsule named IPU_DEVICE_CAPSULE.
 *
 * A device with offloads gives and takes super-frames of TCP or UDP, of up to 64 KiB: the vnet
 * header (struct virtio_net_hdr) says how to cut them (segment.h), or how they were merged
 * (coalesce.h). Other devices see packets that fit the MTU, with vnet headers of zeros.
 */
#define IPU_DEVICE_CAPSULE "ipoibu.device"

enum {
    IPU_DEVICE_QUEUED = 1,   /* of write(): flush() writes the frame; its buffer stays until then */
    IPU_DEVICE_WRITES = 256, /* frames queued at once, at most */
};

/*
 * The frames that a pump gives a device that uses frames in place. Receive frames have one
 * numbering: first those of datagrams, then those of connections. The pump may have none of either.
 */
struct ipu_device_frames {
    struct ipu_slab *tx, *rx, *connected_rx;
    uint32_t lent; /* the device gets this many frames of tx, the first ones */
    uint32_t packet_bytes;
};

struct ipu_device_ops {
    /* Reads one frame into buf; returns its length, or a negative errno: -EAGAIN when there is
     * none, IPU_VLAN_FULL (trunk.h). NULL where give() hands out every frame. */
    ssize_t (*read)(void *self, void *buf, size_t cap);
    /* Writes one frame; returns 0, IPU_DEVICE_QUEUED, or a negative errno: -EAGAIN and -ENOBUFS
     * when there is no room. */
    int (*write)(void *self, const void *buf, size_t len);
    /* Writes a frame of the engine, which begins with its Ethernet header; returns as write(), but
     * never IPU_DEVICE_QUEUED. NULL without `ethernet`. */
    int (*write_frame)(void *self, const void *frame, size_t len);
    /* Writes a frame in pieces, at most 64. NULL where `offload` is 0. */
    int (*writev)(void *self, const struct iovec *iov, int n);
    /* Ends a batch of writes: writes the queued frames and wakes the reader. May be NULL. */
    void (*flush)(void *self);
    /* After flush(): reports how the n queued writes ended, in their order, 0 or negative errno.
     * NULL where write() never queues. */
    void (*written)(void *self, int *errors, int n);
    /* Makes fd() readable at the next frame; returns 1 if frames may be waiting already: then the
     * caller reads again. NULL where the descriptor is readable whenever there is a frame. */
    int (*arm)(void *self);
    int (*fd)(void *self);
    /* A second descriptor that is readable when there may be a frame; -1, or NULL: there is none.
     * Both descriptors stay the same while the device is attached. */
    int (*ahead_fd)(void *self);
    /* When the device wants the next read() at the latest, in nanoseconds of CLOCK_MONOTONIC, or
     * INT64_MAX. While no transmit frame is free, it waits. May be NULL. */
    int64_t (*deadline_ns)(void *self);

    /*
     * The rest is for a device that uses frames in place (loan.h, tun_ring.h), else NULL. Gives the
     * device the pump's frames, of which none may be lent. 0, or negative errno.
     */
    int (*attach)(void *self, const struct ipu_device_frames *frames);
    /* The pump has ended: the device stops using these frames, unless another pump has attached by
     * now, which may happen as soon as this one's thread has ended. May be NULL. */
    void (*detach)(void *self, const struct ipu_slab *tx);
    /* Hands out the next frame if it lies in a lent frame: its index and, as read() does, its
     * length. 0: read() returns the next frame. */
    ssize_t (*give)(void *self, uint32_t *index);
    /* Takes back a frame that give() handed out. */
    void (*ended)(void *self, uint32_t index);
    /* Keeps the packet of `ip_len` bytes at `ip` in its receive frame; -ENOBUFS: the pump writes it
     * instead. NULL, with back(), where the pump writes all packets. */
    int (*take)(void *self, uint32_t index, const uint8_t *ip, size_t ip_len);
    /* Returns a receive frame that the device kept and does not need any more, or
     * IPU_INDEX_NONE. */
    uint32_t (*back)(void *self);
};

#define IPU_DEVICE_TCP 1u
#define IPU_DEVICE_UDP 2u

struct ipu_device {
    const struct ipu_device_ops *ops;
    void *self;
    uint32_t offload;    /* IPU_DEVICE_*: super-frames that the device takes; constant */
    uint32_t lent_bytes; /* about how much of the transmit frames it fills; 0 without attach() */
    bool ethernet; /* a frame has its Ethernet header in the IPU_TAP_ROOM bytes in front (tap.h) */
};

#endif
