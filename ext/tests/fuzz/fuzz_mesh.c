/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Drives the mesh over a libibverbs that the fuzzer plays: peers that come, go and break, their
 * messages with any bytes and without regard to windows, and ours to peers and groups. Each cookie
 * and each posted receive has to come back once, a message only from a peer that has a name, and
 * the end of a peer has to be told once.
 */
#include <stdbool.h>

#include "core/frame.h"
#include "input.h"
#include "mesh/mesh.h"
#include "verbs/tests/fake.h"
#include "verbs/tests/fake_rc.h"

enum {
    MTU = 2048,
    FRAME = 40 + MTU,
    PEERS = FAKE_RCS,
    RECEIVES = PEERS * (IPU_MESH_WINDOW + IPU_MESH_SLACK) + 64,
    ACTIONS_MAX = 200,
    SENDS_MAX = FAKE_RC_SENDS - 64, /* under way, as the fake has room */
    COOKIES = 4096,
    WORK_MAX = FAKE_QUEUE - 200, /* that the fake takes in all */
};

static struct ipu_mesh *mesh;
static struct ipu_fabric *fabric;
static uint8_t frames[RECEIVES * FRAME], message[FRAME];
static const struct in6_addr ours = {{{0xfe, 0x80, [15] = 1}}};
static const struct in6_addr broadcast = {
    {{0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, [12] = 0xff, 0xff, 0xff, 0xff}}};

static struct {
    uint64_t id; /* 0: none */
    bool is_named, is_removed, is_gone, is_broken;
} peers[PEERS];
static uint64_t last_id;
static bool is_posted[RECEIVES], is_out[COOKIES];
static uint32_t sent, came_back;

static struct in6_addr peer_gid(uint32_t i)
{
    struct in6_addr gid = ours;
    gid.s6_addr[15] = (uint8_t)(10 + i);
    return gid;
}

static struct in6_addr group(uint8_t which)
{
    struct in6_addr mgid = broadcast;
    if (which % 8 != 0) {
        memset(mgid.s6_addr + 12, 0, 4);
        mgid.s6_addr[15] = which % 8;
    }
    return mgid;
}

static void post_all(void)
{
    for (uint32_t i = 0; i < RECEIVES; i++) {
        struct ipu_recv recv = {.addr = frames + (size_t)i * FRAME, .len = FRAME, .cookie = i};
        if (!is_posted[i] && fabric->ops->post(fabric->self, &recv, 1) == 1)
            is_posted[i] = true;
    }
}

static void receive(void)
{
    struct ipu_received done[16];
    int n = fabric->ops->received(fabric->self, done, 16);
    for (int i = 0; i < n; i++) {
        MUST(done[i].cookie < RECEIVES && is_posted[done[i].cookie]);
        is_posted[done[i].cookie] = false;
        MUST(done[i].byte_len >= IPU_GRH_LEN + IPU_ENCAP_LEN && done[i].byte_len <= FRAME);
        uint32_t peer = done[i].src_qpn - 0x100;
        MUST(peer < PEERS && peers[peer].id != 0 && peers[peer].is_named);
        (void)input_touch(frames + done[i].cookie * FRAME, done[i].byte_len);
    }
    if (n > 0)
        post_all();
}

static void reap(void)
{
    uint64_t cookies[16];
    int n;
    while ((n = fabric->ops->sent(fabric->self, cookies, 16)) > 0)
        for (int i = 0; i < n; i++) {
            MUST(cookies[i] < COOKIES && is_out[cookies[i]]);
            is_out[cookies[i]] = false;
            came_back++;
        }
}

static void read_events(void)
{
    struct ipu_mesh_event event;
    while (ipu_mesh_next_event(mesh, &event)) {
        uint32_t i = 0;
        while (i < PEERS && peers[i].id != event.id)
            i++;
        MUST(i < PEERS);
        MUST(event.len <= IPU_MESH_CONTROL_MAX);
        (void)input_touch(event.message, event.len);
        if (event.type == IPU_MESH_GONE) {
            MUST(peers[i].is_removed && !peers[i].is_gone);
            peers[i].is_gone = true;
        } else if (event.type == IPU_MESH_BROKEN) {
            MUST(!peers[i].is_broken);
            peers[i].is_broken = true;
        }
    }
}

static void pump(void)
{
    receive();
    reap();
    read_events();
}

static void begin(void)
{
    memset(peers, 0, sizeof peers);
    memset(is_posted, 0, sizeof is_posted);
    memset(is_out, 0, sizeof is_out);
    last_id = sent = came_back = 0;
    fake_rc_open(fake_open(false), false);
    struct ipu_mesh_config config = {.pattern = &fake_rc.qp[0],
                                     .gid = ours,
                                     .qpn = 0x42,
                                     .mtu = MTU,
                                     .peers_max = PEERS,
                                     .broadcast = broadcast};
    MUST(ipu_mesh_create(&config, &mesh) == 0);
    fabric = ipu_mesh_fabric(mesh);
    MUST(fabric->ops->memory(fabric->self, frames, sizeof frames) == 0);
    MUST(fabric->ops->memory(fabric->self, message, sizeof message) == 0);
    post_all();
}

/* The queue pair fails: a message came and no receive was posted, or a send got no answer. */
static void fail(uint32_t i)
{
    fake_rc_fail(&fake_rc.qp[i], IBV_WC_RETRY_EXC_ERR);
}

