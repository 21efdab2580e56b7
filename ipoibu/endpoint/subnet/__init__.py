# SPDX-License-Identifier: BSD-2-Clause
"""An interface's part of the subnet.

Where to look:

- `subnet`: what the engine asks of a subnet that nobody administers
- `sa_subnet`: its questions become requests to a subnet administrator
- `ports`: the port that leads to the link, where there is one
- `link`: the parameters of the link that the configuration asks for
- `all_groups`: who wants every group
- `allmulticast`: every group, for a router
- `retry`: waits between refused attempts

It imports: `base`, `endpoint.config`, `endpoint.interface_contract`, `fabric`, `proto`, `wire`.

Part of the core, but for `allmulticast`, `sa_subnet`.

Not here:

- A request that nobody cancels: a flush ends them all.
"""
