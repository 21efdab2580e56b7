/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>

#include "fake.h"

#define SECOND_NS 1000000000

static struct ipu_fabric *fabric;

static void *create(uint8_t number)
{
    struct ipu_dest dest = fake_dest(number);
    return fabric->ops->ah_create(fabric->self, &dest);
}

static void destroy(void *ah)
{
    fabric->ops->ah_destroy(fabric->self, ah);
}

/* Returns the next cookie of sent(), and waits for the worker if it must. */
static uint64_t next_returned(void)
{
    uint64_t cookie;
    while (fabric->ops->sent(fabric->self, &cookie, 1) == 0)
        CHECK(fake_readable(fabric->ops->fd(fabric->self)));
    return cookie;
}

/* Waits until the worker has made its handles, and collects them. */
static void wait_for_ah_worker(void)
{
    uint64_t cookie;
    CHECK(fake_readable(fabric->ops->fd(fabric->self)));
    CHECK_EQ(fabric->ops->arm(fabric->self), 1);
    CHECK_EQ(fabric->ops->sent(fabric->self, &cookie, 1), 0);
}

static void a_group_has_its_handle_at_once(void)
{
    fabric = fake_open(true);
    void *ah = create(0x80);
    CHECK(ah != NULL);
    CHECK_EQ(fake.handles, 1);
    CHECK_EQ(fake.last_attr.grh.sgid_index, 3);
    CHECK_EQ(fake.last_attr.grh.hop_limit, 64);
    CHECK_EQ(fake.last_attr.is_global, 1);
    CHECK_EQ(fake.last_attr.port_num, 1);
    destroy(ah);
    CHECK_EQ(fake.handles, 0);
    fake_close();
}

static void a_handle_that_cannot_be_made_at_once_is_refused_with_the_reason(void)
{
    fabric = fake_open(true);
    fake.handle_error = EINVAL; /* rxe's error when it has no more handles */
    errno = 0;
    CHECK(create(0x80) == NULL);
    CHECK_EQ(errno, EINVAL);
    fake_close();
}

static void sends_wait_for_their_handle_in_order(void)
{
    fabric = fake_open(true);
    fake_hold_handles(true);
    void *ah = create(5), *other = create(6);
    CHECK(ah != NULL && other != NULL);
    CHECK_EQ(fake_send(fabric, ah, 0, 3, 60), 3);
    CHECK_EQ(fake_send(fabric, ah, 3, 2, 60), 2);
    CHECK_EQ(fake.send_count, 0);
    fake_hold_handles(false);
    wait_for_ah_worker();
    CHECK_EQ(fake.send_count, 5);
    CHECK_EQ(fake.doorbells, 1);
    CHECK_EQ(fake_send(fabric, ah, 5, 1, 60), 1); /* now without a detour */
    fake_complete_sends(6);
    for (uint64_t cookie = 0; cookie < 6; cookie++)
        CHECK_EQ(next_returned(), cookie);
    destroy(ah);
    destroy(other);
    fake_close();
}

static void sends_to_a_handle_that_cannot_be_made_are_lost(void)
{
    fabric = fake_open(true);
    fake.handle_error = EHOSTUNREACH;
    void *ah = create(5);
    CHECK(ah != NULL);
    CHECK_EQ(fake_send(fabric, ah, 7, 1, 60), 1);
    CHECK_EQ(next_returned(), 7);
    CHECK_EQ(fake_send(fabric, ah, 8, 1, 60), 1); /* within the second: not asked again */
    CHECK_EQ(next_returned(), 8);
    CHECK_EQ(fake.send_count, 0);

    pthread_mutex_lock(&fake.mutex);
    fake.handle_error = 0;
    pthread_mutex_unlock(&fake.mutex);
    fake_now_ns = SECOND_NS;
    CHECK_EQ(fake_send(fabric, ah, 9, 1, 60), 1);
    wait_for_ah_worker();
    CHECK_EQ(fake.send_count, 1);
    fake_complete_sends(1);
    CHECK_EQ(next_returned(), 9);
    destroy(ah);
    fake_close();
}

static void waiting_sends_are_bounded(void)
{
    fabric = fake_open(true);
    fake_hold_handles(true);
    void *ah = create(5);
    CHECK_EQ(fake_send(fabric, ah, 0, 70, 60), 70); /* 64 wait, the others are lost */
    uint64_t cookies[8];
    CHECK_EQ(fabric->ops->sent(fabric->self, cookies, 8), 6);
    for (int i = 0; i < 6; i++)
        CHECK(cookies[i] >= 64);
    fake_hold_handles(false);
    wait_for_ah_worker();
    CHECK_EQ(fake.send_count, 64);
    fake_complete_sends(64);
    for (uint64_t cookie = 0; cookie < 64; cookie++)
        CHECK_EQ(next_returned(), cookie);
    destroy(ah);
    fake_close();
}

static void a_handle_lives_until_the_last_send_that_names_it_has_ended(void)
{
    fabric = fake_open(true);
    void *ah = create(0x80);
    CHECK_EQ(fake_send(fabric, ah, 0, 3, 60), 3);
    destroy(ah); /* fake_verbs would notice an earlier end */
    CHECK_EQ(fake.handles, 1);
    fake_complete_sends(2);
    uint64_t cookies[4];
    CHECK_EQ(fabric->ops->sent(fabric->self, cookies, 4), 0);
    CHECK_EQ(fake.handles, 1);
    fake_complete_sends(1);
    CHECK_EQ(fabric->ops->sent(fabric->self, cookies, 4), 3);
    CHECK_EQ(fake.handles, 0);
    fake_close();
}

