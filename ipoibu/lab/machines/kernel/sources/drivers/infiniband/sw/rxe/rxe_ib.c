// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * rxe_ib.c lets a rxe device look like an InfiniBand port, so that what wants
 * one, ib_ipoib above all, runs without InfiniBand hardware. Switched on by the
 * module parameter rdma_rxe.ib, for all devices; off by default. The wire stays
 * RoCEv2 over IPv6, in link-local addresses:
 *
 *   GID   there is one: fe80::/64 and the modified EUI-64 of the MAC, which is
 *	   the net device's own link-local address; so every GID is an address.
 *   LID   the low 15 bits of the GID. A peer is found by LID under our port's
 *	   upper 112 bits: the MACs of a fabric differ in their last 15 bits.
 *   SA    every port is its own subnet administrator (sm_lid is its lid) and
 *	   keeps nothing: all groups exist, and what a group or a path has follows
 *	   from the question, a group's Q_Key among it, or is the same for all.
 *	   The hop limit makes every path carry a GRH. There are no reports and no
 *	   tables.
 *
 * With rdma_rxe.sm, too, a subnet manager on the wire has its say (rxe_sma.c):
 *
 *   port  it begins in the state INIT, and has no LID.
 *   LID   what is routed by LID alone goes to the IPv6 group ff12::4c49:4400:LID,
 *	   which the port of that LID joins. So there is no neighbour discovery,
 *	   and a LID moves by a leave and a join. Every port is in the group of
 *	   the permissive LID, 0xffff, too, for directed routes. The source LID
 *	   is the UDP source port, which RoCEv2 leaves to the sender.
 *   QP0   carries datagrams. The SA is where sm_lid is.
 */

#include <linux/jhash.h>
#include <linux/module.h>
#include <linux/rtnetlink.h>
#include <net/addrconf.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_hdrs.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_sa.h>

#include "rxe.h"
#include "rxe_loc.h"

#define SA_QKEY		0x0b1b
#define SA_HOP_LIMIT	64
#define SA_RATE		IB_RATE_10_GBPS	/* what 4X SDR carries */
#define SA_LIFE_TIME	18		/* 4.096 us << 18, about a second */
#define SA_EXACTLY	(IB_SA_EQ << 6)	/* the selector in front of a value */

static bool ib_mode;
module_param_named(ib, ib_mode, bool, 0444);
MODULE_PARM_DESC(ib, "look like InfiniBand ports");

static bool sm_mode;
module_param_named(sm, sm_mode, bool, 0444);
MODULE_PARM_DESC(sm, "let a subnet manager configure InfiniBand ports");

static ushort pkey_table[RXE_IB_PKEY_TBL_LEN] = { IB_DEFAULT_PKEY_FULL };
static int pkey_count;
module_param_array_named(pkeys, pkey_table, ushort, &pkey_count, 0444);
MODULE_PARM_DESC(pkeys, "P_Key table of InfiniBand ports; default: 0xffff");

static struct workqueue_struct *mcast_wq;

int rxe_ib_module_init(void)
{
	/* ordered: a leave must not overtake its join */
	mcast_wq = alloc_ordered_workqueue("rxe_ib_mcast", 0);
	return mcast_wq ? 0 : -ENOMEM;
}

void rxe_ib_module_exit(void)
{
	destroy_workqueue(mcast_wq);
}

/* ---- addresses ---- */

static void own_gid(struct rxe_dev *rxe, union ib_gid *gid)
{
	gid->global.subnet_prefix = rxe->port.subnet_prefix;
	gid->global.interface_id = rxe->port.port_guid;
}

bool rxe_ib_is_own_gid(struct rxe_dev *rxe, const union ib_gid *gid)
{
	union ib_gid own;

	own_gid(rxe, &own);
	return !memcmp(&own, gid, sizeof(own));
}

u16 rxe_ib_lid(const void *gid)
{
	return get_unaligned_be16(gid + 14) & 0x7fff;
}

static void lid_to_gid(struct rxe_dev *rxe, u16 lid, union ib_gid *gid)
{
	own_gid(rxe, gid);
	put_unaligned_be16(lid, gid->raw + 14);
}

