/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Drives a TAP with VLANs: frames of guests with any bytes, VLANs that come and go, and what their
 * pumps write back. Pairs of sockets play the TAP and the VLANs. A buffer is as long as the frame
 * that it may hold, so a write past its end is an error. What a VLAN's pump read and writes again
 * has to be the guest's frame.
 */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/frame.h"
#include "core/ip_header.h"
#include "core/mac_table.h"
#include "device/tap.h"
#include "device/trunk.h"
#include "device/vnet.h"
#include "input.h"

enum { VLANS = 3, FRAME_MAX = 4096, ACTIONS_MAX = 40, TAG_AT = IPU_VNET_LEN + 2 * IPU_MAC_LEN };
enum { ETHERNET = IPU_VNET_LEN + IPU_ETHERNET_LEN, VLAN_TYPE = 0x8100 };

static struct {
    int kernel;
    struct ipu_trunk trunk;
    struct ipu_tap tap;
    struct {
        int to, from;
        uint16_t number;
        struct ipu_tap tap;
    } vlans[VLANS];
} bed;

static void pair(int ends[2])
{
    MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends) == 0);
}

static void begin(void)
{
    int ends[2], room = 4 * FRAME_MAX; /* a few frames */
    pair(ends);
    bed.kernel = ends[1];
    ipu_tap_init(&bed.tap, ends[0], 0);
    ipu_trunk_init(&bed.trunk);
    bed.tap.trunk = &bed.trunk;
    for (uint16_t i = 0; i < VLANS; i++) {
        pair(ends);
        bed.vlans[i].to = ends[0];
        MUST(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room) == 0);
        bed.vlans[i].from = ends[1];
        bed.vlans[i].number = (uint16_t)(i + 1);
        ipu_tap_init(&bed.vlans[i].tap, -1, 0);
        ipu_tap_join(&bed.vlans[i].tap, &bed.tap, ends[1], (uint16_t)(i + 1));
    }
}

static void end(void)
{
    close(bed.kernel);
    close(bed.tap.fd);
    for (int i = 0; i < VLANS; i++) {
        close(bed.vlans[i].to);
        close(bed.vlans[i].from);
    }
}

/* A frame that the pump read: [Ethernet 14][vnet 16][payload] in `at`; returns the length from the
 * vnet header on. The buffer has `cap` bytes behind its room for the Ethernet header. */
static ssize_t read_by(struct ipu_tap *tap, uint8_t *buffer, size_t cap)
{
    ssize_t n = tap->device.ops->read(tap, buffer + IPU_TAP_ROOM, cap);
    MUST(n <= (ssize_t)cap);
    MUST(n >= 0 || n == -EAGAIN || n == IPU_VLAN_FULL);
    if (n > 0)
        (void)input_touch(buffer + IPU_TAP_ROOM - IPU_ETHERNET_LEN, (size_t)n + IPU_ETHERNET_LEN);
    return n;
}

/* Writes what a VLAN's pump read, and compares it with the frame `sent` of a guest. */
static void write_back(int which, const uint8_t *buffer, size_t n, const uint8_t *sent, size_t len)
{
    uint8_t again[FRAME_MAX + IPU_TAP_ROOM], bare[FRAME_MAX];
    const uint8_t *frame = buffer + IPU_TAP_ROOM;
    struct ipu_tap *tap = &bed.vlans[which].tap;
    MUST(tap->device.ops->write(tap, frame, n) == 0);
    ssize_t got = recv(bed.kernel, again, sizeof again, 0);
    MUST(got == (ssize_t)len);
    MUST(memcmp(again + IPU_VNET_LEN, sent + IPU_VNET_LEN, 2 * IPU_MAC_LEN) == 0);
    MUST(ipu_ip_get16(again + TAG_AT) == VLAN_TYPE);
    MUST(ipu_ip_get16(again + TAG_AT + 2) == bed.vlans[which].number);
    MUST(memcmp(again + TAG_AT + 4, sent + TAG_AT + 4, len - TAG_AT - 4) == 0);
    /* The engine's frames have no vnet header: [Ethernet 14][payload]. */
    memcpy(bare, frame - IPU_ETHERNET_LEN, IPU_ETHERNET_LEN);
    memcpy(bare + IPU_ETHERNET_LEN, frame + IPU_VNET_LEN, n - IPU_VNET_LEN);
    MUST(tap->device.ops->write_frame(tap, bare, n - IPU_VNET_LEN + IPU_ETHERNET_LEN) == 0);
    MUST(recv(bed.kernel, again, sizeof again, 0) == (ssize_t)len);
}

