// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * rxe_sma.c: the management agents of a rxe device that looks like an InfiniBand
 * port (rxe_ib.c).
 *
 *   SMA   with rdma_rxe.sm the port answers a subnet manager: NodeDescription,
 *	   NodeInfo, GUIDInfo, PortInfo, PKeyTable. What is for a manager itself
 *	   (SMInfo, traps) is left to user space. M_Keys are kept, not checked.
 *   PMA   PortCounters and PortCountersExtended count what passes the net device.
 */

#include <rdma/ib_mad.h>
#include <rdma/ib_pma.h>
#include <rdma/ib_smi.h>

#include "rxe.h"
#include "rxe_loc.h"

#define MAD_OK			cpu_to_be16(0)
#define MAD_BAD_ATTRIBUTE	cpu_to_be16(0x000c)
#define MAD_BAD_VALUE		cpu_to_be16(0x001c)

#define PKEYS_PER_BLOCK		32
#define RESPONSE_TIME		18	/* 4.096 us << 18, about a second */

/* ---- the port ---- */

static void event(struct rxe_dev *rxe, enum ib_event_type type)
{
	struct ib_event event = {
		.device = &rxe->ib_dev,
		.element.port_num = 1,
		.event = type,
	};

	ib_dispatch_event(&event);
}

static void join_lid(struct rxe_dev *rxe, u16 lid, bool join)
{
	union ib_gid group;

	rxe_ib_lid_group(lid, &group);
	if (rxe_ib_mcast(rxe, &group, join))
		dev_err(&rxe->ib_dev.dev, "LID %#x: out of memory\n", lid);
}

static void set_lid(struct rxe_dev *rxe, u16 lid)
{
	struct ib_port_attr *attr = &rxe->port.attr;

	if (attr->lid)
		join_lid(rxe, attr->lid, false);
	attr->lid = lid;
	join_lid(rxe, lid, true);
}

/* The link is up; the subnet manager does the rest. */
void rxe_ib_link_up(struct rxe_dev *rxe)
{
	if (rxe->port.attr.state == IB_PORT_DOWN)
		rxe->port.attr.state = IB_PORT_INIT;
	if (!rxe->linked) {
		rxe->linked = true;
		dev_hold(rxe->ib_ndev); /* until rxe_ib_dealloc() */
		join_lid(rxe, RXE_IB_LID_PERMISSIVE, true);
	}
}

void rxe_ib_dealloc(struct rxe_dev *rxe)
{
	if (!rxe->linked)
		return;

	if (rxe->port.attr.lid)
		join_lid(rxe, rxe->port.attr.lid, false);
	join_lid(rxe, RXE_IB_LID_PERMISSIVE, false);
	dev_put(rxe->ib_ndev);
}

/* ---- the subnet manager's questions ---- */

/* A local SMP is answered in its sender's context, others in a work item. */
static DEFINE_MUTEX(smp_lock);

static bool is_lid(u16 lid)
{
	return lid && lid < be16_to_cpu(IB_MULTICAST_LID_BASE);
}

static __be16 node_desc(struct rxe_dev *rxe, struct ib_smp *smp)
{
	memcpy(smp->data, rxe->ib_dev.node_desc,
	       min(sizeof(smp->data), sizeof(rxe->ib_dev.node_desc)));
	return MAD_OK;
}

static __be16 node_info(struct rxe_dev *rxe, struct ib_smp *smp)
{
	struct ib_node_info *info = (void *)smp->data;

	info->base_version = IB_MGMT_BASE_VERSION;
	info->class_version = 1;
	info->node_type = RDMA_NODE_IB_CA;
	info->num_ports = 1;
	info->sys_guid = rxe->port.port_guid;
	info->node_guid = rxe->port.port_guid;
	info->port_guid = rxe->port.port_guid;
	info->partition_cap = cpu_to_be16(RXE_IB_PKEY_TBL_LEN);
	info->local_port_num = 1;
	return MAD_OK;
}

static __be16 guid_info(struct rxe_dev *rxe, struct ib_smp *smp)
{
	if (smp->attr_mod)
		return MAD_BAD_VALUE;
	memcpy(smp->data, &rxe->port.port_guid, sizeof(rxe->port.port_guid));
	return MAD_OK;
}

