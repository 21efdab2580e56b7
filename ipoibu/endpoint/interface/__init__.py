# SPDX-License-Identifier: BSD-2-Clause
"""The interface on its own thread: engine, shells, flushes.

Where to look:

- `interface`: owns all parts of one link: up, down, flush
- `shell`: carries effects out, feeds events and time
- `heavy_flush`: another queue pair under the same device
- `port_follower`: what a change of the port does
- `rail_follower`: what a change of the rails does
- `port_watch`: the port's state and GID
- `peer_watch`: the peers of a mesh
- `carrier`: the carrier, as `ip link` shows it
- `event_log`: transitions as log lines
- `readiness`: waits until it is usable
- `transitions`: their observers
- `pings`: waits for a ping's answer

It imports: `_core`, `base`, `endpoint.callbacks`, `endpoint.datapath`, `endpoint.dhcp`,
`endpoint.handover`, `endpoint.interface_contract`, `endpoint.rails`, `endpoint.subnet`,
`fabric`, `proto`, `wire`.

Part of the core, but for `rail_follower`.

Not here:

- A decision in the shell: the engine returns an effect for it.
"""
