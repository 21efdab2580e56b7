# SPDX-License-Identifier: BSD-2-Clause
"""Several devices under one interface (docs/use/rails.md).

Where to look:

- `rails`: their ports, of which one carries the traffic
- `backup_members`: memberships of the others
- `monitor`: asks neighbours through the active one

It imports: `base`, `endpoint.config`, `endpoint.subnet`, `fabric`, `proto`, `wire`.

Not here:

- A choice between rails here: `proto.rail_policy` chooses.
"""
