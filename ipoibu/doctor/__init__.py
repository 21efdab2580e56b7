# SPDX-License-Identifier: BSD-2-Clause
"""Checkups: what a machine, a device or a running interface lacks, each with its remedy.

Where to look:

- `finding`: one result
- `machine`: what an interface needs before it comes up
- `verbs`: the same of an RDMA device
- `ib_subnet`: subnet manager and broadcast group
- `peer`: a peer of a link without multicast
- `path_probe`: how long a datagram to it may be
- `daemons`: asks the running daemons, once
- `membership`: limited members that reach nobody
- `rails`: which rails carry traffic
- `proxies`: why a proxy does not answer
- `lab`: what the lab needs of its host
- `guests`: who the guests are, who was refused

It imports: `base`, `daemon`, `fabric`, `host`, `proto`, `wire`.

Not here:

- A finding without a remedy, or with one that was never tried.
"""
