/* SPDX-License-Identifier: BSD-2-Clause */
/* Full sockets, slow links, links that change, restarts; and known messages for a capture. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ipv4.h"
#include "live.h"
#include "outlet.h"

/* ---- back-pressure and trouble --------------------------------------------------------------- */

static void shrink_send_buffer(struct soft_hca *hca)
{
    int bytes = 1; /* the kernel makes it its minimum */

    for (unsigned int outlet = 0; outlet < SOFT_UDP_OUTLETS; outlet++)
        CHECK(setsockopt(soft_udp_outlet_fd(hca->udp, outlet), SOL_SOCKET, SO_SNDBUF, &bytes,
                         sizeof(bytes)) == 0);
}

/* Returns the GID of a host that does not exist. */
static struct in6_addr nobody_beside(struct soft_hca *hca)
{
    struct in6_addr nobody = gid_of(hca);

    nobody.s6_addr[15] ^= 0x55;
    nobody.s6_addr[9] ^= 0x11;
    return nobody;
}

/* No host has the address, so the first packets wait in the neighbour's queue and fill the small
 * send buffer, until the kernel gives up: the other packets wait in the send queue, and EPOLLOUT
 * wakes the sleeper.
 */
static void a_full_socket_keeps_sends_queued_and_wakes_when_there_is_room(void)
{
    enum { COUNT = 24 };
    static uint8_t data[2000];
    struct soft_send_wr wr[COUNT];
    struct soft_wc wc[COUNT];
    struct end b = open_end(1);
    struct pollfd late = {.fd = -1, .events = POLLIN};
    struct soft_cq *latecomer;
    struct soft_ah *ah;
    int done;

    ah = ah_to(b.hca, nobody_beside(b.hca));
    shrink_send_buffer(b.hca);
    for (int i = 0; i < COUNT; i++) {
        wr[i] = message(ah, 2, data, 600 + (size_t)i); /* growing: each one by itself */
        wr[i].wr_id = (uint64_t)i;
        wr[i].flags = SOFT_SEND_SIGNALED;
    }
    CHECK_EQUAL(soft_qp_post_send(b.qp, wr, COUNT), COUNT);
    soft_ah_destroy(ah);
    CHECK_EQUAL(counter(b.hca, SOFT_C_TX_STALLS), 1);
    CHECK_EQUAL(b.hca->full_outlets, 1);
    CHECK_EQUAL(soft_cq_create(b.hca, 1, &latecomer), 0); /* waits for EPOLLOUT, too */
    late.fd = soft_cq_fd(latecomer);
    CHECK_EQUAL(poll(&late, 1, TIMEOUT_MS), 1);
    done = soft_cq_poll(b.cq, COUNT, wc);
    CHECK(done > 0 && done < COUNT);
    await(b.cq, COUNT - done, wc + done);
    for (int i = 0; i < COUNT; i++) {
        CHECK_EQUAL(wc[i].wr_id, i);
        CHECK_EQUAL(wc[i].status, SOFT_WC_SUCCESS);
    }
    CHECK_EQUAL(b.hca->full_outlets, 0);
    CHECK_EQUAL(counter(b.hca, SOFT_C_TX_PACKETS), COUNT);
    close_end(&b);
}

/* Messages of one flow wait for a host that does not exist; those of another flow, between them in
 * the queue, leave at once, in order, and once only. */
