# SPDX-License-Identifier: BSD-2-Clause
"""iWARP devices, and the thread that runs a mesh for them and for unicast links.

Where to look:

- `port`: port and fabric
- `connections`: RDMA connections of the mesh
- `mesh_worker`: the thread
- `peer_list`: the peers that the operator lists
- `peer_key`: the key that hosts share

It imports: `_verbs`, `base`, `fabric.base`, `fabric.cm`, `fabric.effect_loop`, `fabric.peered`,
`fabric.plain`, `fabric.verbs`, `fabric.worker`, `proto`, `wire`.

Not here:

- A decision about peers: `proto.mesh` has them all.
"""
