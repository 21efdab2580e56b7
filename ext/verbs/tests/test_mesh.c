/* SPDX-License-Identifier: BSD-2-Clause */
/* A mesh of RC connections: which peer gets a message, windows, copies to groups, and the cookies
 * and receives that come back at the end. */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "fake_rc.h"
#include "fabric/group_list.h"
#include "mesh/mesh.h"
#include "mesh/mesh_state.h"
#include "tests/refuse.h"

enum { MTU = 2048, FRAME = 40 + MTU, PEERS = 3, RECEIVES = IPU_MESH_WINDOW + IPU_MESH_SLACK };

static struct ipu_mesh *mesh;
static struct ipu_fabric *fabric;
static uint8_t frames[(PEERS * RECEIVES + 64) * FRAME];
static uint8_t message[4000];
static const struct in6_addr ours = {{{0xfe, 0x80, [15] = 1}}};
static const struct in6_addr broadcast = {
    {{0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, [12] = 0xff, 0xff, 0xff, 0xff}}};
static const struct in6_addr group = {{{0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, [15] = 9}}};

/* ---- the scene */

static struct in6_addr peer_gid(int i)
{
    struct in6_addr gid = ours;
    gid.s6_addr[15] = (uint8_t)(10 + i);
    return gid;
}

static void pump(void)
{
    struct ipu_received done[8];
    uint64_t cookies[8];
    CHECK_EQ(fabric->ops->sent(fabric->self, cookies, 8), 0);
    CHECK_EQ(fabric->ops->received(fabric->self, done, 8), 0);
}

static bool next_event(struct ipu_mesh_event *event)
{
    return ipu_mesh_next_event(mesh, event);
}

static void expect(uint64_t id, enum ipu_mesh_event_type type)
{
    struct ipu_mesh_event event;
    CHECK(next_event(&event));
    CHECK_EQ(event.id, id);
    CHECK_EQ(event.type, type);
}

static void expect_silence(void)
{
    struct ipu_mesh_event event;
    CHECK(!next_event(&event));
}

static void post_all(void)
{
    struct ipu_recv recvs[PEERS * RECEIVES + 64];
    for (int i = 0; i < PEERS * RECEIVES + 64; i++)
        recvs[i] = (struct ipu_recv){
            .addr = frames + (size_t)i * FRAME, .len = FRAME, .cookie = (uint64_t)i};
    CHECK_EQ(fabric->ops->post(fabric->self, recvs, PEERS * RECEIVES + 64), PEERS * RECEIVES + 64);
}

static void begin(void)
{
    struct ipu_fabric *ud = fake_open(false); /* its context and protection domain serve us */
    fake_rc_open(ud, false);
    struct ipu_mesh_config config = {.pattern = &fake_rc.qp[0],
                                     .gid = ours,
                                     .qpn = 0x42,
                                     .mtu = MTU,
                                     .peers_max = PEERS,
                                     .broadcast = broadcast};
    CHECK_EQ(ipu_mesh_create(&config, &mesh), 0);
    fabric = ipu_mesh_fabric(mesh);
    CHECK_EQ(fabric->max_recv, PEERS * RECEIVES + 64);
    CHECK_EQ(fabric->ops->memory(fabric->self, frames, sizeof frames), 0);
    CHECK_EQ(fabric->ops->memory(fabric->self, message, sizeof message), 0);
    post_all();
}

static void end(void)
{
    ipu_mesh_destroy(mesh);
    fake_rc_close();
    fake_close();
}

static void add(int i)
{
    CHECK_EQ(ipu_mesh_add(mesh, (uint64_t)i + 1, &fake_rc.qp[i]), 0);
    pump();
    expect((uint64_t)i + 1, IPU_MESH_READY);
}

static void name(int i, bool may_send)
{
    const struct in6_addr gid = peer_gid(i);
    CHECK_EQ(
        ipu_mesh_name(mesh, (uint64_t)i + 1, &gid, 0x100u + (uint32_t)i, IPU_MESH_WINDOW, may_send),
        0);
    pump();
}

