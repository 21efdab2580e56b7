# SPDX-License-Identifier: BSD-2-Clause
"""The engine of one interface, without sockets, clocks or threads: inputs go in, effects come out.

Where to look:

- `engine`: the door: every input of the interface, in the order of a link's life
- `inputs`: what makes an input of a method
- `host_side`: what depends on the kind of frames of the packet device; `ethernet.host` is the other one
- `ip_host`: the host side of a device of IP packets
- `permanent_neighbours`: the inputs of an administrator
- `sa_inputs`: the inputs of a subnet administrator
- `pump_reports`: the inputs that only the log follows
- `parts`: what few configurations ask for, loaded when one does
- `paths`: the paths of a link; `sa.path` has those of a subnet administrator
- `context`: the configuration, and what all machines share
- `effects`: what the engine wants done, as values
- `ethernet_config`: the options about guests
- `rail_policy`: which rail carries the traffic
- `machine`: state machines as data, timers, rates
- `neigh`: neighbours, own addresses, routers, proxies
- `groups`: the link and its multicast groups
- `dhcp`: the DHCP clients
- `sa`: paths and requests under a subnet administrator
- `rc`: the policy of connected mode
- `cm`: our own communication manager
- `mesh`: the connections of an iWARP mesh
- `ethernet`: the hand-off to guests behind a TAP

It imports: `base`, `proto.dhcp`, `proto.ethernet`, `proto.groups`, `proto.machine`, `proto.neigh`,
`proto.sa`, `wire`.

Part of the core, but for `rail_policy`.

Not here:

- `asyncio`, `time` or a socket: inputs carry `now`, effects carry what to do.
- A state machine in `if`: write a table (`machine.table`), which a test checks over the full product.
- A question "is there an Ethernet hand-off" outside of the engine's constructor: `host_side`.
"""