static void a_full_outlet_does_not_hold_up_the_others(void)
{
    enum { COUNT = 48 };
    static uint8_t data[2000];
    struct soft_send_wr wr[COUNT];
    struct soft_wc wc[COUNT];
    struct soft_ah *nobody;
    struct end a, b;

    open_both(&a, &b);
    exchange(&a, &b);
    shrink_send_buffer(a.hca);
    nobody = ah_to(a.hca, nobody_beside(a.hca));
    for (int i = 0; i < COUNT; i++) {
        struct soft_ah *ah = i % 2 == 0 ? nobody : a.peer;

        wr[i] = message(ah, soft_qp_qpn(b.qp), data, 600 + (size_t)i);
        wr[i].wr_id = (uint64_t)i;
        wr[i].flags = SOFT_SEND_SIGNALED;
        wr[i].flow = (uint32_t)(i % 2);
    }
    CHECK_EQUAL(soft_qp_post_send(a.qp, wr, COUNT), COUNT);
    soft_ah_destroy(nobody);
    await(b.cq, COUNT / 2, wc);
    for (int i = 0; i < COUNT / 2; i++)
        CHECK_EQUAL(wc[i].byte_len, SOFT_GRH_BYTES + 600 + 2 * i + 1);
    CHECK_EQUAL(a.hca->full_outlets, 1);
    await(a.cq, COUNT, wc);
    for (int i = 0; i < COUNT; i++)
        CHECK_EQUAL(wc[i].wr_id, i);
    CHECK_EQUAL(a.hca->full_outlets, 0);
    CHECK_EQUAL(counter(b.hca, SOFT_C_RX_DELIVERED), COUNT / 2 + 1);
    close_both(&a, &b);
}

/* All messages cross a rate limiter, which the caller sets, with a small send buffer, in order. */
static void a_slow_link_holds_sends_back_and_loses_none(void)
{
    enum { COUNT = 1000 };
    static uint8_t data[COUNT][1000];
    struct soft_send_wr wr[100];
    static struct soft_wc wc[COUNT];
    struct end a, b;

    open_both(&a, &b);
    exchange(&a, &b);
    shrink_send_buffer(a.hca);
    for (int i = 0; i < COUNT; i++)
        memset(data[i], i, sizeof(data[i]));
    for (int i = 0; i < COUNT; i += 100) {
        for (int j = 0; j < 100; j++) {
            wr[j] = message(a.peer, soft_qp_qpn(b.qp), data[i + j], sizeof(data[i + j]));
            wr[j].flags = j == 99 ? SOFT_SEND_SIGNALED : 0;
        }
        CHECK_EQUAL(soft_qp_post_send(a.qp, wr, 100), 100);
    }
    await(a.cq, COUNT / 100, wc);
    await(b.cq, COUNT, wc);
    for (int i = 0; i < COUNT; i++)
        CHECK(memcmp(b.frame[wc[i].wr_id] + 40, data[i], sizeof(data[i])) == 0);
    CHECK(counter(a.hca, SOFT_C_TX_STALLS) > 0);
    CHECK_EQUAL(counter(b.hca, SOFT_C_RX_DELIVERED), COUNT + 1);
    close_both(&a, &b);
}

static void change_link(int which, bool up, int mtu_bytes)
{
    struct ifreq req = {.ifr_flags = 0};
    int fd;

    enter(place[which].netns);
    fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    leave();
    CHECK(fd >= 0);
    memcpy(req.ifr_name, place[which].netdev, strlen(place[which].netdev) + 1);
    if (mtu_bytes > 0) {
        req.ifr_mtu = mtu_bytes;
        CHECK(ioctl(fd, SIOCSIFMTU, &req) == 0);
    }
    CHECK(ioctl(fd, SIOCGIFFLAGS, &req) == 0);
    req.ifr_flags = (short)(up ? req.ifr_flags | IFF_UP : req.ifr_flags & ~IFF_UP);
    CHECK(ioctl(fd, SIOCSIFFLAGS, &req) == 0);
    close(fd);
}

static void await_port(struct soft_hca *hca, int state)
{
    int64_t end = now_ms() + TIMEOUT_MS;

    while (soft_hca_check(hca, 0) != state && now_ms() < end)
        sched_yield();
    CHECK_EQUAL(soft_hca_check(hca, 0), state);
}

