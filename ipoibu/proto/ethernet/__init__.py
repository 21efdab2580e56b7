# SPDX-License-Identifier: BSD-2-Clause
"""The Ethernet hand-off: guests behind a TAP share the hardware address of an IPoIB interface.

Towards the guests each neighbour of the link has a MAC of its own, towards the link all guests have the
interface's hardware address. Resolved packets pass the pump alone; what the pump does not know, and ARP,
neighbour discovery, DHCP and membership reports come to `host.EthernetHost`:

    frame of a guest  ----> arp, nd, dhcp, listeners ---.
                      '---> macs (whose MAC is it?) ----+----> effects
    message of the link --> arp, nd, dhcp --------------|
                      '---> guests (whose address?) ----'

Where to look:

- `arp`: ARP between guests and the link
- `binding`: the life of one address of a guest, as a table
- `dhcp`: DHCP of guests
- `guests`: the addresses of the guests
- `host`: the hand-off between guests behind a TAP and the link
- `listeners`: the groups of the guests, by their IGMP and MLD reports
- `macs`: the MACs that stand for the hosts of the link towards the guests
- `nd`: neighbour discovery between guests and the link
- `queue_pairs`: the hardware addresses of the guests towards the link
- `refusals`: remembers who used an address that belongs to another guest, for ipoibu guests, monitor and
  doctor

It imports: `base`, `proto.context`, `proto.dhcp`, `proto.effects`, `proto.ethernet_config`,
`proto.groups`, `proto.host_side`, `proto.inputs`, `proto.machine`, `proto.neigh`, `wire`.

Not here:

- A neighbour of the link: `proto.neigh` has one cache for both modes.
"""
