# SPDX-License-Identifier: BSD-2-Clause
"""The Ethernet hand-off: guests behind a TAP share the hardware address of an IPoIB interface.

Towards the guests each neighbour of the link has a MAC of its own, towards the link all guests have the
interface's hardware address. Resolved packets pass the pump alone; what the pump does not know, and ARP,
neighbour discovery, DHCP and membership reports come to `handoff.Handoff`:

    frame of a guest  ----> arp, nd, dhcp, listeners ---.
                      '---> macs (whose MAC is it?) ----+----> effects
    message of the link --> arp, nd, dhcp --------------|
                      '---> guests (whose address?) ----'
"""
