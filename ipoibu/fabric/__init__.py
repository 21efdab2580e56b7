# SPDX-License-Identifier: BSD-2-Clause
"""Kinds of devices: each gives a port and a fabric, by the two contracts in `base`.

Where to look:

- `base`: the contracts
- `device`: opens a port by its name; alone knows all kinds
- `plain`: the answers of a device without features
- `peered`: a fabric whose peers another object knows
- `wrapper`: the wrapper from which faults and rails are made
- `faults`: a wrapper that spoils datagrams, for tests
- `rails`: a wrapper over several devices
- `memory`: the smallest fabric: hosts in one process
- `shared_port`: one open port for parent and children
- `effect_loop`: runs a sans-IO machine
- `worker`: a thread that serves descriptors
- `loop_thread`: a thread with an event loop
- `link`: the parameters of a link
- `raw_link`: a link for a program that sends datagrams itself
- `raw_queue_pair`: single datagrams and messages, without a pump
- `flush`: what a change of the subnet means for interfaces
- `link_speed`: the speed of a net device
- `soft`: the built-in HCA
- `verbs`: RDMA devices
- `unicast`: links without multicast
- `mesh`: iWARP devices
- `sa`: the client of the subnet administrator
- `cm`: communication managers
- `partition`: partitions without a subnet manager

It imports: `_core`, `base`, `fabric.cm`, `fabric.mesh`, `fabric.partition`, `fabric.sa`, `fabric.soft`,
`fabric.unicast`, `fabric.verbs`, `proto`, `wire`.

Part of the core, but for `faults`, `peered`, `rails`, `raw_link`, `raw_queue_pair`, `worker`, `wrapper`.

Not here:

- A question about the kind of a device outside of `device`: `Capabilities` says what one can.
- A member of a contract with a default: a wrapper that forgets one must not instantiate.
"""
