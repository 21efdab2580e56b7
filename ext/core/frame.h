/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_FRAME_H
#define IPU_FRAME_H

/*
 * The copy-free layout of a frame. One contiguous buffer serves the TUN device and the queue pair:
 *
 *   transmit   0          12      16
 *              [vnet 10 .. pad 6 ]           read() from the TUN with a 16-byte vnet header
 *                         [IPoIB 4][IP ...]  posted from byte 12; the header overwrites padding
 *
 *   receive    0               28      40      44
 *              [GRH 40                ][IPoIB 4][IP ...]   as the queue pair fills it (E4)
 *                              [vnet 16        ][IP ...]   written to the TUN from byte 28
 */
#define IPU_VNET_LEN  16u /* TUNSETVNETHDRSZ */
#define IPU_ENCAP_LEN 4u  /* RFC 4391 §6 */
#define IPU_GRH_LEN   40u

/* With guests behind a TAP a transmit frame has its Ethernet header in front (device/tap.h). */
#define IPU_ETHERNET_LEN 14u
#define IPU_TAP_ROOM     16u

#define IPU_TX_IP    IPU_VNET_LEN
#define IPU_TX_ENCAP (IPU_VNET_LEN - IPU_ENCAP_LEN)
#define IPU_RX_ENCAP IPU_GRH_LEN
#define IPU_RX_IP    (IPU_GRH_LEN + IPU_ENCAP_LEN)
#define IPU_RX_VNET  (IPU_RX_IP - IPU_VNET_LEN)

/* E3: the encapsulation types that we carry. */
#define IPU_TYPE_IPV4 0x0800u
#define IPU_TYPE_ARP  0x0806u
#define IPU_TYPE_IPV6 0x86DDu

/* Hellos of hosts with several rails, among ipoibu alone: local experimental type 2 of IEEE 802,
 * which others ignore. */
#define IPU_TYPE_RAILS 0x88B6u

#define IPU_MULTICAST_QPN 0xFFFFFFu /* E5 */

#endif
