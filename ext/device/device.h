/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_DEVICE_H
#define IPU_DEVICE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "core/slab.h"

/*
 * The packet device: where IP packets come from and go to; a TUN or the application's queue. A
 * frame is [vnet 16][IP packet]. Only the pump's thread calls these, and none of them blocks. A
 * device travels to Python as a capsule named IPU_DEVICE_CAPSULE.
 *
 * A device with offloads gives and takes super-frames of TCP or UDP, of up to 64 KiB: the vnet
 * header (struct virtio_net_hdr) says how they are to be cut (segment.h), or were merged
 * (coalesce.h). Other devices see packets that fit the MTU and vnet headers of zeros.
 */
#define IPU_DEVICE_CAPSULE "ipoibu.device"

enum {
    IPU_DEVICE_QUEUED = 1,   /* of write(): flush() writes it, the buffer stays until then */
    IPU_DEVICE_WRITES = 256, /* queued at once, at most */
};

/*
 * What a pump gives a device that uses frames in place. Receive frames are numbered through: those
 * of datagrams, then those of connections. Each may be without any.
 */
struct ipu_device_frames {
    struct ipu_slab *tx, *rx, *connected_rx;
    uint32_t lent; /* the device takes so many frames of tx, the first */
    uint32_t packet_bytes;
};

struct ipu_device_ops {
    /* Read one frame into buf; its length, or negative errno: -EAGAIN when there is none. NULL
     * where give() has every frame. */
    ssize_t (*read)(void *self, void *buf, size_t cap);
    /* Write one frame; 0, IPU_DEVICE_QUEUED, or negative errno: -EAGAIN and -ENOBUFS when there is
     * no room. */
    int (*write)(void *self, const void *buf, size_t len);
    /* The same for a frame in pieces, at most 64. NULL where `offload` is 0. */
    int (*writev)(void *self, const struct iovec *iov, int n);
    /* Writes of a batch are done: write what is queued, wake whoever waits for them. May be NULL.
     */
    void (*flush)(void *self);
    /* After flush(): how the n queued writes ended, in their order, 0 or negative errno. NULL where
     * none is queued. */
    void (*written)(void *self, int *errors, int n);
    /* Make fd() readable at the next frame; 1: some may be waiting already, read again. NULL where
     * the descriptor is readable whenever there is a frame. */
    int (*arm)(void *self);
    int (*fd)(void *self);
    /* A second one, that is readable as well when there may be a frame; -1, or NULL: none. Both
     * stay as they are while the device is attached. */
    int (*ahead_fd)(void *self);

    /*
     * For a device that uses frames in place (loan.h, tun_ring.h); else all are NULL. 0, or
     * negative errno.
     */
    int (*attach)(void *self, const struct ipu_device_frames *frames);
    /* The pump has ended: these frames are used no more, if they are not another's by now, which
     * may be attached as soon as this one's thread has ended. May be NULL. */
    void (*detach)(void *self, const struct ipu_slab *tx);
    /* The next frame, where it is one of those lent: its index, and its length as of read(). 0:
     * read() has it. */
    ssize_t (*give)(void *self, uint32_t *index);
    /* A frame that give() gave is free again. */
    void (*ended)(void *self, uint32_t index);
    /* Keep the packet of `ip_len` bytes at `ip`, in that receive frame; -ENOBUFS: to be written
     * instead. NULL, with back(), where all are written. */
    int (*take)(void *self, uint32_t index, const uint8_t *ip, size_t ip_len);
    /* A receive frame that was kept and is so no more, or IPU_INDEX_NONE. */
    uint32_t (*back)(void *self);
};

#define IPU_DEVICE_TCP 1u
#define IPU_DEVICE_UDP 2u

struct ipu_device {
    const struct ipu_device_ops *ops;
    void *self;
    uint32_t offload;    /* IPU_DEVICE_*: super-frames of these; does not change */
    uint32_t lent_bytes; /* of transmit frames that it fills itself, about; 0 without attach() */
};

#endif