static void *handle(struct in6_addr gid, uint32_t qpn)
{
    struct ipu_dest dest = {.gid = gid, .qpn = qpn};
    return fabric->ops->ah_create(fabric->self, &dest);
}

static void *handle_of(int i)
{
    return handle(peer_gid(i), 0x100u + (uint32_t)i);
}

static void send_to(void *ah, uint64_t first, int n)
{
    struct ipu_send sends[256];
    for (int i = 0; i < n; i++)
        sends[i] =
            (struct ipu_send){.addr = message, .len = 500, .ah = ah, .cookie = first + (uint64_t)i};
    CHECK_EQ(fabric->ops->send(fabric->self, sends, n), n);
}

/* Returns how many cookies have come back now; their order does not matter. */
static int back(uint64_t first, int n)
{
    uint64_t cookies[512];
    int got = 0, matching = 0, more;
    while ((more = fabric->ops->sent(fabric->self, cookies + got, 7)) > 0)
        got += more;
    for (int i = 0; i < got; i++)
        matching += cookies[i] - first < (uint64_t)n;
    CHECK_EQ(matching, got);
    return got;
}

static uint64_t count(const char *name)
{
    uint64_t values[IPU_MESH_COUNTERS_N];
    ipu_mesh_counters(mesh, values);
    for (int i = 0; i < IPU_MESH_COUNTERS_N; i++)
        if (strcmp(ipu_mesh_counter_names[i], name) == 0)
            return values[i];
    CHECK(false);
    return 0;
}

/* Delivers a message of the peer into its oldest posted receive. */
static void arrive(int i, const void *bytes, uint32_t len)
{
    CHECK(fake_rc_deliver(&fake_rc.qp[i], bytes, len));
}

static void arrive_window(int i, uint32_t limit)
{
    uint8_t bytes[12] = {0x88, 0xb5, 0, 0, IPU_MESH_CREDIT};
    for (int k = 0; k < 4; k++)
        bytes[8 + k] = (uint8_t)(limit >> (24 - 8 * k));
    arrive(i, bytes, sizeof bytes);
    pump();
}

/* ---- peers */

static void receives_are_posted_before_anything_else(void)
{
    begin();
    add(0);
    CHECK_EQ(fake_rc.recv_count, RECEIVES);
    CHECK_EQ(fake_rc.send_count, 0);
    end();
}

static void a_message_goes_to_the_one_it_is_for(void)
{
    begin();
    add(0), add(1);
    name(0, true), name(1, true);
    void *to = handle_of(1), *unknown = handle(peer_gid(7), 0x107), *elder = handle(peer_gid(1), 1);
    send_to(to, 100, 20);
    CHECK_EQ(fake_rc.doorbells, 1);
    CHECK_EQ(fake_rc.send_count, 20);
    CHECK(fake_rc.sends[0].qp == &fake_rc.qp[1]);
    fake_rc_complete(20);
    CHECK_EQ(back(100, 20), 20);
    send_to(unknown, 200, 2);
    send_to(elder, 202, 1); /* the peer's address from before its restart */
    CHECK_EQ(back(200, 3), 3);
    CHECK_EQ(count("tx_no_peer"), 3);
    fabric->ops->ah_destroy(fabric->self, to);
    fabric->ops->ah_destroy(fabric->self, unknown);
    fabric->ops->ah_destroy(fabric->self, elder);
    end();
}

static void who_was_asked_speaks_second(void)
{
    begin();
    add(0);
    name(0, false);
    void *to = handle_of(0);
    CHECK_EQ(ipu_mesh_send_control(mesh, 1, "\1\0\0\0", 4), 0);
    pump();
    send_to(to, 0, 1);
    CHECK_EQ(back(0, 1), 1);
    CHECK_EQ(fake_rc.send_count, 0);
    arrive(0, "\x88\xb5\0\0\1\0\0\0", 8);
    pump();
    expect(1, IPU_MESH_CONTROL);
    CHECK_EQ(fake_rc.send_count, 1); /* the message that waited */
    send_to(to, 1, 1);
    CHECK_EQ(fake_rc.send_count, 2);
    fake_rc_complete(2);
    CHECK_EQ(back(1, 1), 1);
    fabric->ops->ah_destroy(fabric->self, to);
    end();
}