static bool is_neighbour(struct rxe_dev *rxe, const union ib_gid *gid)
{
	union ib_gid same;

	lid_to_gid(rxe, rxe_ib_lid(gid), &same);
	return rxe_ib_lid(gid) && !memcmp(&same, gid, sizeof(same));
}

#define LID_GROUP	htonl(0x4c494400)	/* "LID" */

void rxe_ib_lid_group(u16 lid, union ib_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	gid->raw[0] = 0xff;
	gid->raw[1] = 0x12;
	memcpy(gid->raw + 10, &(__be32){ LID_GROUP }, 4);
	put_unaligned_be16(lid, gid->raw + 14);
}

static bool is_lid_group(const void *gid)
{
	union ib_gid group;

	rxe_ib_lid_group(get_unaligned_be16(gid + 14), &group);
	return !memcmp(&group, gid, sizeof(group));
}

/* the LID of an address handle without GRH; 0 if it has one */
u16 rxe_ib_av_lid(const struct rxe_av *av)
{
	return is_lid_group(&av->grh.dgid) ?
	       get_unaligned_be16(av->grh.dgid.raw + 14) : 0;
}

bool rxe_ib_has_grh(struct rxe_pkt_info *pkt)
{
	struct sk_buff *skb = PKT_TO_SKB(pkt);

	return skb->protocol != htons(ETH_P_IPV6) ||
	       !is_lid_group(&ipv6_hdr(skb)->daddr);
}

/* The GRH that the RoCEv2 packet's IPv6 header stands for (IBA 8.3). */
void rxe_ib_grh(struct rxe_pkt_info *pkt, struct ib_grh *grh)
{
	const struct ipv6hdr *ip = ipv6_hdr(PKT_TO_SKB(pkt));

	memcpy(grh, ip, sizeof(*grh));
	grh->next_hdr = IB_GRH_NEXT_HDR;
	grh->paylen = cpu_to_be16(ntohs(ip->payload_len) -
				  sizeof(struct udphdr));
}

u16 rxe_ib_slid(struct rxe_pkt_info *pkt)
{
	struct sk_buff *skb = PKT_TO_SKB(pkt);

	if (skb->protocol != htons(ETH_P_IPV6))
		return 0;

	if (pkt->rxe->sm) {
		u16 lid = ntohs(((struct udphdr *)pkt->hdr - 1)->source);

		/* a RoCE port has no LID, and another source port */
		if (lid < be16_to_cpu(IB_MULTICAST_LID_BASE) ||
		    lid == RXE_IB_LID_PERMISSIVE)
			return lid;
	}
	return rxe_ib_lid(&ipv6_hdr(skb)->saddr);
}

/* the UDP source port */
u16 rxe_ib_src_port(struct rxe_qp *qp, const struct rxe_av *av)
{
	struct rxe_dev *rxe = to_rdev(qp->ibqp.device);

	if (!rxe->sm)
		return qp->src_port;
	return rxe_ib_av_lid(av) == RXE_IB_LID_PERMISSIVE ?
	       RXE_IB_LID_PERMISSIVE : rxe->port.attr.lid;
}

/* What a port sends to those that are one hop away IPv6 gives back to it, too. */
bool rxe_ib_is_for_qp0(struct rxe_dev *rxe, struct sk_buff *skb)
{
	const struct ipv6hdr *ip = ipv6_hdr(skb);

	return rxe->sm && skb->protocol == htons(ETH_P_IPV6) &&
	       is_lid_group(&ip->daddr) &&
	       (get_unaligned_be16(ip->daddr.s6_addr + 14) !=
			RXE_IB_LID_PERMISSIVE ||
		!rxe_ib_is_own_gid(rxe, (const union ib_gid *)&ip->saddr));
}

/* Whether a packet comes from the peer of a connected queue pair, by LID. */
bool rxe_ib_is_peer(struct rxe_qp *qp, struct rxe_pkt_info *pkt)
{
	u16 lid = pkt->rxe->sm ? rxe_ib_av_lid(&qp->pri_av) : 0;

	return lid && !rxe_ib_has_grh(pkt) && rxe_ib_slid(pkt) == lid;
}

