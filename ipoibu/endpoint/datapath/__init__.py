# SPDX-License-Identifier: BSD-2-Clause
"""The data path: queue pairs, pumps, and what watches them.

Where to look:

- `datapath`: one queue pair and its pumps
- `tx_queues`: all pumps of an interface as one
- `connections`: those of datagram mode
- `rc_shell`: connected mode on real queue pairs
- `capture`: frames for observers
- `rerouting`: second look-ups after a change of routes
- `heartbeat`: signs of life of the threads

It imports: `_core`, `base`, `endpoint.config`, `endpoint.rails`, `endpoint.subnet`, `fabric`, `proto`,
`wire`.

Part of the core, but for `rc_shell`.

Not here:

- A wait for a pump's thread on the interface's thread: commands go through a ring.
"""