/* ---- windows */

static void nothing_goes_beyond_the_window(void)
{
    begin();
    add(0);
    name(0, true);
    void *to = handle_of(0);
    send_to(to, 0, 40);
    CHECK_EQ(fake_rc.send_count, IPU_MESH_WINDOW);
    CHECK_EQ(count("tx_no_window"), 40 - IPU_MESH_WINDOW);
    CHECK_EQ(back(0, 40), 40 - IPU_MESH_WINDOW);
    fake_rc_complete(IPU_MESH_WINDOW);
    CHECK_EQ(back(0, 40), IPU_MESH_WINDOW);
    send_to(to, 50, 1); /* the end of a send does not mean that the peer received it */
    CHECK_EQ(back(50, 1), 1);
    arrive_window(0, IPU_MESH_WINDOW + 8);
    send_to(to, 60, 10);
    CHECK_EQ(fake_rc.send_count, IPU_MESH_WINDOW + 8);
    CHECK_EQ(back(60, 10), 2);
    fabric->ops->ah_destroy(fabric->self, to);
    end();
}

static void a_window_that_makes_no_sense_is_not_believed(void)
{
    begin();
    add(0);
    name(0, true);
    arrive_window(0, IPU_MESH_WINDOW);     /* no more than there was */
    arrive_window(0, IPU_MESH_WINDOW - 1); /* less */
    arrive_window(0, 2 * IPU_MESH_WINDOW); /* more than it can have posted */
    arrive_window(0, 0x80000000u);
    arrive(0, "\x88\xb5\0\0\5\0\0\0", 8); /* cut off */
    pump();
    CHECK_EQ(count("rx_bad_control"), 5);
    CHECK_EQ(count("windows_heard"), 0);
    expect_silence();
    end();
}

static void a_peer_gets_a_larger_window_when_it_may_send_more(void)
{
    begin();
    add(0);
    name(0, true);
    struct ipu_received done[64];
    uint8_t frame[100] = {0x08, 0x00, 0, 0, 0x45};
    for (int i = 0; i < IPU_MESH_WINDOW / 4; i++) {
        CHECK_EQ(fake_rc.send_count, 0);
        arrive(0, frame, sizeof frame);
        CHECK_EQ(fabric->ops->received(fabric->self, done, 64), 1);
        CHECK_EQ(done[0].byte_len, 140);
        CHECK_EQ(done[0].src_qpn, 0x100);
        CHECK_EQ(done[0].flags, IPU_RECEIVED_GRH);
    }
    CHECK_EQ(fake_rc.send_count, 1);
    const uint8_t *window = (const uint8_t *)(uintptr_t)fake_rc.sends[0].sge[0].addr;
    CHECK_EQ(window[4], IPU_MESH_CREDIT);
    CHECK_EQ(window[11], IPU_MESH_WINDOW + IPU_MESH_WINDOW / 4);
    fake_rc_complete(1);
    CHECK_EQ(back(0, 0), 0);
    end();
}