void rxe_ib_init_av(struct rxe_dev *rxe, struct rdma_ah_attr *attr,
		    struct rxe_av *av)
{
	const struct ib_global_route *grh = rdma_ah_read_grh(attr);
	union ib_gid sgid, dgid;

	memset(av, 0, sizeof(*av));
	av->port_num = rdma_ah_get_port_num(attr);
	av->network_type = RXE_NETWORK_TYPE_IPV6;
	av->grh.hop_limit = SA_HOP_LIMIT;

	if (rdma_ah_get_ah_flags(attr) & IB_AH_GRH) {
		dgid = grh->dgid;
		av->grh.flow_label = grh->flow_label;
		av->grh.traffic_class = grh->traffic_class;
		if (grh->hop_limit)
			av->grh.hop_limit = grh->hop_limit;
	} else if (rxe->sm) {
		rxe_ib_lid_group(rdma_ah_get_dlid(attr), &dgid);
	} else {
		lid_to_gid(rxe, rdma_ah_get_dlid(attr), &dgid);
	}

	memcpy(av->grh.dgid.raw, dgid.raw, sizeof(dgid));
	own_gid(rxe, &sgid);
	rdma_gid2ip((struct sockaddr *)&av->sgid_addr, &sgid);
	rdma_gid2ip((struct sockaddr *)&av->dgid_addr, &dgid);

	/* rxe_prepare() knows by it what to loop back */
	if (rxe_ib_is_own_gid(rxe, &dgid))
		memcpy(av->dmac, rxe->ib_ndev->dev_addr, ETH_ALEN);
}

/* ---- partitions; an Ethernet port gets here too, with a table of one ---- */

static u16 qp_pkey_index(struct rxe_qp *qp, u16 index)
{
	return index < to_rdev(qp->ibqp.device)->port.attr.pkey_tbl_len ?
	       index : 0;
}

u16 rxe_ib_pkey(struct rxe_qp *qp, const struct rxe_send_wr *wr)
{
	struct rxe_port *port = &to_rdev(qp->ibqp.device)->port;
	u16 index = qp_type(qp) == IB_QPT_GSI && wr ? wr->wr.ud.pkey_index :
						      qp->attr.pkey_index;

	return port->pkeys[qp_pkey_index(qp, index)];
}

static bool find_pkey(struct rxe_port *port, u16 pkey, u16 *index)
{
	for (*index = 0; *index < port->attr.pkey_tbl_len; ++*index)
		if (pkey_match(pkey, port->pkeys[*index]))
			return true;
	return false;
}

bool rxe_ib_pkey_index(struct rxe_qp *qp, u16 pkey, u16 *index)
{
	struct rxe_port *port = &to_rdev(qp->ibqp.device)->port;

	if (qp_type(qp) == IB_QPT_SMI) {
		*index = 0;
		return true;
	}
	if (qp_type(qp) == IB_QPT_GSI)
		return find_pkey(port, pkey, index);

	*index = qp_pkey_index(qp, qp->attr.pkey_index);
	return pkey_match(pkey, port->pkeys[*index]);
}

/* ---- multicast ---- */

struct mcast_work {
	struct work_struct	work;
	struct net_device	*ndev;
	netdevice_tracker	tracker;
	struct in6_addr		group;
	bool			join;
};

static void mcast_work(struct work_struct *work)
{
	struct mcast_work *mw = container_of(work, struct mcast_work, work);

	rtnl_lock();
	if (mw->join)
		ipv6_dev_mc_inc(mw->ndev, &mw->group);
	else
		ipv6_dev_mc_dec(mw->ndev, &mw->group);
	rtnl_unlock();
	netdev_put(mw->ndev, &mw->tracker);
	kfree(mw);
}

/*
 * The IPv6 stack hands us only what the net device has joined. Joining needs
 * RTNL, and ib_ipoib waits for its detach while it holds it: so it is done
 * later. Until then the group's datagrams are lost, as on any fabric whose
 * switches are still being told.
 */
