/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TUNNEL_H
#define IPU_TUNNEL_H

/*
 * A TUN carried over UDP with every offload of the kernel and no protocol: the yardstick for a data
 * path of this shape. One datagram train carries one frame of the TUN with its vnet header.
 *
 * `tun` yields frames behind IPU_VNET_LEN bytes, `udp` is connected and non-blocking; both stay the
 * caller's. The tunnel cuts trains to `segment_bytes` (UDP_SEGMENT). It runs until a descriptor
 * fails, and returns that negative errno. It serves one pair of descriptors in a process.
 */
int ipu_tunnel_run(int tun, int udp, int segment_bytes);

#endif