/* No control buffer is free when the window message is due. */
static void a_window_that_cannot_be_sent_now_is_sent_later(void)
{
    begin();
    add(0), add(1), add(2);
    name(0, true), name(1, true), name(2, true);
    for (uint64_t id = 2; id <= 3; id++)
        for (int i = 0; i < IPU_MESH_WINDOW; i++)
            CHECK_EQ(ipu_mesh_send_control(mesh, id, "\1\0\0\0", 4), 0);
    pump();
    CHECK_EQ(fake_rc.send_count, 2 * IPU_MESH_WINDOW);
    struct ipu_received done[64];
    uint8_t frame[100] = {0x08, 0x00, 0, 0, 0x45};
    for (int i = 0; i < IPU_MESH_WINDOW; i++)
        arrive(0, frame, sizeof frame);
    CHECK_EQ(fabric->ops->received(fabric->self, done, 64), IPU_MESH_WINDOW);
    CHECK_EQ(count("windows_told"), 0);
    fake_rc_complete(2 * IPU_MESH_WINDOW);
    CHECK_EQ(back(0, 0), 0);
    arrive(1, frame, sizeof frame); /* the peer has nothing more to send */
    CHECK_EQ(fabric->ops->received(fabric->self, done, 64), 1);
    CHECK_EQ(count("windows_told"), 1);
    CHECK(fake_rc.sends[2 * IPU_MESH_WINDOW].qp == &fake_rc.qp[0]);
    fake_rc_complete(1);
    CHECK_EQ(back(0, 0), 0);
    end();
}

/* ---- groups */

static int copies_to(const struct in6_addr *mgid)
{
    void *to = handle(*mgid, IPU_MULTICAST_QPN);
    int before = fake_rc.send_count;
    send_to(to, 7, 1);
    int copies = fake_rc.send_count - before;
    fake_rc_complete(copies);
    CHECK_EQ(back(7, 1), 1); /* once, after the last copy */
    fabric->ops->ah_destroy(fabric->self, to);
    return copies;
}

static void a_group_gets_a_copy_for_each_that_is_in_it(void)
{
    begin();
    add(0), add(1), add(2);
    name(0, true), name(1, true);
    /* A peer whose groups we do not know gets every message; a peer without a name gets none. */
    CHECK_EQ(copies_to(&group), 2);
    CHECK_EQ(ipu_mesh_groups(mesh, 1, &group, 1), 0);
    CHECK_EQ(ipu_mesh_groups(mesh, 2, NULL, 0), 0);
    pump();
    CHECK_EQ(copies_to(&group), 1);
    CHECK_EQ(copies_to(&broadcast), 2);
    CHECK_EQ(ipu_mesh_group(mesh, 2, &group, true), 0);
    CHECK_EQ(ipu_mesh_group(mesh, 2, &group, true), 0);
    pump();
    CHECK_EQ(copies_to(&group), 2);
    CHECK_EQ(ipu_mesh_group(mesh, 1, &group, false), 0);
    CHECK_EQ(ipu_mesh_group(mesh, 2, &group, false), 0);
    pump();
    uint64_t none = count("tx_no_peer");
    CHECK_EQ(copies_to(&group), 0);
    CHECK_EQ(count("tx_no_peer"), none + 1);
    end();
}

static void a_peer_in_too_many_groups_gets_everything(void)
{
    begin();
    add(0);
    name(0, true);
    CHECK_EQ(ipu_mesh_groups(mesh, 1, NULL, 0), 0);
    for (int i = 0; i <= IPU_GROUP_LIST_MAX; i++) {
        struct in6_addr mgid = group;
        mgid.s6_addr[10] = (uint8_t)(i >> 8);
        mgid.s6_addr[11] = (uint8_t)i;
        CHECK_EQ(ipu_mesh_group(mesh, 1, &mgid, true), 0);
    }
    pump();
    struct in6_addr other = group;
    other.s6_addr[9] = 1;
    CHECK_EQ(copies_to(&other), 1);
    end();
}

