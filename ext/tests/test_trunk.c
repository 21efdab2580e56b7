/* SPDX-License-Identifier: BSD-2-Clause */
/* VLANs of a TAP: pairs of sockets play the TAP and each VLAN's pump. */
#include "device/trunk.h"

#include <fcntl.h>
#include <sys/socket.h>

#include "check.h"
#include "core/ip_header.h"
#include "core/mac_table.h"
#include "device/tap.h"
#include "device/vnet.h"

enum {
    IP = 28,
    ETHERNET = IPU_VNET_LEN + IPU_ETHERNET_LEN,
    PLAIN = ETHERNET + IP,
    TAGGED = PLAIN + IPU_VLAN_TAG_LEN,
    ROOM = 2 * TAGGED,
};

static const uint8_t guest[IPU_MAC_LEN] = {2, [5] = 7}, host[IPU_MAC_LEN] = {2, [5] = 9};

static struct {
    int kernel, ours, theirs;
    struct ipu_trunk vlans;
    struct ipu_tap trunk, vlan;
    uint8_t buffer[IPU_TAP_ROOM + ROOM];
} bed;

static uint8_t *const frame = bed.buffer + IPU_TAP_ROOM;

static void make(void)
{
    int ends[2];
    memset(&bed, 0, sizeof bed);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
    bed.kernel = ends[1];
    ipu_tap_init(&bed.trunk, ends[0], IPU_DEVICE_TCP);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
    bed.ours = ends[0];
    bed.theirs = ends[1];
    ipu_trunk_init(&bed.vlans);
    bed.trunk.trunk = &bed.vlans;
    ipu_tap_init(&bed.vlan, -1, 0);
    ipu_tap_join(&bed.vlan, &bed.trunk, bed.theirs, 10);
    ipu_trunk_set(&bed.vlans, 10, bed.ours);
}

static void end(void)
{
    close(bed.kernel);
    close(bed.trunk.fd);
    close(bed.ours);
    close(bed.theirs);
}

enum { PRIORITY = 0x6000 }; /* with a tag that says a priority, and no VLAN */

/* A frame of a guest with an unfinished checksum; `vlan` 0: without a tag. Returns its length. */
static size_t put(uint8_t *at, uint16_t vlan)
{
    uint8_t tag = vlan != 0 ? IPU_VLAN_TAG_LEN : 0, *ethernet = at + IPU_VNET_LEN;
    struct virtio_net_hdr vnet = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                  .hdr_len = (uint16_t)(IPU_ETHERNET_LEN + tag + IP),
                                  .csum_start =
                                      (uint16_t)(IPU_ETHERNET_LEN + tag + IPU_IPV4_HEADER),
                                  .csum_offset = 6};
    memset(at, 0, TAGGED);
    ipu_vnet_write(at, vnet);
    memcpy(ethernet, host, IPU_MAC_LEN);
    memcpy(ethernet + IPU_MAC_LEN, guest, IPU_MAC_LEN);
    ethernet += 2 * IPU_MAC_LEN;
    if (vlan != 0) {
        ipu_ip_put16(ethernet, 0x8100);
        ipu_ip_put16(ethernet + 2, (uint16_t)(PRIORITY | vlan));
        ethernet += IPU_VLAN_TAG_LEN;
    }
    ipu_ip_put16(ethernet, IPU_TYPE_IPV4);
    ethernet[2] = 0x45;
    return PLAIN + (size_t)tag;
}

static void arrive(uint16_t vlan)
{
    uint8_t sent[TAGGED];
    size_t len = put(sent, vlan);
    CHECK_EQ(send(bed.kernel, sent, len, 0), (ssize_t)len);
}

static ssize_t take(struct ipu_tap *tap)
{
    return tap->device.ops->read(tap, frame, ROOM);
}

