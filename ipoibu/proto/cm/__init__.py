# SPDX-License-Identifier: BSD-2-Clause
"""Our own communication manager (InfiniBand volume 1, §12).

Where to look:

- `cm`: all connections of one port
- `connection`: one connection and its messages
- `state`: the state machine of both sides
- `rdma_cm_state`: the same for the kernel's rdma_cm

It imports: `base`, `proto.effects`, `proto.machine`, `proto.rc`, `wire`.

Not here:

- A new message as a branch: `state` is a table, and tests draw it.
"""
