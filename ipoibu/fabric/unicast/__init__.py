# SPDX-License-Identifier: BSD-2-Clause
"""Links over any network, without multicast: the hosts are named, and reached by TCP and UDP.

Where to look:

- `fabric`: the wrapper around a fabric of datagrams
- `rendezvous`: the connections to all peers
- `reception`: hosts that dial us, until they have greeted
- `stream`: one connection
- `underlay`: which address of the host is the GID
- `router`: how the kernel reaches an address
- `query`: asks a host without becoming its peer

It imports: `_core`, `base`, `fabric.base`, `fabric.effect_loop`, `fabric.mesh`, `fabric.plain`,
`fabric.worker`, `fabric.wrapper`, `proto`, `wire`.

Not here:

- A read that waits: one slow peer would stop all others.
"""