int rxe_ib_mcast(struct rxe_dev *rxe, const union ib_gid *mgid, bool join)
{
	struct mcast_work *mw = kzalloc(sizeof(*mw), GFP_ATOMIC);

	if (!mw)
		return -ENOMEM;

	INIT_WORK(&mw->work, mcast_work);
	mw->ndev = rxe->ib_ndev;
	netdev_hold(mw->ndev, &mw->tracker, GFP_ATOMIC);
	memcpy(&mw->group, mgid->raw, sizeof(mw->group));
	mw->join = join;
	queue_work(mcast_wq, &mw->work);
	return 0;
}

/* ---- events ---- */

/*
 * A queue pair on a shared receive queue is in the error state and will take no
 * more from it. Connected mode waits for this before it frees a connection.
 */
void rxe_ib_last_wqe(struct rxe_qp *qp)
{
	struct ib_event event = {
		.device = qp->ibqp.device,
		.element.qp = &qp->ibqp,
		.event = IB_EVENT_QP_LAST_WQE_REACHED,
	};

	if (!to_rdev(qp->ibqp.device)->ib || qp->resp.last_wqe_told)
		return;

	qp->resp.last_wqe_told = true;
	if (qp->ibqp.event_handler)
		qp->ibqp.event_handler(&event, qp->ibqp.qp_context);
}

/* ---- the subnet administrator: records as on the wire ---- */

#define SA_OK			cpu_to_be16(0)
#define SA_BAD_ATTRIBUTE	cpu_to_be16(0x000c)
#define SA_INVALID		cpu_to_be16(0x0200)
#define SA_NO_RECORDS		cpu_to_be16(0x0300)
#define SA_INVALID_GID		cpu_to_be16(0x0500)

struct mcmember {
	union ib_gid	mgid;
	union ib_gid	port_gid;
	__be32		qkey;
	__be16		mlid;
	u8		mtu;		/* selector 2, mtu 6 */
	u8		tclass;
	__be16		pkey;
	u8		rate;		/* selector 2, rate 6 */
	u8		life_time;	/* selector 2, life time 6 */
	__be32		route;		/* SL 4, flow label 20, hop limit 8 */
	u8		scope_join;	/* scope 4, join state 4 */
	u8		proxy;
	__be16		reserved;
} __packed;

struct path_record {
	__be64		service_id;
	union ib_gid	dgid;
	union ib_gid	sgid;
	__be16		dlid;
	__be16		slid;
	__be32		route;		/* raw 1, 3, flow label 20, hop limit 8 */
	u8		tclass;
	u8		numb_path;	/* reversible 1, number of paths 7 */
	__be16		pkey;
	__be16		sl;
	u8		mtu;
	u8		rate;
	u8		life_time;
	u8		preference;
	u8		reserved[6];
} __packed;

/* Whether the port is in the partition; the key becomes the port's own. */
static bool own_pkey(struct rxe_dev *rxe, __be16 *pkey)
{
	struct rxe_port *port = &rxe->port;
	u16 index;

	if (!find_pkey(port, be16_to_cpu(*pkey), &index))
		return false;
	*pkey = cpu_to_be16(port->pkeys[index]);
	return true;
}

static __be16 sa_class_port_info(struct ib_sa_mad *sa)
{
	struct ib_class_port_info *info = (void *)sa->data;

	memset(info, 0, sizeof(*info));
	info->base_version = IB_MGMT_BASE_VERSION;
	info->class_version = IB_SA_CLASS_VERSION;
	ib_set_cpi_resp_time(info, SA_LIFE_TIME);
	ib_set_cpi_capmask2(info, IB_SA_CAP_MASK2_SENDONLY_FULL_MEM_SUPPORT);
	return SA_OK;
}

