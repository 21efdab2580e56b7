/* SPDX-License-Identifier: BSD-2-Clause
 *
 * multicast: one UD queue pair on port 1, GID index 0 of the first RDMA device.
 *
 *   multicast receive MGID   attach, print "ready", then one line for each datagram, until killed
 *   multicast send MGID TEXT send one datagram to the group
 *
 * Nothing here joins the group at the IP level: whether that is needed is what the test asks.
 */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 16, SLOT_BYTES = 256, GRH_BYTES = 40, QKEY = 0x0b1b, MLID = 0xc000 };

static char buffer[SLOTS][SLOT_BYTES];
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_pd *pd;
static struct ibv_qp *qp;

static void require(int ok, const char *what)
{
    if (ok)
        return;
    perror(what);
    exit(1);
}

static void open_qp(void)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);
    require(devices && devices[0], "ibv_get_device_list");
    struct ibv_context *context = ibv_open_device(devices[0]);
    require(context != NULL, "ibv_open_device");
    require((pd = ibv_alloc_pd(context)) != NULL, "ibv_alloc_pd");
    require((mr = ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE)) != NULL,
            "ibv_reg_mr");
    require((channel = ibv_create_comp_channel(context)) != NULL, "ibv_create_comp_channel");
    require((cq = ibv_create_cq(context, SLOTS, NULL, channel, 0)) != NULL, "ibv_create_cq");
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_recv_wr = SLOTS, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_UD};
    require((qp = ibv_create_qp(pd, &init)) != NULL, "ibv_create_qp");
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
    require(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
            "to INIT");
    attr.qp_state = IBV_QPS_RTR;
    require(!ibv_modify_qp(qp, &attr, IBV_QP_STATE), "to RTR");
    attr.qp_state = IBV_QPS_RTS;
    require(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), "to RTS");
    require(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
}

static void post_receive(uint64_t slot)
{
    struct ibv_sge sge = {(uintptr_t)buffer[slot], SLOT_BYTES, mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
    require(!ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
}

static void print_received(const struct ibv_wc *wc)
{
    char source[INET6_ADDRSTRLEN], group[INET6_ADDRSTRLEN];
    const char *slot = buffer[wc->wr_id];
    const struct ibv_grh *grh = (const struct ibv_grh *)slot;
    inet_ntop(AF_INET6, &grh->sgid, source, sizeof source);
    inet_ntop(AF_INET6, &grh->dgid, group, sizeof group);
    printf("datagram grh=%d slid=%u src_qp=%d source=%s group=%s next=%#x length=%u payload=%.*s\n",
           !!(wc->wc_flags & IBV_WC_GRH), wc->slid, wc->src_qp != 0, source, group, grh->next_hdr,
           ntohs(grh->paylen), (int)(wc->byte_len - GRH_BYTES), slot + GRH_BYTES);
}

static void receive(const union ibv_gid *group)
{
    for (uint64_t slot = 0; slot < SLOTS; slot++)
        post_receive(slot);
    require(!ibv_attach_mcast(qp, group, MLID), "ibv_attach_mcast");
    printf("ready\n");
    for (;;) {
        struct ibv_cq *ready;
        struct ibv_wc wc;
        void *unused;
        require(!ibv_get_cq_event(channel, &ready, &unused), "ibv_get_cq_event");
        ibv_ack_cq_events(ready, 1);
        require(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
        while (ibv_poll_cq(cq, 1, &wc) > 0) {
            require(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
            print_received(&wc);
            post_receive(wc.wr_id);
        }
    }
}

static void send_text(const union ibv_gid *group, const char *text)
{
    struct ibv_ah_attr to = {.is_global = 1,
                             .dlid = MLID,
                             .port_num = 1,
                             .grh = {.dgid = *group, .sgid_index = 0, .hop_limit = 1}};
    struct ibv_ah *ah = ibv_create_ah(pd, &to);
    require(ah != NULL, "ibv_create_ah");
    int length = snprintf(buffer[0], SLOT_BYTES, "%s", text);
    struct ibv_sge sge = {(uintptr_t)buffer[0], (uint32_t)length, mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.ud = {.ah = ah, .remote_qpn = 0xffffff, .remote_qkey = QKEY}},
                       *bad;
    require(!ibv_post_send(qp, &wr, &bad), "ibv_post_send");
    struct ibv_cq *ready;
    struct ibv_wc wc;
    void *unused;
    require(!ibv_get_cq_event(channel, &ready, &unused), "ibv_get_cq_event");
    ibv_ack_cq_events(ready, 1);
    require(ibv_poll_cq(cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "completion");
}

int main(int count, char **words)
{
    union ibv_gid group;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count < 3 || count > 4 || inet_pton(AF_INET6, words[2], &group) != 1) {
        fprintf(stderr, "usage: multicast receive MGID | send MGID TEXT\n");
        return 2;
    }
    open_qp();
    if (count == 3)
        receive(&group);
    else
        send_text(&group, words[3]);
    return 0;
}
