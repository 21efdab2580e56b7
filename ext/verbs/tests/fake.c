/* SPDX-License-Identifier: BSD-2-Clause */
#include "fake.h"

#include "fake_rc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>

struct fake fake;
struct ipu_verbs *fake_verbs;
int64_t fake_now_ns;
static char frames[64];

int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    (void)clock;
    *now = (struct timespec){fake_now_ns / 1000000000, fake_now_ns % 1000000000};
    return 0;
}

/* ---- work */

static void ring(struct ibv_cq *cq)
{
    char which = cq == &fake.send_cq ? 's' : 'r';
    bool *armed = cq == &fake.send_cq ? &fake.send_armed : &fake.recv_armed;
    if (*armed)
        CHECK(write(fake.channel_pipe[1], &which, 1) == 1);
    *armed = false;
}

static void end_send(enum ibv_wc_status status)
{
    const struct fake_send *send = &fake.sends[fake.send_next++];
    if (status == IBV_WC_SUCCESS && !(send->wr.send_flags & IBV_SEND_SIGNALED))
        return;
    fake.send_wc[fake.send_wc_count++] = (struct ibv_wc){.wr_id = send->wr.wr_id, .status = status};
    ring(&fake.send_cq);
}

static void end_recv(struct ibv_wc wc)
{
    wc.wr_id = fake.recvs[fake.recv_next++].wr_id;
    fake.recv_wc[fake.recv_wc_count++] = wc;
    ring(&fake.recv_cq);
}

static void flush(void)
{
    while (fake.send_next < fake.send_count)
        end_send(IBV_WC_WR_FLUSH_ERR);
    while (fake.recv_next < fake.recv_count)
        end_recv((struct ibv_wc){.status = IBV_WC_WR_FLUSH_ERR});
}

void fake_complete_sends(int n)
{
    for (int i = 0; i < n; i++)
        end_send(IBV_WC_SUCCESS);
}

void fake_fail_send(enum ibv_wc_status status)
{
    end_send(status);
}

void fake_arrive(uint32_t byte_len, uint32_t src_qp, unsigned int flags)
{
    end_recv((struct ibv_wc){.byte_len = byte_len, .src_qp = src_qp, .wc_flags = flags});
}

void fake_fail_recv(enum ibv_wc_status status)
{
    end_recv((struct ibv_wc){.status = status});
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    if (qp->qp_type == IBV_QPT_RC)
        return fake_rc_post_send(qp, wr, bad);
    CHECK(qp == &fake.qp);
    fake.doorbells++;
    for (int n = 0; wr != NULL; wr = wr->next, n++) {
        if (n == fake.refuse_send_after) {
            *bad = wr;
            return EINVAL;
        }
        CHECK(fake.send_count < FAKE_QUEUE);
        struct fake_send *send = &fake.sends[fake.send_count++];
        send->wr = *wr;
        send->sge = *wr->sg_list;
    }
    return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    if (qp->qp_type == IBV_QPT_RC)
        return fake_rc_post_recv(qp, wr, bad);
    CHECK(qp == &fake.qp);
    for (int n = 0; wr != NULL; wr = wr->next, n++) {
        if (n == fake.refuse_recv_after) {
            *bad = wr;
            return EINVAL;
        }
        CHECK(fake.recv_count < FAKE_QUEUE);
        fake.recv_sges[fake.recv_count] = *wr->sg_list;
        fake.recvs[fake.recv_count++] = *wr;
    }
    return 0;
}

static int poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
    if (cq == &fake_rc.send_cq || cq == &fake_rc.recv_cq)
        return fake_rc_poll_cq(cq, max, wc);
    bool send = cq == &fake.send_cq;
    struct ibv_wc *queue = send ? fake.send_wc : fake.recv_wc;
    int *next = send ? &fake.send_wc_next : &fake.recv_wc_next;
    int count = send ? fake.send_wc_count : fake.recv_wc_count;
    int n = 0;
    if (fake.poll_fails)
        return -1;
    while (n < max && *next < count)
        wc[n++] = queue[(*next)++];
    return n;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited)
{
    CHECK(!solicited);
    if (cq == &fake_rc.send_cq || cq == &fake_rc.recv_cq) {
        fake_rc_notify(cq);
        return 0;
    }
    fake.notify_calls++;
    *(cq == &fake.send_cq ? &fake.send_armed : &fake.recv_armed) = true;
    return 0;
}

