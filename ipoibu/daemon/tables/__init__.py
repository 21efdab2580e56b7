# SPDX-License-Identifier: BSD-2-Clause
"""The register of tables that strangers can fill: who fills each, its cap, and what happens beyond.

Where to look:

- `register`: all rows
- `table`: what a row says
- `engine`: neighbours, routers, groups, paths, and packets that wait
- `ethernet`: what guests fill
- `peers`: connections, the mesh, management datagrams
- `host`: what the host and its programs fill
- `sockets`: what hosts of the link fill in a program with sockets
- `core`: the tables in C

It imports: `base`.

Not here:

- The tables themselves, and what fills them in tests (tests/unit/tables).
"""
