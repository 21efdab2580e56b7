# SPDX-License-Identifier: BSD-2-Clause
"""The headers that the tests send and read, as tables of fields from the RFCs.

Where to look:

- `ip`: IPv4, IPv6 and its extension headers, UDP, ICMP echo and errors
- `link`: the encapsulation header and ARP
- `nd`: neighbour discovery
- `groups`: IGMP and MLD
- `dhcp`: DHCP over IPv4
- `cm`: communication management, and the private data of connected mode

It imports: `conform.layout`, `conform.packet`.

Not here:

- A codec of `ipoibu.wire`: a mistake there would pass itself.
"""