/* ---- libibverbs */

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    CHECK(mask & IBV_QP_STATE);
    if (qp != &fake.qp) /* a TX queue's: not noted */
        return 0;
    CHECK(fake.state_count < FAKE_ASKED);
    if ((int)attr->qp_state == fake.refuse_state)
        return EINVAL;
    fake.states[fake.state_count++] = (int)attr->qp_state;
    if (attr->qp_state == IBV_QPS_INIT)
        fake.init_attr = *attr;
    if (attr->qp_state == IBV_QPS_ERR)
        flush();
    return 0;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                 struct ibv_qp_init_attr *init)
{
    if (mask == IBV_QP_RQ_PSN)
        return fake_rc_query_psn(qp, attr);
    CHECK(mask == IBV_QP_CAP && attr != NULL);
    init->cap = (struct ibv_qp_cap){.max_send_wr = FAKE_SEND_DEPTH,
                                    .max_recv_wr = 100,
                                    .max_send_sge = qp->qp_type == IBV_QPT_RC ? 2 : 0,
                                    .max_inline_data = 64};
    return 0;
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
    CHECK(pd == &fake.pd && access == IBV_ACCESS_LOCAL_WRITE);
    struct ibv_mr *mr = calloc(1, sizeof *mr);
    if (mr == NULL)
        return NULL;
    *mr = (struct ibv_mr){.addr = addr, .length = length, .lkey = 100u + (uint32_t)fake.regions++};
    return mr;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
    fake.regions--;
    free(mr);
    return 0;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    struct ibv_ah *ah = NULL;
    CHECK(pd == &fake.pd);
    pthread_mutex_lock(&fake.mutex);
    while (fake.hold_handles)
        pthread_cond_wait(&fake.changed, &fake.mutex);
    fake.last_attr = *attr;
    errno = fake.handle_error;
    if (fake.handle_error == 0) {
        ah = calloc(1, sizeof *ah);
        fake.handles++;
        fake.made++;
    }
    pthread_mutex_unlock(&fake.mutex);
    return ah;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
    for (int i = fake.send_next; i < fake.send_count; i++)
        CHECK(fake.sends[i].wr.wr.ud.ah != ah); /* rxe would fail the queue pair */
    pthread_mutex_lock(&fake.mutex);
    fake.handles--;
    pthread_mutex_unlock(&fake.mutex);
    free(ah);
    return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
    char which;
    bool is_rc = channel == &fake_rc.channel;
    CHECK(is_rc || channel == &fake.channel);
    ssize_t n = read(channel->fd, &which, 1);
    if (n != 1) {
        errno = n == 0 ? EIO : errno;
        return -1;
    }
    if (is_rc)
        *cq = which == 's' ? &fake_rc.send_cq : &fake_rc.recv_cq;
    else
        *cq = which == 's' ? &fake.send_cq : &fake.recv_cq;
    *context = NULL;
    fake.unacked++;
    return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
    CHECK(cq == &fake.send_cq || cq == &fake.recv_cq || cq == &fake_rc.send_cq ||
          cq == &fake_rc.recv_cq);
    fake.unacked -= (int)n;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    CHECK(context == &fake.context);
    if (fake.async_count == 0) {
        errno = EAGAIN;
        return -1;
    }
    *event = fake.async[--fake.async_count];
    fake.unacked++;
    return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
    CHECK(event != NULL);
    fake.unacked--;
}

/* ---- the test's side */

void fake_hold_handles(bool hold)
{
    pthread_mutex_lock(&fake.mutex);
    fake.hold_handles = hold;
    pthread_cond_broadcast(&fake.changed);
    pthread_mutex_unlock(&fake.mutex);
}

void fake_say(enum ibv_event_type type, uint8_t port)
{
    struct ibv_async_event *event = &fake.async[fake.async_count++];
    *event = (struct ibv_async_event){.event_type = type};
    if (type == IBV_EVENT_QP_FATAL)
        event->element.qp = &fake.qp;
    else
        event->element.port_num = port;
}

