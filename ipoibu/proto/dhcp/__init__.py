# SPDX-License-Identifier: BSD-2-Clause
"""The DHCP clients of an interface, and the messages of other programs' clients.

Where to look:

- `client`: DHCP, RFC 2131
- `state`: its state machine
- `client6`: DHCPv6, RFC 8415
- `state6`: its state machine
- `grant`: a lease and its times, for both
- `holder`: what both clients do alike about their lease and its address
- `form`: the form of a message on the link, RFC 4390
- `other_clients`: other programs' messages in that form

It imports: `base`, `proto.context`, `proto.effects`, `proto.machine`, `proto.neigh`, `wire`.

Not here:

- One client for both versions: the RFCs differ more than the files repeat.
"""