static void a_frame_goes_to_the_pump_of_its_vlan_without_the_tag(void)
{
    make();
    arrive(10);
    arrive(0);
    CHECK_EQ(take(&bed.trunk), IPU_VNET_LEN + IP); /* the second one */
    CHECK_EQ(take(&bed.trunk), -EAGAIN);
    CHECK_EQ(take(&bed.vlan), IPU_VNET_LEN + IP);
    CHECK_EQ(memcmp(frame - IPU_ETHERNET_LEN, host, IPU_MAC_LEN), 0);
    CHECK_EQ(memcmp(frame - IPU_ETHERNET_LEN + IPU_MAC_LEN, guest, IPU_MAC_LEN), 0);
    CHECK_EQ(ipu_ip_get16(frame - 2), IPU_TYPE_IPV4);
    CHECK_EQ(ipu_vnet_read(frame).csum_start, IPU_IPV4_HEADER);
    CHECK_EQ(ipu_vnet_read(frame).hdr_len, IP);
    CHECK_EQ(frame[IPU_VNET_LEN], 0x45);
    CHECK_EQ(take(&bed.vlan), -EAGAIN);
    end();
}

static void frames_of_other_vlans_stay_with_the_trunk(void)
{
    uint8_t sent[TAGGED];
    make();
    arrive(11);
    CHECK_EQ(take(&bed.trunk), IPU_VNET_LEN + IP + IPU_VLAN_TAG_LEN);
    CHECK_EQ(ipu_ip_get16(frame - 2), 0x8100); /* the pump drops it */
    ipu_trunk_remove(&bed.vlans, 10);
    arrive(10);
    CHECK_EQ(take(&bed.trunk), IPU_VNET_LEN + IP + IPU_VLAN_TAG_LEN);
    ipu_trunk_set(&bed.vlans, 10, bed.ours);
    put(sent, 10);
    CHECK_EQ(send(bed.kernel, sent, ETHERNET + 3, 0), ETHERNET + 3); /* the tag is cut off */
    CHECK_EQ(take(&bed.trunk), IPU_VNET_LEN + 3);
    CHECK_EQ(take(&bed.vlan), -EAGAIN);
    bed.trunk.trunk = NULL;
    arrive(10);
    CHECK_EQ(take(&bed.trunk), IPU_VNET_LEN + IP + IPU_VLAN_TAG_LEN);
    end();
}

static void a_frame_with_a_priority_alone_is_one_without_a_tag(void)
{
    uint8_t sent[TAGGED], plain[IP];
    make();
    for (int trunk = 1; trunk >= 0; trunk--) {
        bed.trunk.trunk = trunk ? &bed.vlans : NULL;
        put(sent, PRIORITY);
        for (int i = 0; i < IP; i++)
            plain[i] = sent[ETHERNET + IPU_VLAN_TAG_LEN + i] = (uint8_t)(0x45 + i);
        CHECK_EQ(send(bed.kernel, sent, TAGGED, 0), TAGGED);
        CHECK_EQ(take(&bed.trunk), IPU_VNET_LEN + IP);
        CHECK_EQ(memcmp(frame - IPU_ETHERNET_LEN, host, IPU_MAC_LEN), 0);
        CHECK_EQ(memcmp(frame - IPU_ETHERNET_LEN + IPU_MAC_LEN, guest, IPU_MAC_LEN), 0);
        CHECK_EQ(ipu_ip_get16(frame - 2), IPU_TYPE_IPV4);
        CHECK_EQ(ipu_vnet_read(frame).csum_start, IPU_IPV4_HEADER);
        CHECK_EQ(ipu_vnet_read(frame).hdr_len, IP);
        CHECK_EQ(memcmp(frame + IPU_VNET_LEN, plain, IP), 0);
    }
    CHECK_EQ(send(bed.kernel, sent, ETHERNET + IPU_VLAN_TAG_LEN, 0), ETHERNET + IPU_VLAN_TAG_LEN);
    CHECK_EQ(take(&bed.trunk), IPU_VNET_LEN);                        /* nothing is behind the tag */
    CHECK_EQ(send(bed.kernel, sent, ETHERNET + 3, 0), ETHERNET + 3); /* the tag is cut off */
    CHECK_EQ(take(&bed.trunk), IPU_VNET_LEN + 3);
    CHECK_EQ(ipu_ip_get16(frame - 2), 0x8100); /* the pump drops it */
    put(sent, PRIORITY);
    ipu_ip_put16(sent + ETHERNET + 2, 0x8100); /* a second tag: that is no VLAN of ours */
    CHECK_EQ(send(bed.kernel, sent, TAGGED, 0), TAGGED);
    CHECK_EQ(take(&bed.trunk), IPU_VNET_LEN + IP);
    CHECK_EQ(ipu_ip_get16(frame - 2), 0x8100);
    end();
}