static void forget(uint32_t i)
{
    MUST(ipu_mesh_forget(mesh, peers[i].id) == 0);
    fake_rc_fail(&fake_rc.qp[i], IBV_WC_WR_FLUSH_ERR); /* late, and to be ignored */
    pump();
    memset(&peers[i], 0, sizeof peers[i]);
}

/* [which][how]: add a peer, name it, remove it, forget it */
static void change_peer(struct input *in)
{
    uint8_t which = input_u8(in), how = input_u8(in);
    uint32_t i = which % PEERS;
    struct in6_addr gid = peer_gid(i);
    if (peers[i].id == 0) {
        if (fake_rc.recv_count + IPU_MESH_WINDOW + IPU_MESH_SLACK > WORK_MAX)
            return;
        peers[i].id = ++last_id;
        MUST(ipu_mesh_add(mesh, peers[i].id, &fake_rc.qp[i]) == 0);
    } else if (peers[i].is_gone) {
        forget(i);
    } else if (how & 128) {
        peers[i].is_removed = true;
        MUST(ipu_mesh_remove(mesh, peers[i].id) == 0);
    } else if (!peers[i].is_named && !peers[i].is_removed) {
        peers[i].is_named = true;
        MUST(ipu_mesh_name(mesh, peers[i].id, &gid, 0x100 + i, how & 63, how & 64) == 0);
    }
    pump();
}

/* [which][length 2][message], from the encapsulation header on */
static void hear(struct input *in)
{
    uint32_t i = input_u8(in) % PEERS;
    uint8_t bytes[MTU];
    size_t len = input_bytes(in, bytes, sizeof bytes);
    if (peers[i].id == 0 || fake_rc.recv_count >= WORK_MAX)
        return;
    if (!fake_rc_deliver(&fake_rc.qp[i], bytes, (uint32_t)len))
        fail(i); /* the peer does not heed its window */
}

/* [to][many]: to a peer or, with bit 7, to a group */
static void send_some(struct input *in)
{
    uint8_t to = input_u8(in), many = input_u8(in) % 40;
    uint32_t i = to % PEERS;
    struct ipu_dest dest = {.gid = peer_gid(i), .qpn = 0x100 + i};
    if (to & 128)
        dest = (struct ipu_dest){.gid = group(to), .qpn = IPU_MULTICAST_QPN};
    void *ah = fabric->ops->ah_create(fabric->self, &dest);
    MUST(ah != NULL);
    for (int k = 0; k < many && sent < COOKIES && fake_rc.send_count < WORK_MAX; k++) {
        struct ipu_send each = {.addr = message, .len = 500, .ah = ah, .cookie = sent};
        if (fake_rc.send_count - fake_rc.send_next > SENDS_MAX ||
            fabric->ops->send(fabric->self, &each, 1) != 1)
            break;
        is_out[sent++] = true;
    }
    fabric->ops->ah_destroy(fabric->self, ah);
}

/* [which][length 2][message]: a control message of ours, or the groups of a peer */
static void control(struct input *in)
{
    uint8_t which = input_u8(in), bytes[IPU_MESH_CONTROL_MAX];
    struct in6_addr mgids[64];
    uint32_t i = which % PEERS;
    size_t len = input_bytes(in, bytes, sizeof bytes);
    if (peers[i].id == 0 || fake_rc.send_count >= WORK_MAX)
        return;
    for (size_t k = 0; k < len && k < 64; k++)
        mgids[k] = group(bytes[k]);
    if (which & 128)
        MUST(ipu_mesh_groups(mesh, peers[i].id, mgids, (int)(len < 64 ? len : 64)) == 0);
    else if (which & 64)
        MUST(ipu_mesh_group(mesh, peers[i].id, &mgids[0], len & 1) == 0 || len == 0);
    else
        MUST(ipu_mesh_send_control(mesh, peers[i].id, bytes, len) == 0);
    pump();
}

static void complete(struct input *in)
{
    int n = input_u8(in), under_way = fake_rc.send_count - fake_rc.send_next;
    fake_rc_complete(n < under_way ? n : under_way);
}

static void end(void)
{
    for (uint32_t i = 0; i < PEERS; i++) {
        if (peers[i].id == 0)
            continue;
        peers[i].is_removed = true;
        MUST(ipu_mesh_remove(mesh, peers[i].id) == 0);
        pump();
        MUST(peers[i].is_gone);
        forget(i);
    }
    pump();
    MUST(came_back == sent);
    ipu_mesh_destroy(mesh);
    fake_rc_close();
    fake_close();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input in = {data, bytes};
    begin();
    for (int i = 0; i < ACTIONS_MAX && in.left > 0; i++) {
        uint32_t peer;
        switch (input_u8(&in) & 7) {
        case 0:
            change_peer(&in);
            break;
        case 1:
        case 2:
            hear(&in);
            break;
        case 3:
            send_some(&in);
            break;
        case 4:
            control(&in);
            break;
        case 5:
            complete(&in);
            break;
        case 6:
            peer = input_u8(&in) % PEERS;
            if (peers[peer].id != 0)
                fail(peer);
            break;
        default:
            pump();
        }
    }
    end();
    return 0;
}
