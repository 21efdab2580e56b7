# SPDX-License-Identifier: BSD-2-Clause
"""Codecs, one file per header, from bytes to frozen values and back.

Functions that read a peer's bytes end in `_untrusted`: they check the length first, and raise nothing but
`BadFrame`. Each codec lists its reasons in `REASONS`; these are the names of drop counters. `pack` is
strict: its values come from this program, so a value that does not fit its field is the caller's mistake
(`ValueError`, or `struct.error` for a plain number).

Where to look:

- `arp`: ARP with 20-byte hardware addresses
- `bits`: fields of odd widths in one number, the most significant first
- `client_id`: the client identifier of DHCP, which says who asks where hardware addresses do not fit (D1)
- `cm`: datagrams of communication management
- `cm_code`: the numbers of communication management
- `cm_private`: IPoIB's private data in REQ, REP and REJ
- `cm_rdmacm`: the header of Linux's rdma_cm in front of a request's private data (InfiniBand volume 1,
  annex A11)
- `cm_setup`: REQ and REP, the messages that make a connection
- `dhcp`: DHCP messages (RFC 2131, RFC 2132) in IPv4 packets, as they are on IP over InfiniBand (RFC 4390,
  D1)
- `dhcp6`: DHCPv6 messages between client and server (RFC 8415 §8, §21) in IPv6 packets
- `dhcp6_lease`: a lease of DHCPv6
- `dhcp_lease`: a lease
- `dhcp_packet`: the messages of both between client and server, in an IP packet
- `encap`: the 4-byte encapsulation header of IPoIB, RFC 4391 §6 (E1-E3), and the IP MTU (T1)
- `ethernet`: ethernet II frames without preamble and checksum, as a TAP has them
- `ethernet_arp`: ARP on Ethernet
- `fragment`: fragments of IP packets
- `icmp`: ICMP errors of a link to the local stack
- `icmp_message`: echo, and errors of others about packets of a host
- `igmp`: IGMP, versions 1 (RFC 1112), 2 (RFC 2236) and 3 (RFC 3376)
- `ip`: the parts of IPv4 and IPv6 headers that IPoIB needs
- `lladdr`: a peer's hardware address in ARP and in ND options
- `mad`: the header of every management datagram (MAD)
- `mcmember`: MCMemberRecord
- `membership`: IGMP and MLD reports, in one form for all versions (M3, M4, S1-S3)
- `mesh`: the messages of an iWARP mesh
- `mesh_key`: a key that the hosts of a link share, on a byte stream
- `mesh_stream`: the frames of a mesh on a byte stream
- `mgid`: multicast GIDs of IP groups, RFC 4391 §4 (G1-G5)
- `mld`: multicast listener discovery, version 1 (RFC 2710) and 2 (RFC 3810)
- `ndisc`: neighbour discovery messages, RFC 4861 §4 and RFC 4391 §9.3 (N1-N4)
- `ndopt`: options of neighbour discovery, RFC 4861 §4.6, with the link-layer one of RFC 4391 §9.3 (N1)
- `notice`: subscriptions to the SA's events, and the events
- `pathrecord`: pathRecord
- `rmpp`: the reliable multi-packet header, which carries tables longer than a datagram
- `sa`: datagrams of the subnet administrator
- `udp`: UDP datagrams, whole

It imports: `base`.

Part of the core, but for `bits`, `cm`, `cm_code`, `cm_private`, `cm_rdmacm`, `cm_setup`, `dhcp`,
`dhcp6`, `dhcp6_lease`, `dhcp_lease`, `dhcp_packet`, `ethernet`, `ethernet_arp`, `fragment`,
`icmp_message`, `mad`, `mcmember`, `mesh`, `mesh_key`, `mesh_stream`, `notice`, `pathrecord`, `rmpp`, `sa`.

Not here:

- A decision, a clock or a socket: a codec returns a value, or refuses the bytes.
- A second reader of a header that has a file here.
"""

from __future__ import annotations

Octets = bytes | bytearray | memoryview
"""The bytes that a codec reads. The parsed value keeps copies: the caller may reuse the buffer at once."""
