# SPDX-License-Identifier: BSD-2-Clause
"""RDMA devices by libibverbs, and by pyverbs where a call is rare; ext/verbs is the C side.

Where to look:

- `port`: port and fabric
- `objects`: alone imports pyverbs; its objects and errors become ours
- `native`: the compiled module, which may be missing
- `node_type`: the kind of a device, without its libraries
- `link_layer`: what differs between RoCE and InfiniBand
- `roce_gid`: the GID of a RoCE port
- `ud_queue`: a UD queue pair
- `rc_queues`: the queue pairs of connections

It imports: `_verbs`, `base`, `fabric.base`, `fabric.cm`, `fabric.flush`, `fabric.plain`,
`fabric.sa`, `proto`.

Not here:

- `import pyverbs` elsewhere: the package must work without it.
"""
