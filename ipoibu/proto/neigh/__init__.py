# SPDX-License-Identifier: BSD-2-Clause
"""The addresses of the link: neighbours, our own, routers, and hosts for which we answer.

Where to look:

- `neighbours`: the cache, with eviction and waiting packets
- `nud`: the state machine of one neighbour
- `arp`: ARP, mapped onto both
- `ndisc`: neighbour discovery, mapped onto both
- `dad`: our own addresses: probed, then announced
- `held_addresses`: our own addresses with their groups
- `moves`: announcements after a move
- `host_addresses`: the host's other addresses, in ARP
- `routers`: the default routers that advertise themselves
- `advertised_routes`: their prefixes and routes
- `proxy_entries`: single addresses for which we answer
- `proxy_networks`: networks behind us for which we answer
- `pings`: ARP and ND requests of `ipoibu ping`
- `icmp_errors`: what our own host is told about packets that cannot go

It imports: `base`, `proto.context`, `proto.effects`, `proto.groups`, `proto.inputs`,
`proto.machine`, `proto.paths`, `wire`.

Part of the core.

Not here:

- A state of a neighbour beside `nud`: ARP and ND have one machine on purpose.
- A table that a message fills without a row in ipoibu/daemon/tables.
"""