static void a_vlan_whose_pump_is_behind_loses_frames_and_delays_nobody(void)
{
    int lost = 0;
    make();
    for (int i = 0; i < 5000 && lost == 0; i++) {
        arrive(10);
        ssize_t n = take(&bed.trunk);
        CHECK(n == -EAGAIN || n == IPU_VLAN_FULL);
        lost += n == IPU_VLAN_FULL;
    }
    CHECK_EQ(lost, 1);
    arrive(0);
    CHECK_EQ(take(&bed.trunk), IPU_VNET_LEN + IP);
    end();
}

static void a_flood_of_a_vlan_leaves_the_pump_time_for_others(void)
{
    make();
    for (int i = 0; i < 70; i++)
        arrive(10);
    CHECK_EQ(take(&bed.trunk), -EAGAIN); /* though there are more */
    int passed = 0;
    while (take(&bed.vlan) > 0)
        passed++;
    CHECK_EQ(passed, 64);
    end();
}

static void frames_of_a_vlan_are_written_to_the_trunk_with_its_tag(void)
{
    uint8_t got[ROOM], wanted[TAGGED], none[IPU_VNET_LEN] = {0};
    make();
    put(wanted, 10);
    ipu_ip_put16(wanted + ETHERNET, 10); /* without a priority */
    arrive(0);
    CHECK_EQ(take(&bed.trunk), IPU_VNET_LEN + IP);
    const struct iovec pieces[] = {{frame, IPU_VNET_LEN + IP - 8},
                                   {frame + IPU_VNET_LEN + IP - 8, 8}};
    CHECK_EQ(bed.vlan.device.ops->write(&bed.vlan, frame, IPU_VNET_LEN + IP), 0);
    CHECK_EQ(recv(bed.kernel, got, sizeof got, 0), TAGGED);
    CHECK_EQ(memcmp(got, wanted, TAGGED), 0);
    CHECK_EQ(bed.vlan.device.ops->writev(&bed.vlan, pieces, 2), 0);
    CHECK_EQ(recv(bed.kernel, got, sizeof got, 0), TAGGED);
    CHECK_EQ(memcmp(got, wanted, TAGGED), 0);
    uint8_t arp[IPU_ETHERNET_LEN + 4] = {2, [12] = 8, 6, 'a', 'r', 'p', '!'};
    CHECK_EQ(bed.vlan.device.ops->write_frame(&bed.vlan, arp, sizeof arp), 0);
    CHECK_EQ(recv(bed.kernel, got, sizeof got, 0),
             (ssize_t)(IPU_VNET_LEN + sizeof arp + IPU_VLAN_TAG_LEN));
    CHECK_EQ(memcmp(got, none, sizeof none), 0);
    CHECK_EQ(memcmp(got + IPU_VNET_LEN, arp, 12), 0);
    CHECK_EQ(ipu_ip_get16(got + IPU_VNET_LEN + 12), 0x8100);
    CHECK_EQ(ipu_ip_get16(got + IPU_VNET_LEN + 14), 10);
    CHECK_EQ(memcmp(got + IPU_VNET_LEN + 16, arp + 12, sizeof arp - 12), 0);
    CHECK_EQ(bed.vlan.device.ops->write_frame(&bed.vlan, arp, 13), -EINVAL);
    end();
}

int main(void)
{
    RUN(a_frame_goes_to_the_pump_of_its_vlan_without_the_tag);
    RUN(frames_of_other_vlans_stay_with_the_trunk);
    RUN(a_frame_with_a_priority_alone_is_one_without_a_tag);
    RUN(a_vlan_whose_pump_is_behind_loses_frames_and_delays_nobody);
    RUN(a_flood_of_a_vlan_leaves_the_pump_time_for_others);
    RUN(frames_of_a_vlan_are_written_to_the_trunk_with_its_tag);
    return 0;
}