static __be16 set_port_info(struct rxe_dev *rxe, const struct ib_port_info *set)
{
	struct ib_port_attr *attr = &rxe->port.attr;
	u16 lid = be16_to_cpu(set->lid), sm_lid = be16_to_cpu(set->sm_lid);
	u8 state = set->linkspeed_portstate & 0xf;
	u8 mtu = set->neighbormtu_mastersmsl >> 4;
	bool lid_changes = lid != attr->lid;
	bool sm_changes = sm_lid != attr->sm_lid;

	if (!is_lid(lid) || !is_lid(sm_lid) || state > IB_PORT_ACTIVE ||
	    (state > IB_PORT_DOWN && (attr->state == IB_PORT_DOWN ||
				      state > attr->state + 1)) ||
	    mtu > ib_mtu_int_to_enum(rxe->port.mtu_cap))
		return MAD_BAD_VALUE;

	rxe->port.info = *set;
	if (lid_changes)
		set_lid(rxe, lid);
	attr->sm_lid = sm_lid;
	attr->sm_sl = set->neighbormtu_mastersmsl & 0xf;
	attr->subnet_timeout = set->clientrereg_resv_subnetto & 0x1f;
	if (mtu)
		attr->active_mtu = mtu;
	if (state == IB_PORT_DOWN && attr->state != IB_PORT_DOWN) {
		attr->state = IB_PORT_INIT; /* the link is trained anew */
		event(rxe, IB_EVENT_PORT_ERR);
	} else if (state > attr->state) {
		attr->state = state;
		if (state == IB_PORT_ACTIVE)
			event(rxe, IB_EVENT_PORT_ACTIVE);
	}
	if (lid_changes)
		event(rxe, IB_EVENT_LID_CHANGE);
	if (sm_changes)
		event(rxe, IB_EVENT_SM_CHANGE);
	if (set->clientrereg_resv_subnetto & 0x80)
		event(rxe, IB_EVENT_CLIENT_REREGISTER);
	return MAD_OK;
}

/* `set` is NULL, or what the subnet manager wants. */
static __be16 port_info(struct rxe_dev *rxe, struct ib_smp *smp,
			const struct ib_port_info *set)
{
	struct ib_port_info *info = (void *)smp->data;
	struct ib_port_attr *attr = &rxe->port.attr;
	u8 mtu = ib_mtu_int_to_enum(rxe->port.mtu_cap);
	u8 linked = attr->state == IB_PORT_DOWN ? IB_PORT_PHYS_STATE_POLLING :
						  IB_PORT_PHYS_STATE_LINK_UP;
	__be16 status = MAD_OK;

	if (be32_to_cpu(smp->attr_mod) > 1)
		return MAD_BAD_VALUE;
	if (set)
		status = set_port_info(rxe, set);

	*info = rxe->port.info;
	info->gid_prefix = rxe->port.subnet_prefix;
	info->lid = cpu_to_be16(attr->lid);
	info->sm_lid = cpu_to_be16(attr->sm_lid);
	info->cap_mask = cpu_to_be32(attr->port_cap_flags);
	info->diag_code = 0;
	info->local_port_num = 1;
	info->link_width_enabled = IB_WIDTH_1X | IB_WIDTH_4X;
	info->link_width_supported = IB_WIDTH_1X | IB_WIDTH_4X;
	info->link_width_active = IB_WIDTH_4X;
	info->linkspeed_portstate = IB_SPEED_SDR << 4 | attr->state;
	info->portphysstate_linkdown = linked << 4 | IB_PORT_PHYS_STATE_POLLING;
	info->mkeyprot_resv_lmc &= 0xc0;
	info->linkspeedactive_enabled = IB_SPEED_SDR << 4 | IB_SPEED_SDR;
	info->neighbormtu_mastersmsl = attr->active_mtu << 4 | attr->sm_sl;
	info->vlcap_inittype = 1 << 4; /* VL0 */
	info->vl_arb_high_cap = 0;
	info->vl_arb_low_cap = 0;
	info->inittypereply_mtucap = mtu;
	info->operationalvl_pei_peo_fpi_fpo = 1 << 4;
	info->mkey_violations = 0;
	info->pkey_violations = cpu_to_be16(attr->bad_pkey_cntr);
	info->qkey_violations = cpu_to_be16(attr->qkey_viol_cntr);
	info->guid_cap = 1;
	info->clientrereg_resv_subnetto = attr->subnet_timeout |
		(set ? set->clientrereg_resv_subnetto & 0x80 : 0);
	info->resv_resptimevalue = RESPONSE_TIME;
	return status;
}

static __be16 pkey_table(struct rxe_dev *rxe, struct ib_smp *smp,
			 const __be16 *set)
{
	__be16 *keys = (void *)smp->data;
	u16 table[RXE_IB_PKEY_TBL_LEN];
	bool changes = false;
	int i;

	BUILD_BUG_ON(RXE_IB_PKEY_TBL_LEN > PKEYS_PER_BLOCK);
	if (be32_to_cpu(smp->attr_mod) & 0xffff)
		return MAD_BAD_VALUE;

	for (i = 0; set && i < RXE_IB_PKEY_TBL_LEN; i++) {
		table[i] = be16_to_cpu(set[i]);
		changes |= table[i] != rxe->port.pkeys[i];
	}
	if (changes) {
		memcpy(rxe->port.pkeys, table, sizeof(table));
		event(rxe, IB_EVENT_PKEY_CHANGE);
	}
	for (i = 0; i < RXE_IB_PKEY_TBL_LEN; i++)
		keys[i] = cpu_to_be16(rxe->port.pkeys[i]);
	return MAD_OK;
}

bool rxe_ib_smp_reply(struct rxe_dev *rxe, const struct ib_mad *in,
		      struct ib_mad *out)
{
	const struct ib_smp *request = (const void *)in;
	const void *set = in->mad_hdr.method == IB_MGMT_METHOD_SET ?
			  request->data : NULL;
	struct ib_smp *smp = (void *)out;