static void a_handle_given_up_while_it_is_made_ends_with_its_sends(void)
{
    fabric = fake_open(true);
    fake_hold_handles(true);
    void *used = create(5), *unused = create(6);
    CHECK_EQ(fake_send(fabric, used, 0, 2, 60), 2);
    destroy(used);
    destroy(unused);
    fake_hold_handles(false);
    while (fake.send_count < 2)
        wait_for_ah_worker();
    fake_complete_sends(2);
    CHECK_EQ(next_returned(), 0);
    CHECK_EQ(next_returned(), 1);
    for (int handles = 1; handles > 0;) { /* the worker may not have made the unused handle yet */
        pthread_mutex_lock(&fake.mutex);
        handles = fake.made < 2 || fake.handles > 0;
        pthread_mutex_unlock(&fake.mutex);
        uint64_t cookie;
        CHECK_EQ(fabric->ops->sent(fabric->self, &cookie, 1), 0);
    }
    fake_close();
}

static void a_break_loses_what_waits_and_keeps_the_handles(void)
{
    fabric = fake_open(true);
    fake_hold_handles(true);
    void *ah = create(5);
    CHECK_EQ(fake_send(fabric, ah, 0, 2, 60), 2);
    ipu_verbs_break(fake_verbs);
    uint64_t cookies[4];
    CHECK_EQ(fabric->ops->sent(fabric->self, cookies, 4), 2);
    CHECK_EQ(fabric->ops->sent(fabric->self, cookies, 4), -EIO);
    CHECK_EQ(fabric->ops->recover(fabric->self), 0);
    fake_hold_handles(false);
    wait_for_ah_worker();
    CHECK_EQ(fake_send(fabric, ah, 2, 1, 60), 1);
    CHECK_EQ(fake.send_count, 1);
    CHECK_EQ(fake.made, 1);
    fake_complete_sends(1);
    CHECK_EQ(next_returned(), 2);
    destroy(ah);
    fake_close();
}

static void handles_are_made_anew_when_the_ports_address_changes(void)
{
    fabric = fake_open(true);
    void *ah = create(0x80);
    CHECK_EQ(fake_send(fabric, ah, 0, 1, 60), 1);
    struct in6_addr gid = fake_dest(9).gid;
    ipu_verbs_rebind(fake_verbs, &gid, 4);
    CHECK_EQ(fabric->ops->arm(fabric->self), 1); /* the worker has made a handle */
    uint64_t cookies[4];
    CHECK_EQ(fabric->ops->sent(fabric->self, cookies, 4), 0);
    CHECK(memcmp(&fabric->gid, &gid, sizeof gid) == 0);
    CHECK_EQ(fake_send(fabric, ah, 1, 1, 60), 1);
    CHECK_EQ(fake.last_attr.grh.sgid_index, 4);
    CHECK_EQ(fake.handles, 2); /* the former one is still sent with */
    CHECK(fake.sends[0].wr.wr.ud.ah != fake.sends[1].wr.wr.ud.ah);
    fake_complete_sends(2);
    CHECK_EQ(fabric->ops->sent(fabric->self, cookies, 4), 2);
    CHECK_EQ(fake.handles, 1);
    destroy(ah);
    fake_close();
}

static void where_nothing_is_resolved_unicast_handles_are_there_at_once(void)
{
    fabric = fake_open(false);
    void *ah = create(5);
    CHECK_EQ(fake.handles, 1);
    destroy(ah);
    fake_close();
}

static void closing_ends_what_is_under_way(void)
{
    fabric = fake_open(true);
    void *group = create(0x80);
    fake_hold_handles(true);
    void *making = create(5), *waiting = create(6);
    fake_hold_handles(false);
    CHECK_EQ(fake_send(fabric, making, 0, 1, 60), 1);
    CHECK_EQ(fake_send(fabric, group, 1, 1, 60), 1);
    fake.send_next = fake.send_count; /* the queue pair's end */
    ipu_verbs_free(fake_verbs);
    CHECK_EQ(fake.handles, 0);
    CHECK_EQ(fake.regions, 0);
    uint64_t cookie;
    struct ipu_dest dest = fake_dest(7);
    CHECK_EQ(fabric->ops->sent(fabric->self, &cookie, 1), -EIO);
    CHECK_EQ(fabric->ops->arm(fabric->self), 0);
    CHECK_EQ(fabric->ops->recover(fabric->self), -EIO);
    CHECK_EQ(fake_send(fabric, group, 2, 1, 60), -EIO);
    CHECK(fabric->ops->ah_create(fabric->self, &dest) == NULL);
    destroy(making); /* as the pump does when it is freed */
    destroy(waiting);
    fake_close(); /* the fabric destroys the third handle */
}

int main(void)
{
    RUN(a_group_has_its_handle_at_once);
    RUN(a_handle_that_cannot_be_made_at_once_is_refused_with_the_reason);
    RUN(sends_wait_for_their_handle_in_order);
    RUN(sends_to_a_handle_that_cannot_be_made_are_lost);
    RUN(waiting_sends_are_bounded);
    RUN(a_handle_lives_until_the_last_send_that_names_it_has_ended);
    RUN(a_handle_given_up_while_it_is_made_ends_with_its_sends);
    RUN(a_break_loses_what_waits_and_keeps_the_handles);
    RUN(handles_are_made_anew_when_the_ports_address_changes);
    RUN(where_nothing_is_resolved_unicast_handles_are_there_at_once);
    RUN(closing_ends_what_is_under_way);
    return 0;
}