static void the_frame_itself_names_its_group(void)
{
    begin();
    add(0);
    name(0, true);
    struct ipu_received done[1];
    uint8_t arp[60] = {0x08, 0x06, 0, 0, 0, 32, 8, 0, 20, 4, 0, 1};
    uint8_t reply[60] = {0x08, 0x06, 0, 0, 0,         32,        8,       0,
                         20,   4,    0, 2, [32] = 10, [56] = 10, [59] = 1};
    uint8_t ipv4[60] = {0x08, 0x00, 0, 0, 0x45, [20] = 239, 1, 2, 3};
    uint8_t unicast[60] = {0x08, 0x00, 0, 0, 0x45, [20] = 10, 0, 0, 1};
    uint8_t ipv6[60] = {0x86, 0xdd, 0, 0, 0x60, [28] = 0xff, 2, [43] = 5};
    const struct {
        const uint8_t *frame;
        const char *gid;
    } cases[] = {{arp, "ff12401bffff000000000000ffffffff"},
                 {reply, "fe800000000000000000000000000001"},
                 {ipv4, "ff12401bffff0000000000000f010203"},
                 {unicast, "fe800000000000000000000000000001"},
                 {ipv6, "ff12601bffff00000000000000000005"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        arrive(0, cases[i].frame, 60);
        CHECK_EQ(fabric->ops->received(fabric->self, done, 1), 1);
        const uint8_t *grh = frames + done[0].cookie * FRAME;
        char text[33];
        for (int k = 0; k < 16; k++)
            snprintf(text + 2 * k, 3, "%02x", grh[24 + k]);
        CHECK(strcmp(text, cases[i].gid) == 0);
        CHECK(memcmp(grh + 8, &(struct in6_addr[]){peer_gid(0)}, 16) == 0);
    }
    end();
}

/* ---- ends */

static void a_connection_that_fails_is_reported_once_and_gives_back_all(void)
{
    begin();
    add(0), add(1);
    name(0, true), name(1, true);
    void *to = handle_of(0), *all = handle(broadcast, IPU_MULTICAST_QPN);
    send_to(to, 0, 10);
    send_to(all, 10, 1);
    fake_rc_fail(&fake_rc.qp[0], IBV_WC_RETRY_EXC_ERR);
    CHECK_EQ(back(0, 10), 10);
    expect(1, IPU_MESH_BROKEN);
    expect_silence();
    send_to(to, 20, 1);
    CHECK_EQ(back(20, 1), 1); /* lost */
    fake_rc_complete(1);      /* the other's copy */
    CHECK_EQ(back(10, 1), 1);
    fabric->ops->ah_destroy(fabric->self, to);
    fabric->ops->ah_destroy(fabric->self, all);
    end();
}

static void what_a_queue_pair_kept_comes_back_when_it_is_forgotten(void)
{
    begin();
    add(0);
    name(0, true);
    void *to = handle_of(0);
    send_to(to, 0, 10);
    CHECK_EQ(ipu_mesh_remove(mesh, 1), 0);
    CHECK_EQ(ipu_mesh_remove(mesh, 1), 0);
    pump();
    expect(1, IPU_MESH_GONE);
    expect_silence();
    send_to(to, 10, 1);
    CHECK_EQ(back(10, 1), 1);
    CHECK_EQ(fake_rc.send_count, 10);
    CHECK_EQ(ipu_mesh_forget(mesh, 1), 0);
    CHECK_EQ(back(0, 10), 10); /* no completion of any of them */
    pump();
    /* The device uses the number again at once, and completions of the old queue pair come late. */
    CHECK_EQ(ipu_mesh_add(mesh, 2, &fake_rc.qp[0]), 0);
    pump();
    expect(2, IPU_MESH_READY);
    fake_rc_arrive(&fake_rc.qp[0], 100, IBV_WC_SUCCESS); /* the first receive is an old one */
    fake_rc_complete(10);
    pump();
    CHECK(count("stale") >= 2);
    expect_silence();
    fabric->ops->ah_destroy(fabric->self, to);
    end();
}

static void early_and_short_messages_are_counted(void)
{
    begin();
    add(0);
    arrive(0, "\x08\0\0\0\x45", 5);
    pump();
    name(0, true);
    arrive(0, "\x08\0", 2);
    arrive(0, "", 0);
    arrive(0, "\x88\xb5\0\0", 4);
    pump();
    CHECK_EQ(count("rx_early"), 1);
    CHECK_EQ(count("rx_runt"), 2);
    CHECK_EQ(count("rx_bad_control"), 1);
    expect_silence();
    end();
}

static void a_peer_that_makes_no_room_is_given_up(void)
{
    begin();
    add(0);
    name(0, true);
    for (int i = 0; i < IPU_MESH_WINDOW + 64; i++)
        CHECK_EQ(ipu_mesh_send_control(mesh, 1, "\1\0\0\0", 4), 0);
    pump();
    expect_silence();
    CHECK_EQ(ipu_mesh_send_control(mesh, 1, "\1\0\0\0", 4), 0);
    pump();
    expect(1, IPU_MESH_BROKEN);
    CHECK_EQ(ipu_mesh_send_control(mesh, 1, message, IPU_MESH_CONTROL_MAX + 1), -EMSGSIZE);
    end();
}

/* Nobody reads the events: the connection whose message finds no room ends, and this is told. */
static void events_that_nobody_reads_end_at_their_cap(void)
{
    enum {
        CAP = MESH_EVENTS_MAX,
        REGISTER_BYTES = 2100 /* of an entry, ipoibu/daemon/tables */
    };
    CHECK(sizeof(struct mesh_event) + IPU_MESH_CONTROL_MAX <= REGISTER_BYTES);
    begin();
    add(0);
    name(0, true);
    for (int i = 0; i <= CAP; i++) { /* the last one ends the connection */
        arrive(0, "\x88\xb5\0\0\1\0\0\0", 8);
        pump();
    }
    struct ipu_mesh_event event;
    int controls = 0, broken = 0;
    while (next_event(&event)) {
        controls += event.type == IPU_MESH_CONTROL;
        broken += event.type == IPU_MESH_BROKEN;
    }
    CHECK_EQ(controls, CAP);
    CHECK_EQ(broken, 1);
    add(1);
    name(1, true);
    arrive(1, "\x88\xb5\0\0\1\0\0\0", 8);
    pump();
    expect(2, IPU_MESH_CONTROL);
    end();
}

static void commands_and_completions_wake_the_pump(void)
{
    begin();
    struct pollfd entry = {.fd = fabric->ops->fd(fabric->self), .events = POLLIN};
    struct ipu_received done[8];
    CHECK_EQ(fabric->ops->arm(fabric->self), 0);
    CHECK_EQ(poll(&entry, 1, 0), 0);
    CHECK_EQ(ipu_mesh_add(mesh, 1, &fake_rc.qp[0]), 0);
    CHECK_EQ(poll(&entry, 1, 0), 1);
    CHECK_EQ(fabric->ops->arm(fabric->self), 1);
    pump();
    CHECK_EQ(fabric->ops->arm(fabric->self), 0);
    name(0, true);
    arrive(0, "\x08\0\0\0\x45", 5);
    CHECK_EQ(poll(&entry, 1, 0), 1);
    CHECK_EQ(fabric->ops->received(fabric->self, done, 8), 1);
    CHECK_EQ(fabric->ops->arm(fabric->self), 0);
    CHECK_EQ(poll(&entry, 1, 0), 0);
    struct pollfd events = {.fd = ipu_mesh_event_fd(mesh), .events = POLLIN};
    CHECK_EQ(poll(&events, 1, 0), 1);
    expect(1, IPU_MESH_READY);
    expect_silence();
    CHECK_EQ(poll(&events, 1, 0), 0);
    end();
}

/* ---- no memory */

static void a_mesh_for_which_there_is_no_memory_leaves_nothing(void)
{
    begin();
    struct ipu_mesh_config config = {.pattern = &fake_rc.qp[0],
                                     .gid = ours,
                                     .qpn = 0x43,
                                     .mtu = MTU,
                                     .peers_max = PEERS,
                                     .broadcast = broadcast};
    int n = 0;
    for (bool refused = true; refused; n++) {
        struct ipu_mesh *made = NULL;
        refuse_after(n);
        int error = ipu_mesh_create(&config, &made);
        refused = refuse_stop();
        CHECK_EQ(error < 0, refused);
        if (made != NULL)
            ipu_mesh_destroy(made);
    }
    CHECK(n > 5);
    end();
}

/* Peers come, tell us their groups, send messages that nobody reads yet, and go. */
static void whatever_allocation_fails_a_peer_begins_and_ends_once(void)
{
    int n = 0;
    for (bool refused = true; refused; n++) {
        int added[PEERS], ready[PEERS] = {0}, gone[PEERS] = {0}, told = 0, broken = 0;
        begin();
        refuse_after(n);
        for (int i = 0; i < PEERS; i++) {
            const struct in6_addr gid = peer_gid(i);
            const uint64_t id = (uint64_t)i + 1;
            added[i] = ipu_mesh_add(mesh, id, &fake_rc.qp[i]);
            CHECK(added[i] == 0 || added[i] == -ENOMEM);
            if (added[i] < 0)
                continue;
            pump();
            (void)ipu_mesh_name(mesh, id, &gid, 0x100u + (uint32_t)i, IPU_MESH_WINDOW, true);
            struct in6_addr groups[20];
            for (int k = 0; k < 20; k++)
                groups[k] = group, groups[k].s6_addr[14] = (uint8_t)k;
            (void)ipu_mesh_groups(mesh, id, groups, 20);
            (void)ipu_mesh_group(mesh, id, &broadcast, true);
            (void)ipu_mesh_send_control(mesh, id, "\1\0\0\0", 4);
            void *to = handle_of(i);
            if (to != NULL)
                fabric->ops->ah_destroy(fabric->self, to);
            pump();
            arrive(i, "\x88\xb5\0\0\1\0\0\0", 8);
            pump();
        }
        refused = refuse_stop();
        for (int i = 0; i < PEERS; i++)
            CHECK_EQ(added[i] < 0 ? 0 : ipu_mesh_remove(mesh, (uint64_t)i + 1), 0);
        fake_rc_complete(fake_rc.send_count - fake_rc.send_next);
        CHECK_EQ(back(0, 0), 0);
        struct ipu_mesh_event event;
        while (next_event(&event)) {
            ready[event.id - 1] += event.type == IPU_MESH_READY;
            gone[event.id - 1] += event.type == IPU_MESH_GONE;
            told += event.type == IPU_MESH_CONTROL;
            broken += event.type == IPU_MESH_BROKEN;
        }
        for (int i = 0; i < PEERS; i++)
            CHECK(ready[i] == (added[i] == 0) && gone[i] == (added[i] == 0));
        int peers = (added[0] == 0) + (added[1] == 0) + (added[2] == 0);
        CHECK_EQ(told + broken, peers); /* a message that got lost ends its connection */
        CHECK(refused || (peers == PEERS && broken == 0));
        end();
    }
    CHECK(n > 10 * PEERS);
}

int main(void)
{
    RUN(receives_are_posted_before_anything_else);
    RUN(a_message_goes_to_the_one_it_is_for);
    RUN(who_was_asked_speaks_second);
    RUN(nothing_goes_beyond_the_window);
    RUN(a_window_that_makes_no_sense_is_not_believed);
    RUN(a_window_that_cannot_be_sent_now_is_sent_later);
    RUN(a_peer_gets_a_larger_window_when_it_may_send_more);
    RUN(a_group_gets_a_copy_for_each_that_is_in_it);
    RUN(a_peer_in_too_many_groups_gets_everything);
    RUN(the_frame_itself_names_its_group);
    RUN(a_connection_that_fails_is_reported_once_and_gives_back_all);
    RUN(what_a_queue_pair_kept_comes_back_when_it_is_forgotten);
    RUN(early_and_short_messages_are_counted);
    RUN(a_peer_that_makes_no_room_is_given_up);
    RUN(events_that_nobody_reads_end_at_their_cap);
    RUN(commands_and_completions_wake_the_pump);
    RUN(a_mesh_for_which_there_is_no_memory_leaves_nothing);
    RUN(whatever_allocation_fails_a_peer_begins_and_ends_once);
    return 0;
}