	if (!rxe->sm || request->class_version != 1 ||
	    (!set && request->method != IB_MGMT_METHOD_GET) ||
	    request->attr_id == IB_SMP_ATTR_SM_INFO)
		return false;

	memcpy(smp, request, sizeof(*smp));
	memset(smp->data, 0, sizeof(smp->data));
	mutex_lock(&smp_lock);
	switch (smp->attr_id) {
	case IB_SMP_ATTR_NODE_DESC:
		smp->status = node_desc(rxe, smp);
		break;
	case IB_SMP_ATTR_NODE_INFO:
		smp->status = node_info(rxe, smp);
		break;
	case IB_SMP_ATTR_GUID_INFO:
		smp->status = guid_info(rxe, smp);
		break;
	case IB_SMP_ATTR_PORT_INFO:
		smp->status = port_info(rxe, smp, set);
		break;
	case IB_SMP_ATTR_PKEY_TABLE:
		smp->status = pkey_table(rxe, smp, set);
		break;
	default:
		smp->status = MAD_BAD_ATTRIBUTE;
	}
	mutex_unlock(&smp_lock);
	smp->method = IB_MGMT_METHOD_GET_RESP;
	if (smp->mgmt_class == IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE)
		smp->status |= IB_SMP_DIRECTION;
	return true;
}

/* ---- counters ---- */

#define TRAFFIC_SELECTED	cpu_to_be16(0xf000)

static void count(struct rxe_dev *rxe, struct rxe_ib_traffic *now)
{
	struct rtnl_link_stats64 stats;

	dev_get_stats(rxe->ib_ndev, &stats);
	now->xmit_data = stats.tx_bytes / 4;
	now->rcv_data = stats.rx_bytes / 4;
	now->xmit_packets = stats.tx_packets;
	now->rcv_packets = stats.rx_packets;
}

static __be32 saturate(u64 value)
{
	return cpu_to_be32(min_t(u64, value, U32_MAX));
}

static void port_counters(struct rxe_dev *rxe, u8 *data, bool reset)
{
	struct ib_pma_portcounters *out = (void *)data;
	struct rxe_ib_traffic *base = &rxe->port.counted_32, now;

	count(rxe, &now);
	if (reset && out->counter_select & TRAFFIC_SELECTED)
		*base = now;
	out->port_xmit_data = saturate(now.xmit_data - base->xmit_data);
	out->port_rcv_data = saturate(now.rcv_data - base->rcv_data);
	out->port_xmit_packets = saturate(now.xmit_packets - base->xmit_packets);
	out->port_rcv_packets = saturate(now.rcv_packets - base->rcv_packets);
}

static void port_counters_ext(struct rxe_dev *rxe, u8 *data, bool reset)
{
	struct ib_pma_portcounters_ext *out = (void *)data;
	struct rxe_ib_traffic *base = &rxe->port.counted_64, now;

	count(rxe, &now);
	if (reset && out->counter_select)
		*base = now;
	out->port_xmit_data = cpu_to_be64(now.xmit_data - base->xmit_data);
	out->port_rcv_data = cpu_to_be64(now.rcv_data - base->rcv_data);
	out->port_xmit_packets = cpu_to_be64(now.xmit_packets - base->xmit_packets);
	out->port_rcv_packets = cpu_to_be64(now.rcv_packets - base->rcv_packets);
}

static void class_port_info(u8 *data)
{
	struct ib_class_port_info *info = (void *)data;

	info->base_version = IB_MGMT_BASE_VERSION;
	info->class_version = 1;
	info->capability_mask = IB_PMA_CLASS_CAP_EXT_WIDTH_NOIETF;
	ib_set_cpi_resp_time(info, RESPONSE_TIME);
}

bool rxe_ib_perf_reply(struct rxe_dev *rxe, const struct ib_mad *in,
		       struct ib_mad *out)
{
	const struct ib_pma_mad *request = (const void *)in;
	struct ib_pma_mad *pma = (void *)out;
	bool reset = in->mad_hdr.method == IB_MGMT_METHOD_SET;

	if (in->mad_hdr.class_version != 1 ||
	    (!reset && in->mad_hdr.method != IB_MGMT_METHOD_GET))
		return false;

	memcpy(pma, request, sizeof(*pma));
	pma->mad_hdr.status = MAD_OK;
	/* which port and which counters; the rest is the answer's */
	memset(pma->data + 4, 0, sizeof(pma->data) - 4);
	switch (pma->mad_hdr.attr_id) {
	case IB_PMA_CLASS_PORT_INFO:
		class_port_info(pma->data);
		break;
	case IB_PMA_PORT_COUNTERS:
		port_counters(rxe, pma->data, reset);
		break;
	case IB_PMA_PORT_COUNTERS_EXT:
		port_counters_ext(rxe, pma->data, reset);
		break;
	default:
		pma->mad_hdr.status = MAD_BAD_ATTRIBUTE;
	}
	pma->mad_hdr.method = IB_MGMT_METHOD_GET_RESP;
	return true;
}
