# SPDX-License-Identifier: BSD-2-Clause
"""The policy of connected mode (RFC 4755): which peer has a connection, and when.

Where to look:

- `policy`: the decisions for all peers
- `peer`: how packets go to one peer
- `connection`: one connection, its queue pair and MTU
- `events`: what policy and communication manager say to each other

It imports: `base`, `proto.effects`, `proto.machine`, `wire`.

Not here:

- A word of InfiniBand's CM here: `events` is the language, `proto.cm` and `fabric.cm` translate.
"""