static void a_link_that_goes_down_and_up_again_carries_on(void)
{
    struct in6_addr group = group_number(0);
    struct soft_ah *ah;
    struct soft_wc wc[4];
    struct soft_send_wr wr;
    struct end a, b;

    open_both(&a, &b);
    enter(place[1].netns);
    CHECK_EQUAL(soft_qp_attach_mcast(b.qp, &group), 0);
    leave();
    CHECK_EQUAL(soft_hca_check(a.hca, 0), 0);
    change_link(0, false, 0);
    CHECK_EQUAL(soft_hca_check(a.hca, 0), -ENETDOWN);
    await_port(b.hca, -ENETDOWN); /* no carrier; the kernel takes its time to notice */
    wr = message(a.peer, soft_qp_qpn(b.qp), "lost", 4);
    wr.flags = SOFT_SEND_SIGNALED;
    CHECK_EQUAL(soft_qp_post_send(a.qp, &wr, 1), 1);
    await(a.cq, 1, wc);
    CHECK_EQUAL(wc[0].status, SOFT_WC_SUCCESS);
    CHECK_EQUAL(counter(a.hca, SOFT_C_TX_UNREACHABLE), 1);
    change_link(0, true, 0);
    await_port(a.hca, 0);
    await_port(b.hca, 0);
    exchange(&a, &b);
    ah = ah_to(a.hca, group);
    send_to(&a, ah, SOFT_QPN_MCAST, "still a member", 14);
    await(b.cq, 1, wc);
    CHECK_EQUAL(wc[0].byte_len, 54);
    close_both(&a, &b);
}

static void an_mtu_that_shrinks_is_noticed_and_loses_only_what_is_too_long(void)
{
    static uint8_t data[4096];
    struct soft_send_wr wr[8];
    struct soft_wc wc[8];
    struct end a, b;

    open_both(&a, &b);
    CHECK_EQUAL(mtu_of(a.hca), 4096);
    change_link(0, true, 2128);
    CHECK_EQUAL(soft_hca_check(a.hca, 0), -EMSGSIZE);
    for (int i = 0; i < 8; i++) { /* trains that the kernel refuses whole, and must go singly */
        wr[i] = message(a.peer, soft_qp_qpn(b.qp), data, i < 4 ? 4096 : i == 4 ? 2000 : 100);
        wr[i].flags = SOFT_SEND_SIGNALED;
    }
    CHECK_EQUAL(soft_qp_post_send(a.qp, wr, 8), 8);
    await(a.cq, 8, wc);
    await(b.cq, 4, wc);
    CHECK_EQUAL(wc[0].byte_len, 2040);
    CHECK_EQUAL(wc[3].byte_len, 140);
    CHECK_EQUAL(counter(a.hca, SOFT_C_TX_REFUSED), 4);
    change_link(0, true, 9000);
    CHECK_EQUAL(soft_hca_check(a.hca, 0), 0);
    CHECK_EQUAL(soft_qp_post_send(a.qp, wr, 8), 8);
    await(b.cq, 8, wc);
    CHECK(counter(a.hca, SOFT_C_TX_SUPER) > 0);
    close_both(&a, &b);
}

/* The kernel has no IPv6 below 1280 bytes, and forgets the device's groups. */
static void groups_that_an_mtu_without_ipv6_has_cost_come_back_by_attaching_again(void)
{
    struct in6_addr group = group_number(0);
    struct soft_wc wc;
    struct end a, b;

    open_both(&a, &b);
    enter(place[1].netns);
    CHECK_EQUAL(soft_qp_attach_mcast(b.qp, &group), 0);
    leave();
    change_link(1, true, 1000);
    await_port(b.hca, -EADDRNOTAVAIL);
    change_link(1, true, 9000);
    await_port(b.hca, 0);
    exchange(&a, &b);
    enter(place[1].netns);
    CHECK_EQUAL(soft_qp_detach_mcast(b.qp, &group), 0);
    CHECK_EQUAL(soft_qp_attach_mcast(b.qp, &group), 0);
    leave();
    send_to(&a, ah_to(a.hca, group), SOFT_QPN_MCAST, "a member again", 14);
    await(b.cq, 1, &wc);
    CHECK_EQUAL(wc.byte_len, 54);
    close_both(&a, &b);
}

static void one_device_has_one_hca(void)
{
    struct soft_hca *hca = open_at(0);
    struct soft_hca *second;

    enter(place[0].netns);
    CHECK_EQUAL(soft_hca_open(place[0].netdev, NULL, &second), -EADDRINUSE);
    soft_hca_close(hca);
    CHECK_EQUAL(soft_hca_open(place[0].netdev, NULL, &second), 0);
    leave();
    soft_hca_close(second);
}