static __be16 sa_mcmember(struct rxe_dev *rxe, struct ib_sa_mad *sa)
{
	struct mcmember *member = (void *)sa->data;
	ib_sa_comp_mask mask = sa->sa_hdr.comp_mask;
	u8 mtu = SA_EXACTLY | rxe->port.attr.active_mtu;
	u32 asked = (mask & IB_SA_MCMEMBER_REC_SL ? 0xf0000000 : 0) |
		    (mask & IB_SA_MCMEMBER_REC_FLOW_LABEL ? 0x0fffff00 : 0) |
		    (mask & IB_SA_MCMEMBER_REC_HOP_LIMIT ? 0x000000ff : 0);

	if (!(mask & IB_SA_MCMEMBER_REC_MGID) || member->mgid.raw[0] != 0xff)
		return SA_INVALID_GID;

	/* the partition of an IPoIB group is part of its name */
	if (!(mask & IB_SA_MCMEMBER_REC_PKEY))
		memcpy(&member->pkey, &member->mgid.raw[4], 2);
	member->pkey |= cpu_to_be16(0x8000); /* limited members may join */
	if (!own_pkey(rxe, &member->pkey))
		return SA_INVALID;
	member->pkey |= cpu_to_be16(0x8000); /* the group's, not the port's */

	if (mask & IB_SA_MCMEMBER_REC_MTU_SELECTOR &&
	    mask & IB_SA_MCMEMBER_REC_MTU &&
	    member->mtu >> 6 == IB_SA_EQ && member->mtu != mtu)
		return SA_INVALID;

	if (!(mask & IB_SA_MCMEMBER_REC_PORT_GID))
		own_gid(rxe, &member->port_gid);
	if (!(mask & IB_SA_MCMEMBER_REC_JOIN_STATE))
		member->scope_join &= 0xf0;
	member->scope_join &= 0x0f;
	member->scope_join |= member->mgid.raw[1] << 4;
	if (!(mask & IB_SA_MCMEMBER_REC_QKEY)) /* rdma_cm has its own */
		member->qkey = cpu_to_be32(SA_QKEY);
	member->mlid = cpu_to_be16(be16_to_cpu(IB_MULTICAST_LID_BASE) |
				   (jhash(&member->mgid, 16, 0) & 0x3ff));
	member->mtu = mtu;
	if (!(mask & IB_SA_MCMEMBER_REC_TRAFFIC_CLASS))
		member->tclass = 0;
	member->rate = SA_EXACTLY | SA_RATE;
	member->life_time = SA_EXACTLY | SA_LIFE_TIME;
	member->route &= cpu_to_be32(asked);
	member->route |= cpu_to_be32(SA_HOP_LIMIT & ~asked);
	return SA_OK;
}

static __be16 sa_path(struct rxe_dev *rxe, struct ib_sa_mad *sa)
{
	struct path_record *path = (void *)sa->data;
	ib_sa_comp_mask mask = sa->sa_hdr.comp_mask;

	if (!(mask & IB_SA_PATH_REC_DGID)) {
		if (!(mask & IB_SA_PATH_REC_DLID))
			return SA_INVALID;
		lid_to_gid(rxe, be16_to_cpu(path->dlid), &path->dgid);
	}
	if (mask & IB_SA_PATH_REC_SGID && !rxe_ib_is_own_gid(rxe, &path->sgid))
		return SA_INVALID_GID;
	own_gid(rxe, &path->sgid);

	if (!(mask & IB_SA_PATH_REC_PKEY))
		path->pkey = cpu_to_be16(rxe->port.pkeys[0]);
	if (!is_neighbour(rxe, &path->dgid) || !own_pkey(rxe, &path->pkey))
		return SA_NO_RECORDS;

	path->dlid = cpu_to_be16(rxe_ib_lid(&path->dgid));
	path->slid = cpu_to_be16(rxe->port.attr.lid);
	path->route = cpu_to_be32(SA_HOP_LIMIT);
	path->tclass = 0;
	path->numb_path = 0x80 | 1;
	path->sl = 0;
	path->mtu = SA_EXACTLY | rxe->port.attr.active_mtu;
	path->rate = SA_EXACTLY | SA_RATE;
	path->life_time = SA_EXACTLY | SA_LIFE_TIME;
	path->preference = 0;
	return SA_OK;
}

static __be16 sa_answer(struct rxe_dev *rxe, struct ib_sa_mad *sa)
{
	u8 method = sa->mad_hdr.method;

	switch (be16_to_cpu(sa->mad_hdr.attr_id)) {
	case IB_SA_ATTR_CLASS_PORTINFO:
		if (method == IB_MGMT_METHOD_GET)
			return sa_class_port_info(sa);
		break;
	case IB_SA_ATTR_MC_MEMBER_REC:
		if (method != IB_SA_METHOD_GET_TABLE)
			return sa_mcmember(rxe, sa);
		break;
	case IB_SA_ATTR_PATH_REC:
		if (method == IB_MGMT_METHOD_GET)
			return sa_path(rxe, sa);
		break;
	}
	return SA_BAD_ATTRIBUTE;
}

