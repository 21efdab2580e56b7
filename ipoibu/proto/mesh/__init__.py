# SPDX-License-Identifier: BSD-2-Clause
"""The connections of one host in an iWARP mesh (docs/use/mesh.md).

Where to look:

- `mesh`: dials, greetings, crossing connections
- `effects`: what the mesh has its connections do
- `state`: the state machine of a connection
- `contacts`: the places where hosts may listen, with a cap

It imports: `base`, `proto.effects`, `proto.machine`, `wire`.

Not here:

- A place that a peer names dialed at once: `contacts` has the pace and the cap.
"""