static void an_hca_adopts_a_socket_with_the_packets_that_wait_in_it(void)
{
    static uint8_t buffer[FRAME];
    struct soft_hca *hca;
    struct soft_wc wc;
    struct end a, b;
    struct soft_hca_options options = {0};
    int kept;

    open_both(&a, &b);
    kept = dup(soft_hca_fd(b.hca));
    CHECK(kept >= 0);
    struct soft_qp_attr attr = {
        .type = SOFT_QPT_UD, .max_send_wr = 1, .max_recv_wr = 1, .qpn = soft_qp_qpn(b.qp)};
    close_end(&b);
    send_to(&a, a.peer, attr.qpn, "for the next one", 16);
    enter(place[1].netns);
    CHECK_EQUAL(soft_hca_open(place[1].netdev, &options, &hca), -EADDRINUSE);
    options.adopted_fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0); /* bound nowhere */
    CHECK_EQUAL(soft_hca_open(place[1].netdev, &options, &hca), -ESTALE);
    close(options.adopted_fd);
    options.adopted_fd = kept;
    CHECK_EQUAL(soft_hca_open(place[1].netdev, &options, &hca), 0);
    leave();
    close(kept);
    CHECK_EQUAL(soft_cq_create(hca, 2, &attr.send_cq), 0);
    attr.recv_cq = attr.send_cq;
    attr.qkey = QKEY;
    CHECK_EQUAL(soft_qp_create(hca, &attr, &b.qp), 0);
    CHECK_EQUAL(soft_qp_qpn(b.qp), attr.qpn);
    post(b.qp, 7, buffer, sizeof(buffer));
    await(attr.recv_cq, 1, &wc);
    CHECK_EQUAL(wc.wr_id, 7);
    CHECK_EQUAL(wc.byte_len, SOFT_GRH_BYTES + 16);
    CHECK_EQUAL(soft_qp_create(hca, &attr, &b.qp), 0); /* its number is taken: another one */
    CHECK(soft_qp_qpn(b.qp) != attr.qpn);
    soft_hca_close(hca);
    close_end(&a);
}

/* A host without an HCA answers each packet with an ICMP error, which the kernel reports to the
 * outlet that is connected to it. No packet to another host is lost by that. */
static void a_connected_host_that_refuses_packets_costs_no_others(void)
{
    struct in6_addr group = group_number(0);
    struct soft_ah *all;
    struct soft_wc wc;
    struct end a, b;
    uint32_t old;

    open_both(&a, &b);
    enter(place[0].netns);
    CHECK_EQUAL(soft_qp_attach_mcast(a.qp, &group), 0);
    leave();
    all = ah_to(a.hca, group);
    old = soft_qp_qpn(b.qp);
    for (int i = 0; i < SOFT_OUTLET_RUN; i++)
        send_to(&a, a.peer, old, "to be connected", 15);
    CHECK_EQUAL(counter(a.hca, SOFT_C_TX_CONNECTS), 1);
    close_end(&b);
    for (int i = 0; i < 3 * SOFT_OUTLET_RUN; i++) {
        send_to(&a, a.peer, old, "refused", 7);
        send_to(&a, all, SOFT_QPN_MCAST, "one for us", 10);
        await(a.cq, 1, &wc);
        CHECK_EQUAL(wc.byte_len, SOFT_GRH_BYTES + 10);
    }
    b = open_end(1);
    b.peer = ah_to(b.hca, gid_of(a.hca));
    exchange(&a, &b);
    CHECK_EQUAL(counter(a.hca, SOFT_C_TX_REFUSED), 0);
    CHECK_EQUAL(counter(a.hca, SOFT_C_TX_UNREACHABLE), 0);
    soft_ah_destroy(all);
    close_both(&a, &b);
}

