# SPDX-License-Identifier: BSD-2-Clause
"""One running interface, parent or child, with its kernel side.

Where to look:

- `hosted_interface`: TUN, endpoint, syncs and control socket together
- `contract`: what its parts ask of it
- `readiness`: when it is usable, and when its addresses are checked
- `opening`: waits for a device that appears later
- `kernel_side`: the syncs, in the interface's namespace
- `sync_watch`: runs them on the loop
- `children`: other partitions at run time
- `changes`: options that change while it runs
- `reloader`: a changed file without a restart
- `leases`: DHCP leases in the kernel
- `duplicates`: addresses that another host has
- `neighbour_changes`: `ipoibu neigh add`, `del`, `flush`
- `proxy_table`: the option `proxy`
- `pings`: `ipoibu ping`

It imports: `base`, `daemon.config`, `daemon.control`, `daemon.handover`, `daemon.metrics`,
`daemon.process`, `endpoint`, `fabric`, `host`, `proto`, `wire`.

Not here:

- A method that forwards to the endpoint: give the caller the endpoint.
"""