bool fake_readable(int fd)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    return poll(&entry, 1, 5000) == 1;
}

uint64_t fake_counter(const char *name)
{
    uint64_t values[IPU_VERBS_COUNTERS_N];
    ipu_verbs_counters(fake_verbs, values);
    for (int i = 0; i < IPU_VERBS_COUNTERS_N; i++)
        if (strcmp(ipu_verbs_counter_names[i], name) == 0)
            return values[i];
    CHECK(!"such a counter");
    return 0;
}

struct ipu_dest fake_dest(uint8_t number)
{
    struct ipu_dest dest = {.qpn = number < 0x80 ? number : IPU_MULTICAST_QPN, .hop_limit = 64};
    const char *text = number < 0x80 ? "fe80::" : "ff12:401b:ffff::";
    CHECK(inet_pton(AF_INET6, text, &dest.gid) == 1);
    dest.gid.s6_addr[15] = number;
    return dest;
}

int fake_send(struct ipu_fabric *fabric, void *ah, uint64_t first, int n, uint32_t len)
{
    struct ipu_send sends[256];
    CHECK(n <= 256);
    for (int i = 0; i < n; i++)
        sends[i] = (struct ipu_send){
            .addr = frames, .len = len, .qpn = 5, .ah = ah, .cookie = first + (uint64_t)i};
    return fabric->ops->send(fabric->self, sends, n);
}

struct ipu_fabric *fake_open(bool resolves)
{
    fake = (struct fake){.refuse_send_after = -1, .refuse_recv_after = -1, .refuse_state = -1};
    fake_now_ns = 0;
    pthread_mutex_init(&fake.mutex, NULL);
    pthread_cond_init(&fake.changed, NULL);
    CHECK(pipe2(fake.channel_pipe, O_CLOEXEC) == 0);
    CHECK(pipe2(fake.async_pipe, O_CLOEXEC) == 0);
    fake.context = (struct ibv_context){.device = &fake.device,
                                        .async_fd = fake.async_pipe[0],
                                        .ops = {.poll_cq = poll_cq,
                                                .req_notify_cq = req_notify_cq,
                                                .post_send = post_send,
                                                .post_recv = post_recv,
                                                .post_srq_recv = fake_rc_post_srq_recv}};
    fake.pd.context = &fake.context;
    fake.channel = (struct ibv_comp_channel){.context = &fake.context, .fd = fake.channel_pipe[0]};
    fake.send_cq.context = fake.recv_cq.context = fake.qp.context = &fake.context;
    fake.send_cq.channel = fake.recv_cq.channel = &fake.channel;
    fake.qp.pd = &fake.pd;
    fake.qp.send_cq = &fake.send_cq;
    fake.qp.recv_cq = &fake.recv_cq;
    fake.qp.qp_num = 0x123456;
    fake.qp.qp_type = IBV_QPT_UD;
    struct ipu_verbs_config config = {.qp = &fake.qp,
                                      .gid = fake_dest(1).gid,
                                      .mtu = FAKE_MTU,
                                      .qkey = 0x0b1b,
                                      .max_ah = 1000,
                                      .pkey_index = 2,
                                      .port = 1,
                                      .sgid_index = 3,
                                      .resolves = resolves,
                                      .owns_events = true};
    CHECK_EQ(ipu_verbs_create(&config, &fake_verbs), 0);
    struct ipu_fabric *fabric = ipu_verbs_fabric(fake_verbs);
    CHECK_EQ(fabric->ops->memory(fabric->self, frames, sizeof frames), 0);
    return fabric;
}

void fake_close(void)
{
    ipu_verbs_destroy(fake_verbs);
    CHECK_EQ(fake.handles, 0);
    CHECK_EQ(fake.regions, 0);
    CHECK_EQ(fake.unacked, 0); /* ibv_destroy_cq() would wait for it for ever */
    for (int i = 0; i < 2; i++) {
        if (fake.channel_pipe[i] >= 0)
            close(fake.channel_pipe[i]);
        close(fake.async_pipe[i]);
    }
    pthread_cond_destroy(&fake.changed);
    pthread_mutex_destroy(&fake.mutex);
}