static void a_restarted_hca_has_new_numbers_and_the_old_ones_are_dead(void)
{
    struct soft_wc wc;
    struct end a, b;
    uint32_t old;

    open_both(&a, &b);
    exchange(&a, &b);
    old = soft_qp_qpn(b.qp);
    close_end(&b);
    send_to(&a, a.peer, old, "nobody home", 11); /* an ICMP error comes back and hurts nothing */
    b = open_end(1);
    b.peer = ah_to(b.hca, gid_of(a.hca));
    CHECK(soft_qp_qpn(b.qp) != old); /* once in 16 million runs */
    send_to(&a, a.peer, old, "too late", 8);
    await_counter(b.hca, SOFT_C_DROP_QPN, 1);
    exchange(&a, &b);
    CHECK_EQUAL(soft_cq_poll(a.cq, 1, &wc), 0);
    close_both(&a, &b);
}

static void delete_device(int which)
{
    struct {
        struct nlmsghdr head;
        struct ifinfomsg body;
    } request = {
        .head = {.nlmsg_len = sizeof(request),
                 .nlmsg_type = RTM_DELLINK,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
    };
    struct {
        struct nlmsghdr head;
        struct nlmsgerr body;
    } answer;
    int fd;

    enter(place[which].netns);
    fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    request.body.ifi_index = (int)if_nametoindex(place[which].netdev);
    leave();
    CHECK(send(fd, &request, sizeof(request), 0) == sizeof(request));
    CHECK(recv(fd, &answer, sizeof(answer), 0) > 0);
    CHECK_EQUAL(answer.body.error, 0);
    close(fd);
}

/* Both ends of the veth pair go; the descriptor must not be readable for ever after. */
static void a_device_that_vanishes_is_noticed_and_hurts_nothing(void)
{
    struct in6_addr group = group_number(0);
    struct pollfd p = {.events = POLLIN};
    struct soft_send_wr wr;
    struct soft_wc wc;
    struct end a, b;

    open_both(&a, &b);
    exchange(&a, &b);
    enter(place[0].netns);
    CHECK_EQUAL(soft_qp_attach_mcast(a.qp, &group), 0);
    delete_device(0);
    CHECK_EQUAL(soft_hca_check(a.hca, 0), -ENODEV);
    CHECK_EQUAL(soft_hca_check(b.hca, 0), -ENODEV);
    wr = message(a.peer, soft_qp_qpn(b.qp), "gone", 4);
    wr.flags = SOFT_SEND_SIGNALED;
    CHECK_EQUAL(soft_qp_post_send(a.qp, &wr, 1), 1);
    await(a.cq, 1, &wc);
    CHECK_EQUAL(wc.status, SOFT_WC_SUCCESS);
    CHECK_EQUAL(counter(a.hca, SOFT_C_TX_UNREACHABLE), 1);
    CHECK_EQUAL(soft_cq_poll(a.cq, 1, &wc), 0);
    soft_cq_arm(a.cq);
    p.fd = soft_cq_fd(a.cq);
    CHECK_EQUAL(poll(&p, 1, 0), 0);
    CHECK_EQUAL(soft_qp_detach_mcast(a.qp, &group), 0);
    enter(place[0].netns);
    CHECK_EQUAL(soft_qp_attach_mcast(a.qp, &group), -ENODEV);
    CHECK_EQUAL(a.hca->group_count, 0);
    leave();
    close_both(&a, &b);
}

static int open_descriptors(void)
{
    int n = 0;

    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void opening_and_closing_a_hundred_times_leaves_nothing(void)
{
    int before = open_descriptors();

    for (int i = 0; i < 100; i++) {
        struct end a, b;

        open_both(&a, &b);
        exchange(&a, &b);
        close_both(&a, &b);
    }
    CHECK_EQUAL(open_descriptors(), before);
}

/* Each descriptor in turn is refused: each time there is an error, and no earlier descriptor
 * leaks. */
static void running_out_of_descriptors_is_an_error_and_leaks_nothing(void)
{
    int before = open_descriptors();
    struct rlimit limit, all;
    struct soft_hca *hca = NULL;
    struct soft_cq *cq = NULL;
    int refused = 0, error;

    CHECK(getrlimit(RLIMIT_NOFILE, &all) == 0);
    enter(place[0].netns);
    limit = all;
    for (limit.rlim_cur = 0;; limit.rlim_cur++, refused++) {
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        error = soft_hca_open(place[0].netdev, NULL, &hca);
        if (error == 0)
            break;
        CHECK_EQUAL(error, -EMFILE);
        CHECK_EQUAL(open_descriptors(), before);
    }
    CHECK(refused >= 4); /* ioctl, netlink, membership, UDP */
    for (refused = 0; (error = soft_cq_create(hca, 1, &cq)) != 0; limit.rlim_cur++, refused++) {
        CHECK_EQUAL(error, -EMFILE);
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    }
    CHECK(refused >= 2); /* event, epoll */
    CHECK(setrlimit(RLIMIT_NOFILE, &all) == 0);
    leave();
    soft_hca_close(hca);
    CHECK_EQUAL(open_descriptors(), before);
}

/* Sends known messages for a capture, one by one, each in a flow of its own, and as a train. */
static void known_messages_for_a_capture(void)
{
    static const char *const texts[] = {"", "a", "ab", "abc", "abcd", "The quick brown fox"};
    struct in6_addr group = group_number(0x1234);
    struct soft_send_wr wr[4];
    struct soft_wc wc[16];
    struct end a, b;
    bool has_groups;

    open_both(&a, &b);
    has_groups = !soft_is_ipv4(&a.hca->attr.gid);
    enter(place[1].netns);
    CHECK_EQUAL(soft_qp_attach_mcast(b.qp, &group), has_groups ? 0 : -EAFNOSUPPORT);
    leave();
    printf("qpn %06x %06x\n", soft_qp_qpn(a.qp), soft_qp_qpn(b.qp));
    for (int i = 0; i < 6; i++) {
        wr[0] = message(a.peer, soft_qp_qpn(b.qp), texts[i], strlen(texts[i]));
        wr[0].flags = i == 5 ? SOFT_SEND_SOLICITED | SOFT_SEND_WITH_IMM : 0;
        wr[0].imm_data = 0xcafef00d;
        wr[0].flow = (uint32_t)i;
        CHECK_EQUAL(soft_qp_post_send(a.qp, wr, 1), 1);
        await(b.cq, 1, wc);
    }
    if (has_groups) {
        wr[0] = message(ah_to(a.hca, group), SOFT_QPN_MCAST, "to the group", 12);
        CHECK_EQUAL(soft_qp_post_send(a.qp, wr, 1), 1);
        await(b.cq, 1, wc);
    }
    for (int i = 0; i < 4; i++)
        wr[i] = message(a.peer, soft_qp_qpn(b.qp), "one of four", i < 3 ? 11 : 3);
    CHECK_EQUAL(soft_qp_post_send(a.qp, wr, 4), 4);
    await(b.cq, 4, wc);
    CHECK_EQUAL(counter(a.hca, SOFT_C_TX_SUPER), 1);
    close_both(&a, &b);
}

const struct test live_trouble[] = {
    TEST(a_full_outlet_does_not_hold_up_the_others),
    TEST(a_full_socket_keeps_sends_queued_and_wakes_when_there_is_room),
    TEST(a_slow_link_holds_sends_back_and_loses_none),
    TEST(a_link_that_goes_down_and_up_again_carries_on),
    TEST(an_mtu_that_shrinks_is_noticed_and_loses_only_what_is_too_long),
    TEST(a_device_that_vanishes_is_noticed_and_hurts_nothing),
    TEST(groups_that_an_mtu_without_ipv6_has_cost_come_back_by_attaching_again),
    TEST(one_device_has_one_hca),
    TEST(an_hca_adopts_a_socket_with_the_packets_that_wait_in_it),
    TEST(a_connected_host_that_refuses_packets_costs_no_others),
    TEST(a_restarted_hca_has_new_numbers_and_the_old_ones_are_dead),
    TEST(opening_and_closing_a_hundred_times_leaves_nothing),
    TEST(running_out_of_descriptors_is_an_error_and_leaks_nothing),
    TEST(known_messages_for_a_capture),
    {NULL, NULL},
};