static bool sa_reply(struct rxe_dev *rxe, const struct ib_mad *in,
		     struct ib_mad *out)
{
	struct ib_sa_mad *sa = (struct ib_sa_mad *)out;

	if (rxe->sm || in->mad_hdr.class_version != IB_SA_CLASS_VERSION)
		return false;

	switch (in->mad_hdr.method) {
	case IB_MGMT_METHOD_GET:
	case IB_MGMT_METHOD_SET:
	case IB_SA_METHOD_GET_TABLE:
	case IB_SA_METHOD_DELETE:
		break;
	default:
		return false;
	}

	memcpy(out, in, sizeof(*in));
	sa->mad_hdr.status = sa_answer(rxe, sa);
	sa->mad_hdr.method = in->mad_hdr.method == IB_MGMT_METHOD_SET ?
			     IB_MGMT_METHOD_GET_RESP :
			     in->mad_hdr.method | IB_MGMT_METHOD_RESP;
	return true;
}

static int rxe_ib_process_mad(struct ib_device *device, int flags, u32 port_num,
			      const struct ib_wc *wc, const struct ib_grh *grh,
			      const struct ib_mad *in, struct ib_mad *out,
			      size_t *out_size, u16 *out_pkey_index)
{
	struct rxe_dev *rxe = to_rdev(device);
	bool replies = false;

	switch (in->mad_hdr.mgmt_class) {
	case IB_MGMT_CLASS_SUBN_LID_ROUTED:
	case IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE:
		replies = rxe_ib_smp_reply(rxe, in, out);
		break;
	case IB_MGMT_CLASS_SUBN_ADM:
		replies = sa_reply(rxe, in, out);
		break;
	case IB_MGMT_CLASS_PERF_MGMT:
		replies = rxe_ib_perf_reply(rxe, in, out);
		break;
	}
	if (!replies)
		return IB_MAD_RESULT_SUCCESS; /* somebody else's */

	*out_size = sizeof(*out);
	*out_pkey_index = wc ? wc->pkey_index : 0;
	return IB_MAD_RESULT_SUCCESS | IB_MAD_RESULT_REPLY;
}

/* ---- the port ---- */

static int rxe_ib_query_gid(struct ib_device *device, u32 port_num, int index,
			    union ib_gid *gid)
{
	if (index)
		return -EINVAL;

	own_gid(to_rdev(device), gid);
	return 0;
}

static const struct ib_device_ops rxe_ib_ops = {
	.process_mad = rxe_ib_process_mad,
	.query_gid = rxe_ib_query_gid,
};

void rxe_ib_set_ops(struct rxe_dev *rxe)
{
	struct ib_device *dev = &rxe->ib_dev;

	/* ethtool on an ib_ipoib interface takes it for granted */
	dev->dev.parent = rxe->ib_ndev->dev.parent ?: &rxe->ib_ndev->dev;
	ib_set_device_ops(dev, &rxe_ib_ops);
}

void rxe_ib_init(struct rxe_dev *rxe, struct net_device *ndev)
{
	struct ib_port_attr *attr = &rxe->port.attr;
	union ib_gid gid;

	rxe->ib = ib_mode;
	rxe->sm = ib_mode && sm_mode;
	rxe->ib_ndev = ndev;
	if (!rxe->ib)
		return;

	own_gid(rxe, &gid);
	attr->lid = rxe->sm ? 0 : rxe_ib_lid(&gid);
	attr->sm_lid = attr->lid;
	attr->gid_tbl_len = 1;
	attr->pkey_tbl_len = RXE_IB_PKEY_TBL_LEN;
	attr->active_width = IB_WIDTH_4X;
	attr->active_speed = IB_SPEED_SDR;
	attr->subnet_timeout = SA_LIFE_TIME;
	if (rxe->sm)
		attr->port_cap_flags |= IB_PORT_CLIENT_REG_SUP |
					IB_PORT_SYS_IMAGE_GUID_SUP;
	memcpy(rxe->port.pkeys, pkey_table, sizeof(pkey_table));
}
