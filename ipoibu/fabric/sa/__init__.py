# SPDX-License-Identifier: BSD-2-Clause
"""The client of the subnet administrator: one for each port, with a loop of its own.

Where to look:

- `client`: what interfaces ask
- `link`: the parameters of a link, by joining it
- `memberships`: groups, shared by all interfaces
- `transport`: requests in flight
- `mad_port`: sends and receives management datagrams
- `umad`: the same by libibumad
- `kernel_sa`: the same by the kernel, where umad may not be opened
- `kernel_ipoib`: the kernel's own interfaces on the port

It imports: `base`, `fabric.cm`, `fabric.effect_loop`, `fabric.flush`, `fabric.loop_thread`,
`fabric.verbs`, `proto`, `wire`.

Not here:

- A second client for a port: group memberships belong to the port.
"""
