# SPDX-License-Identifier: BSD-2-Clause
"""The built-in HCA, RoCEv2 over UDP in our own process; ext/soft is its C side.

Where to look:

- `port`: port and fabric
- `ib_port`: the same with LIDs and a subnet administrator
- `adapter`: one built-in HCA of a port, whose GID never changes
- `carrier_check`: whether a net device has lost its carrier, before the kernel says so everywhere
- `own_routes`: the routes of its net device that it needs

It imports: `_core`, `base`, `fabric.base`, `fabric.cm`, `fabric.link_speed`, `fabric.plain`, `fabric.sa`,
`proto`.

Part of the core, but for `ib_port`.

Not here:

- IPoIB in the HCA: it knows datagrams, groups and connections only.
"""