/* [flags][length 2][frame of the TAP]: flag 1: its bytes at the place of a tag are one */
static void guest_frame(struct input *in)
{
    uint8_t flags = input_u8(in), sent[FRAME_MAX];
    size_t len = input_bytes(in, sent, sizeof sent);
    if (flags & 1 && len >= TAG_AT + 4) {
        ipu_ip_put16(sent + TAG_AT, VLAN_TYPE);
        ipu_ip_put16(sent + TAG_AT + 2, flags >> 1 & 7);
    }
    if (len == 0 || send(bed.kernel, sent, len, 0) < 0)
        return;
    size_t cap = len > IPU_VNET_LEN + IPU_ETHERNET_LEN ? len - IPU_ETHERNET_LEN : IPU_VNET_LEN;
    uint8_t *buffer = malloc(IPU_TAP_ROOM + cap);
    MUST(buffer != NULL);
    ssize_t n = read_by(&bed.tap, buffer, cap);
    MUST(n >= 0 || flags & 128 || n != IPU_VLAN_FULL);
    for (int i = 0; i < VLANS; i++) {
        n = read_by(&bed.vlans[i].tap, buffer, cap);
        /* A tag of its own in the VLAN is a guest's business, but a priority tag goes. */
        bool is_plain = n > 0 && ipu_ip_get16(buffer + IPU_TAP_ROOM - 2) != VLAN_TYPE;
        if (is_plain && (size_t)n + IPU_ETHERNET_LEN + IPU_VLAN_TAG_LEN == len)
            write_back(i, buffer, (size_t)n, sent, len);
    }
    free(buffer);
}

/* [which]: a VLAN comes, goes, or gets another number; 128: its pump is behind */
static void change_vlan(struct input *in)
{
    uint8_t which = input_u8(in);
    int i = which % VLANS;
    if (which & 64)
        ipu_trunk_remove(&bed.trunk, bed.vlans[i].number);
    else
        ipu_trunk_set(&bed.trunk, bed.vlans[i].number, bed.vlans[i].to);
}

/* A VLAN's pump is behind: frames are lost, and the read says so. */
static void fill_vlan(struct input *in)
{
    static const uint8_t frame[ETHERNET + 6] = {[TAG_AT] = 0x81, 0, 0, 1, 8, 0};
    uint8_t buffer[IPU_TAP_ROOM + sizeof frame];
    int lost = 0;
    (void)in;
    ipu_trunk_set(&bed.trunk, 1, bed.vlans[0].to);
    for (int i = 0; i < 2000 && lost == 0; i++) {
        if (send(bed.kernel, frame, sizeof frame, 0) < 0)
            break;
        ssize_t n = read_by(&bed.tap, buffer, sizeof frame);
        MUST(n == -EAGAIN || n == IPU_VLAN_FULL);
        lost = n == IPU_VLAN_FULL;
    }
    MUST(lost == 1);
    while (read_by(&bed.vlans[0].tap, buffer, sizeof frame) > 0)
        continue;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input in = {data, bytes};
    int fills = 0;
    begin();
    for (int i = 0; i < ACTIONS_MAX && in.left > 0; i++) {
        uint8_t what = input_u8(&in) & 15;
        if (what == 15 && fills++ == 0)
            fill_vlan(&in);
        else if (what % 3 == 0)
            change_vlan(&in);
        else
            guest_frame(&in);
    }
    end();
    return 0;
}
